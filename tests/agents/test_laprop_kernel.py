"""LaProp's step by a kernel against its own in torch: weights, moments and counts, and no step at all."""

import pytest
import torch
from torch import nn

from stride.agents.engines.fused_cpu.model_learn import KernelLaProp
from stride.agents.laprop import LaProp

SHAPES = [(40, 33), (16,), (3,), (1,), (64, 4), (5, 16)]
OPTIONS = {
    "as Dreamer has it": dict(lr=4e-4, eps=1e-20, clip=0.3, warmup=3),
    "with all it can": dict(lr=1e-2, betas=(0.5, 0.8), eps=1e-3, clip=0.05, weight_decay=0.1),
    "without a clip": dict(lr=1e-2, eps=1e-8, clip=None),
}


def drawn(number):
    generator = torch.Generator().manual_seed(number)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def stepped(options, by_kernel):
    """All that is left of five steps, of which the third is not made."""
    weights = [nn.Parameter(x) for x in drawn(0)]
    with torch.no_grad():
        weights[1].zero_()
    optimizer = own = LaProp(weights, **options)
    if by_kernel:
        optimizer = KernelLaProp(own)
    for number in range(1, 6):
        for p, gradient in zip(weights, drawn(number), strict=True):
            p.grad = gradient * (torch.nan if number == 3 else 10.0 ** (number - 3))
        weights[4].grad.zero_()
        weights[5].grad = weights[5].grad.t().contiguous().t()  # a gradient may lie otherwise than its weight
        optimizer.found_inf = torch.tensor(float(number == 3))
        optimizer.step()
    return weights, [own.state[p] for p in weights]


@pytest.mark.parametrize("name", OPTIONS)
def test_steps_are_torchs(name):
    weights, states = stepped(OPTIONS[name], False)
    mine, kept = stepped(OPTIONS[name], True)
    for found, expected in zip(mine, weights, strict=True):
        assert not torch.equal(expected, torch.zeros_like(expected))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
    for found, expected in zip(kept, states, strict=True):
        assert found["updates"] == expected["updates"] == 4
        for moment in ("square", "mean"):
            torch.testing.assert_close(found[moment], expected[moment], rtol=1e-5, atol=1e-7)
