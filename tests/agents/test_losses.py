"""The pure functions of PPO and REINFORCE against numbers worked out by hand."""

import math

import pytest
import torch

from stride.agents.ppo import approximate_kl, clipped_surrogate, value_loss
from stride.agents.reinforce import masked_mean, masked_standardize, policy_gradient


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        # in range: -r A
        (1.1, 2.0, -2.2, -2.0),
        (0.9, -2.0, 1.8, 2.0),
        (1.0, 2.0, -2.0, -2.0),
        # above 1.2: gains stop at 1.2, losses do not
        (1.5, 2.0, -2.4, 0.0),
        (1.5, -2.0, 3.0, 2.0),
        # below 0.8: what is bad stops at 0.8, what is good may come back
        (0.5, 2.0, -1.0, -2.0),
        (0.5, -2.0, 1.6, 0.0),
    ],
)
def test_clipped_surrogate(ratio, advantage, loss, gradient):
    r = torch.tensor([ratio], requires_grad=True)
    result = clipped_surrogate(r, torch.tensor([advantage]), 0.2)
    result.backward()
    assert result.item() == pytest.approx(loss)
    assert r.grad.item() == pytest.approx(gradient)


def test_clipped_surrogate_is_a_mean():
    # -(min(1.5, 1.2) * 1 + min(0.5 * -1, 0.8 * -1)) / 2 = -(1.2 - 0.8) / 2
    result = clipped_surrogate(torch.tensor([1.5, 0.5]), torch.tensor([1.0, -1.0]), 0.2)
    assert result.item() == pytest.approx(-0.2)


def test_value_loss_without_clipping():
    value = torch.tensor([1.0, 4.0], requires_grad=True)
    loss = value_loss(value, torch.tensor([50.0, -50.0]), torch.tensor([3.0, 3.0]), None)
    loss.backward()
    assert loss.item() == (4 + 1) / 2
    assert value.grad.tolist() == [-2.0, 1.0]  # 2 (v - g) / 2


@pytest.mark.parametrize(
    ("value", "target", "loss", "gradient"),
    [
        # v_old = 1, clip = 0.5
        (1.2, 3.0, 1.8**2, 2 * -1.8),  # moved little: both alike
        (2.0, 3.0, 1.5**2, 0.0),  # moved 1 towards the target, only 0.5 is believed: (1.5 - 3)^2, no more pull
        (2.0, 0.0, 2.0**2, 2 * 2.0),  # moved away: the unclipped error is the larger one
        (0.0, -3.0, 3.5**2, 0.0),  # the same downwards: (0.5 + 3)^2
    ],
)
def test_value_loss_with_clipping(value, target, loss, gradient):
    v = torch.tensor([value], requires_grad=True)
    result = value_loss(v, torch.tensor([1.0]), torch.tensor([target]), 0.5)
    result.backward()
    assert result.item() == pytest.approx(loss)
    assert v.grad.item() == pytest.approx(gradient)


def test_approximate_kl():
    # (r - 1) - log r at r = 2, 1/2, 1: 1 - log 2, -1/2 + log 2, 0
    log_ratio = torch.tensor([math.log(2), -math.log(2), 0.0])
    assert approximate_kl(log_ratio).item() == pytest.approx(0.5 / 3)
    assert approximate_kl(torch.zeros(5)).item() == 0


def test_approximate_kl_estimates_the_divergence():
    old, new = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.4, 0.4, 0.2])
    exact = (old * (old / new).log()).sum()
    rows = torch.repeat_interleave(torch.arange(3), (old * 10).round().long())  # as frequent as under the old policy
    torch.testing.assert_close(approximate_kl((new / old).log()[rows]), exact)


COUNTED = torch.tensor([1.0, 0.0, 1.0, 1.0])


def test_masked_mean():
    assert masked_mean(torch.tensor([1.0, 100.0, 2.0, 6.0]), COUNTED).item() == 3
    assert masked_mean(torch.tensor([5.0, 7.0]), torch.ones(2)).item() == 6
    assert masked_mean(torch.tensor([5.0, 7.0]), torch.tensor([0.0, 1.0])).item() == 7


def test_masked_standardize():
    # over 1, 2, 6: mean 3, variance (4 + 1 + 9) / 3
    result = masked_standardize(torch.tensor([1.0, 100.0, 2.0, 6.0]), COUNTED)
    expected = torch.tensor([-2.0, -1.0, 3.0]) / math.sqrt(14 / 3)
    torch.testing.assert_close(result[COUNTED.bool()], expected)


def test_policy_gradient():
    log_prob = torch.tensor([-1.0, -5.0, -2.0, -3.0], requires_grad=True)
    loss = policy_gradient(log_prob, torch.tensor([3.0, 1000.0, -1.5, 6.0]), COUNTED)
    loss.backward()
    assert loss.item() == pytest.approx(-(-3 + 3 - 18) / 3)
    assert log_prob.grad.tolist() == pytest.approx([-1.0, 0.0, 0.5, -2.0])  # -w / 3; what does not count moves nothing


def test_where_no_row_counts_everything_is_0():
    log_prob, none = torch.tensor([-1.0, -2.0], requires_grad=True), torch.zeros(2)
    weight = masked_standardize(torch.tensor([4.0, 9.0]), none)
    loss = policy_gradient(log_prob, weight, none)
    loss.backward()
    assert weight.isfinite().all() and loss.item() == 0 and not log_prob.grad.any()
    assert masked_mean(torch.tensor([4.0, 9.0]), none).item() == 0


def test_one_counted_row_standardizes_to_0():
    assert masked_standardize(torch.tensor([4.0, 9.0]), torch.tensor([1.0, 0.0]))[0].item() == 0
