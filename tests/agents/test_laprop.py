"""LaProp against numbers worked out by hand, and its kernel against it; test_descend.py asks it what it asks of all."""

import math

import pytest
import torch
from torch import nn

from stride.agents.engines.fused_cpu.model_learn import KernelLaProp
from stride.agents.laprop import LaProp


def stepped(optimizer, *gradients):
    """The only parameter after each of these gradients."""
    (p,) = optimizer.param_groups[0]["params"]
    values = []
    for gradient in gradients:
        p.grad = torch.tensor(gradient)
        optimizer.step()
        values.append(p.tolist())
    return values


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
    """The norm 50 becomes 0.3 * 5: 30 and 40 are 0.9 and 1.2, which shows in the moments of their squares."""
    p = nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = LaProp([p], lr=0.1)
    assert stepped(optimizer, [30.0, 40.0]) == [pytest.approx([2.9, 3.9])]
    assert optimizer.state[p]["square"].tolist() == pytest.approx([0.81e-3, 1.44e-3])
    assert p.grad.tolist() == [30, 40], "others look at it"
    stepped(optimizer, [0.3, 0.4])
    squares = [0.999 * 0.81e-3 + 0.09e-3, 0.999 * 1.44e-3 + 0.16e-3]
    assert optimizer.state[p]["square"].tolist() == pytest.approx(squares), "a small one is not"


def test_weights_that_begin_at_zero_can_leave_it():
    p = nn.Parameter(torch.zeros(2))
    optimizer = LaProp([p], lr=0.1)
    assert stepped(optimizer, [5.0, 0.0]) == [pytest.approx([-0.1, 0.0])]
    assert optimizer.state[p]["square"][0].item() == pytest.approx(0.3e-3**2 * 1e-3)


def test_the_rate_rises_and_weights_decay_with_it():
    """Steps of 0.05 and 0.1, before which the weight shrinks by 2.5 % and 5 %."""
    p = nn.Parameter(torch.tensor([1.0]))
    optimizer = LaProp([p], lr=0.1, weight_decay=0.5, clip=None, warmup=2)
    first = 0.975 - 0.05
    assert stepped(optimizer, [3.0], [3.0]) == [[pytest.approx(first)], [pytest.approx(first * 0.95 - 0.1)]]


def test_each_parameter_counts_its_own_steps():
    p, late = (nn.Parameter(torch.tensor([1.0])) for _ in range(2))
    optimizer = LaProp([p, late], lr=0.1, clip=None)
    p.grad = torch.tensor([1.0])
    optimizer.step()
    late.grad = torch.tensor([1.0])
    optimizer.step()
    assert late.item() == pytest.approx(0.9) and p.item() == pytest.approx(0.8)


def test_an_optimizer_that_loads_a_state_goes_on_as_if_never_saved():
    gradients = torch.randn(6, 3).tolist()
    whole, half = (nn.Parameter(torch.ones(3)) for _ in range(2))
    stepped(LaProp([whole], lr=0.1, warmup=4), *gradients)
    first, second = (LaProp([half], lr=0.1, warmup=4) for _ in range(2))
    stepped(first, *gradients[:3])
    second.load_state_dict(first.state_dict())
    stepped(second, *gradients[3:])
    assert torch.equal(whole, half)


# --- the kernel

SHAPES = [(40, 33), (16,), (3,), (1,), (64, 4), (5, 16)]
OPTIONS = {
    "as Dreamer has it": dict(lr=4e-4, eps=1e-20, clip=0.3, warmup=3),
    "with all it can": dict(lr=1e-2, betas=(0.5, 0.8), eps=1e-3, clip=0.05, weight_decay=0.1),
    "without a clip": dict(lr=1e-2, eps=1e-8, clip=None),
}


def drawn(number):
    generator = torch.Generator().manual_seed(number)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def five_steps(options, by_kernel):
    """Weights and their states after five steps, of which the third is not made."""
    weights = [nn.Parameter(x) for x in drawn(0)]
    weights[1].detach().zero_()
    own = LaProp(weights, **options)
    optimizer = KernelLaProp(own) if by_kernel else own
    for number in range(1, 6):
        for p, gradient in zip(weights, drawn(number), strict=True):
            p.grad = gradient * (torch.nan if number == 3 else 10.0 ** (number - 3))
        weights[4].grad.zero_()
        weights[5].grad = weights[5].grad.t().contiguous().t()  # its strides may be others than its weight's
        optimizer.found_inf = torch.tensor(float(number == 3))
        optimizer.step()
    return [x.detach() for x in weights], [own.state[p] for p in weights]


@pytest.mark.parametrize("name", OPTIONS)
def test_steps_of_the_kernel_are_torchs(name):
    weights, states = five_steps(OPTIONS[name], False)
    result = five_steps(OPTIONS[name], True)
    assert all(x.any() for x in weights) and {state["updates"].item() for state in states} == {4}
    torch.testing.assert_close(result, (weights, states), rtol=1e-5, atol=1e-7)
