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


@pytest.mark.parametrize("size", [1, 6, 10, 24])
def test_every_row_comes_once_with_all_its_leaves_in_the_keys_order(size):
    """What does not divide comes last and is shorter; the table is left as it was."""
    mine, order = table(), []
    torch.manual_seed(size)  # says nothing
    for batch in minibatches(mine, size, KEY):
        assert type(batch) is Table and len(batch.number) == min(size, T * N - len(order))
        assert torch.equal(batch.obs["vector"], batch.number[:, None] * 2.0)
        assert torch.equal(batch.obs["image"], (batch.number[:, None, None] + 0.5).expand(-1, 2, 3))
        order += batch.number.tolist()
        batch.number.zero_()
        batch.obs["vector"].zero_()
    assert order == permutation(KEY, T * N).tolist() and sorted(order) == list(range(T * N)) != order
    assert torch.equal(mine.number, table().number) and torch.equal(mine.obs["vector"], table().obs["vector"])


def test_each_part_of_the_key_gives_another_order():
    keys = [KEY, *(KEY._replace(**{field: 5}) for field in ("seed", "rank", "iteration"))]
    orders = [tuple(torch.cat([batch.number for batch in minibatches(table(), 6, key)]).tolist()) for key in keys]
    assert len(set(orders)) == 4


def test_images_keep_their_layout():
    images = torch.arange(T * N * 24).view(T, N, 2, 3, 4)
    by_pixel = images.movedim(2, -1).contiguous().movedim(-1, 2)
    for one, other in zip(minibatches(images, 6, KEY), minibatches(by_pixel, 6, KEY), strict=True):
        assert torch.equal(one, other) and one.is_contiguous()
        assert other.is_contiguous(memory_format=torch.channels_last)
