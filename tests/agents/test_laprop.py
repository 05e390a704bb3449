"""LaProp against numbers worked out by hand; test_descend.py asks it what it asks of every optimizer."""

import math

import pytest
import torch
from torch import nn

from stride.agents.laprop import LaProp


def stepped(optimizer, *gradients):
    """The only parameter after each of these gradients."""
    (p,) = optimizer.param_groups[0]["params"]
    found = []
    for gradient in gradients:
        p.grad = torch.tensor(gradient)
        optimizer.step()
        found.append(p.tolist())
    return found


def test_three_steps_by_hand():
    """Scaled first, then smoothed, each with its bias corrected; with the gradients +2, -1, 0 and betas 1/2 and 3/4."""
    p = nn.Parameter(torch.tensor([10.0]))
    optimizer = LaProp([p], lr=0.1, betas=(0.5, 0.75), clip=None)
    square, mean, x, expected = 0.0, 0.0, 10.0, []
    for k, g in enumerate((2.0, -1.0, 0.0), 1):
        square += 0.25 * (g * g - square)
        mean += 0.5 * (g / math.sqrt(square / (1 - 0.75**k)) - mean)
        x -= 0.1 * mean / (1 - 0.5**k)
        expected.append([pytest.approx(x, rel=1e-6)])
    assert expected[0] == [pytest.approx(9.9)]
    assert stepped(optimizer, [2.0], [-1.0], [0.0]) == expected


def test_a_gradient_is_cut_to_a_share_of_its_weights():
    """The norm 50 becomes 0.3 * 5: 30 and 40 are 0.9 and 1.2, which shows in what is remembered of their squares."""
    p = nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = LaProp([p], lr=0.1)
    assert stepped(optimizer, [30.0, 40.0]) == [pytest.approx([2.9, 3.9])]
    assert optimizer.state[p]["square"].tolist() == pytest.approx([0.81e-3, 1.44e-3])
    assert p.grad.tolist() == [30, 40], "others look at it"
    stepped(optimizer, [0.3, 0.4])
    assert optimizer.state[p]["square"].tolist() == pytest.approx(
        [0.999 * 0.81e-3 + 0.09e-3, 0.999 * 1.44e-3 + 0.16e-3]
    ), "a small one is not"


def test_weights_that_begin_at_zero_can_leave_it():
    p = nn.Parameter(torch.zeros(2))
    optimizer = LaProp([p], lr=0.1)
    assert stepped(optimizer, [5.0, 0.0]) == [pytest.approx([-0.1, 0.0])]
    assert optimizer.state[p]["square"][0].item() == pytest.approx(0.3e-3**2 * 1e-3)


def test_the_rate_rises_and_weights_decay_with_it():
    p = nn.Parameter(torch.tensor([1.0]))
    optimizer = LaProp([p], lr=0.1, weight_decay=0.5, clip=None, warmup=2)
    # steps of 0.05 and 0.1, before which the weight shrinks by 2.5 % and 5 %
    first = 0.975 - 0.05
    second = first * 0.95 - 0.1
    assert stepped(optimizer, [3.0], [3.0]) == [[pytest.approx(first)], [pytest.approx(second)]]


def test_each_parameter_counts_its_own_steps():
    p, late = nn.Parameter(torch.tensor([1.0])), nn.Parameter(torch.tensor([1.0]))
    optimizer = LaProp([p, late], lr=0.1, clip=None)
    p.grad = torch.tensor([1.0])
    optimizer.step()
    late.grad = torch.tensor([1.0])
    optimizer.step()
    assert late.item() == pytest.approx(0.9) and p.item() == pytest.approx(0.8)


def test_a_step_that_is_skipped_leaves_no_trace_of_what_is_no_number():
    p = nn.Parameter(torch.tensor([1.0]))
    optimizer = LaProp([p], lr=0.1)
    optimizer.found_inf = torch.ones(())
    assert stepped(optimizer, [float("nan")], [float("inf")]) == [[1.0]] * 2
    optimizer.found_inf = torch.zeros(())
    assert stepped(optimizer, [0.2]) == [[pytest.approx(0.9)]]


def test_what_is_saved_goes_on_as_if_it_had_not_been():
    torch.manual_seed(0)
    gradients = torch.randn(6, 3).tolist()
    whole, half = (nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer, first = LaProp([whole], lr=0.1, warmup=4), LaProp([half], lr=0.1, warmup=4)
    stepped(optimizer, *gradients)
    stepped(first, *gradients[:3])
    second = LaProp([half], lr=0.1, warmup=4)
    second.load_state_dict(first.state_dict())
    stepped(second, *gradients[3:])
    assert torch.equal(whole, half)
