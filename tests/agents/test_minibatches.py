"""One pass over a table: every row once, leaves together, in the key's order."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from stride.agents.experience.minibatches import minibatches
from stride.utils.counter_rng import SHUFFLE, Key, permutation

T, N = 6, 4
KEY = Key(3, SHUFFLE, 1, 7)


class Table(NamedTuple):
    obs: dict[str, Tensor]
    number: Tensor


def table():
    number = torch.arange(T * N).view(T, N)
    return Table({"image": number[..., None, None].expand(T, N, 2, 3) + 0.5, "vector": number[..., None] * 2.0}, number)


@pytest.mark.parametrize("size", [1, 6, 24])
def test_every_row_comes_once_with_all_its_leaves(size):
    seen = []
    for batch in minibatches(table(), size, KEY):
        assert type(batch) is Table and batch.number.shape == (size,)
        assert torch.equal(batch.obs["vector"], batch.number[:, None] * 2.0)
        assert torch.equal(batch.obs["image"], (batch.number[:, None, None] + 0.5).expand(size, 2, 3))
        seen += batch.number.tolist()
    assert sorted(seen) == list(range(T * N)) and seen != sorted(seen)


def test_the_order_is_the_keys():
    def order(key, size=6):
        return torch.cat([batch.number for batch in minibatches(table(), size, key)]).tolist()

    expected = permutation(KEY, T * N).tolist()
    assert order(KEY) == expected
    torch.manual_seed(123)
    assert order(KEY) == order(KEY, size=24) == expected
    others = [order(KEY._replace(**{field: 5})) for field in ("seed", "rank", "iteration")]
    assert all(order != expected for order in others) and len(set(map(tuple, others))) == 3


def test_the_table_is_left_as_it_was():
    mine, before = table(), table()
    for batch in minibatches(mine, 6, KEY):
        batch.number.zero_()
        batch.obs["vector"].zero_()
    assert torch.equal(mine.number, before.number) and torch.equal(mine.obs["vector"], before.obs["vector"])


def test_what_does_not_divide_comes_last_and_is_shorter():
    assert [len(batch.number) for batch in minibatches(table(), 10, KEY)] == [10, 10, 4]


def test_images_stay_as_they_lie():
    images = torch.arange(T * N * 24).view(T, N, 2, 3, 4)
    by_pixel = images.movedim(2, -1).contiguous().movedim(-1, 2)
    for one, other in zip(minibatches(images, 6, KEY), minibatches(by_pixel, 6, KEY), strict=True):
        assert torch.equal(one, other) and one.is_contiguous()
        assert other.is_contiguous(memory_format=torch.channels_last)
