"""PQN's lambda-returns by hand: what is mixed, where nothing follows, where only a value does."""

import pytest
import torch

from stride.agents.returns import lambda_returns


def column(*numbers):
    return torch.tensor(numbers, dtype=torch.float32)[:, None]


def flags(*numbers):
    return torch.tensor(numbers, dtype=torch.bool)[:, None]


NO = flags(0, 0, 0)
REWARD, VALUE = column(1, 2, 4), column(10, 20, 30)


def returns(terminated=NO, truncated=NO, lam=0.5):
    return lambda_returns(REWARD, terminated, truncated, VALUE, 0.9, lam)[:, 0].tolist()


def test_neither():
    last = 4 + 0.9 * 30
    middle = 2 + 0.9 * (0.5 * 20 + 0.5 * last)
    assert returns() == pytest.approx([1 + 0.9 * (0.5 * 10 + 0.5 * middle), middle, last])


def test_nothing_follows_a_termination():
    assert returns(terminated=flags(0, 1, 0)) == pytest.approx([1 + 0.9 * (0.5 * 10 + 0.5 * 2), 2, 31])


def test_a_value_follows_a_truncation():
    middle = 2 + 0.9 * 20
    assert returns(truncated=flags(0, 1, 0)) == pytest.approx([1 + 0.9 * (0.5 * 10 + 0.5 * middle), middle, 31])


def test_lambda_from_one_step_to_all():
    assert returns(lam=0.0) == pytest.approx([10, 20, 31])
    assert returns(lam=1.0) == pytest.approx([1 + 0.9 * (2 + 0.9 * 31), 2 + 0.9 * 31, 31])
