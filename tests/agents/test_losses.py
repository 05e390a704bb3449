"""The pure functions of PPO and REINFORCE against numbers worked out by hand."""

import math

import pytest
import torch

from stride.agents.ppo import approximate_kl, clipped_surrogate, value_loss
from stride.agents.reinforce import masked_mean, masked_standardize, policy_gradient


def surrogate_of(ratio, advantage):
    return clipped_surrogate(ratio, torch.tensor(advantage), 0.2)


def value_loss_of(value, target, clip=0.5):
    """Where the value was 1 before."""
    return value_loss(value, torch.ones_like(value), torch.tensor(target), clip)


@pytest.mark.parametrize(
    ("function", "numbers", "goals", "loss", "gradient"),
    [
        # ratio, advantage; in range: -r A
        (surrogate_of, [1.1], [2.0], -2.2, [-2.0]),
        (surrogate_of, [0.9], [-2.0], 1.8, [2.0]),
        (surrogate_of, [1.0], [2.0], -2.0, [-2.0]),
        # above 1.2: gains stop at 1.2, losses do not
        (surrogate_of, [1.5], [2.0], -2.4, [0.0]),
        (surrogate_of, [1.5], [-2.0], 3.0, [2.0]),
        # below 0.8: what is bad stops at 0.8, what is good may come back
        (surrogate_of, [0.5], [2.0], -1.0, [-2.0]),
        (surrogate_of, [0.5], [-2.0], 1.6, [0.0]),
        # the mean: -(min(1.5, 1.2) * 1 + min(0.5 * -1, 0.8 * -1)) / 2 = -(1.2 - 0.8) / 2
        (surrogate_of, [1.5, 0.5], [1.0, -1.0], -0.2, [0.0, 0.0]),
        # value, target; without clipping (v - g)^2 and 2 (v - g) / 2
        (lambda *x: value_loss_of(*x, None), [1.0, 4.0], [3.0, 3.0], 2.5, [-2.0, 1.0]),
        (value_loss_of, [1.2], [3.0], 1.8**2, [2 * -1.8]),  # moved little: both alike
        (value_loss_of, [2.0], [3.0], 1.5**2, [0.0]),  # moved 1, only 0.5 is believed: (1.5 - 3)^2, no more pull
        (value_loss_of, [2.0], [0.0], 2.0**2, [2 * 2.0]),  # moved away: the unclipped error is the larger one
        (value_loss_of, [0.0], [-3.0], 3.5**2, [0.0]),  # the same downwards: (0.5 + 3)^2
    ],
)
def test_losses_of_ppo(function, numbers, goals, loss, gradient):
    x = torch.tensor(numbers, requires_grad=True)
    result = function(x, goals)
    result.backward()
    assert result.item() == pytest.approx(loss) and x.grad.tolist() == pytest.approx(gradient)


def test_approximate_kl():
    # (r - 1) - log r at r = 2, 1/2, 1: 1 - log 2, -1/2 + log 2, 0
    log_ratio = torch.tensor([math.log(2), -math.log(2), 0.0])
    assert approximate_kl(log_ratio).item() == pytest.approx(0.5 / 3) and approximate_kl(torch.zeros(5)) == 0
    old, new = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.4, 0.4, 0.2])
    rows = torch.repeat_interleave(torch.arange(3), (old * 10).round().long())  # as frequent as under the old policy
    torch.testing.assert_close(approximate_kl((new / old).log()[rows]), (old * (old / new).log()).sum())


COUNTED = torch.tensor([1.0, 0.0, 1.0, 1.0])


def test_rows_that_do_not_count_change_nothing():
    numbers = torch.tensor([1.0, 100.0, 2.0, 6.0])
    assert masked_mean(numbers, COUNTED).item() == 3
    expected = torch.tensor([-2.0, -1.0, 3.0]) / math.sqrt(14 / 3)  # of 1, 2, 6: mean 3, variance (4 + 1 + 9) / 3
    torch.testing.assert_close(masked_standardize(numbers, COUNTED)[COUNTED.bool()], expected)
    assert masked_standardize(torch.tensor([4.0, 9.0]), torch.tensor([1.0, 0.0]))[0].item() == 0
    log_prob = torch.tensor([-1.0, -5.0, -2.0, -3.0], requires_grad=True)
    loss = policy_gradient(log_prob, torch.tensor([3.0, 1000.0, -1.5, 6.0]), COUNTED)
    loss.backward()
    assert loss.item() == pytest.approx(-(-3 + 3 - 18) / 3)
    assert log_prob.grad.tolist() == pytest.approx([-1.0, 0.0, 0.5, -2.0])  # -w / 3


def test_where_no_row_counts_everything_is_0():
    log_prob, none = torch.tensor([-1.0, -2.0], requires_grad=True), torch.zeros(2)
    weight = masked_standardize(torch.tensor([4.0, 9.0]), none)
    loss = policy_gradient(log_prob, weight, none)
    loss.backward()
    assert weight.isfinite().all() and loss.item() == 0 and not log_prob.grad.any()
    assert masked_mean(torch.tensor([4.0, 9.0]), none).item() == 0
