"""The optimizers of the fused engine's kernels beside torch's own, step by step."""

import numpy as np
import pytest
import torch

from stride.agents.engines.fused_cpu.frame import Frame, aligned
from stride.agents.engines.fused_cpu.kernels.optimizer import adam, prepare
from stride.agents.engines.plan.layout import Segment
from stride.agents.engines.plan.numbers import Live
from stride.utils.kernel_cache import njit

SIZE, STEPS = 40, 2000
KINDS = {"adam": torch.optim.Adam, "radam": torch.optim.RAdam}


@njit
def step(frame, factors, live, made, rectified):
    prepare(factors, live[0], 1.0, made, 0, rectified)
    adam(frame, 0, factors.ctypes.data)


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_steps_are_those_of_torch(kind, decay):
    """RAdam's first steps, which it does not rectify, are among them."""
    generator = torch.Generator().manual_seed(3)
    parameter = torch.randn(SIZE, generator=generator, requires_grad=True)
    torchs = KINDS[kind]([parameter], lr=1e-3, eps=1e-5, weight_decay=decay)
    live = np.zeros(1, np.dtype(Live))
    for name, value in {
        "learning_rate": 1e-3, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-5, "decay": decay, "max_norm": np.inf,
    }.items():  # fmt: skip
        live[name] = value
    mine, gradient, frame, factors = aligned(SIZE), aligned(SIZE), Frame(), np.empty(5)
    mine[:] = parameter.detach().numpy()
    frame.fill(
        live=live,
        parameters=mine,
        gradient=gradient,
        first_moment=aligned(SIZE),
        second_moment=aligned(SIZE),
        segment_table=np.array([(0, SIZE, 0)], np.dtype(Segment)),
    )
    furthest = 0.0
    for made in range(1, STEPS + 1):
        given = torch.randn(SIZE, generator=generator) * (1 + made % 7) + 0.1
        parameter.grad, gradient[:] = given, given.numpy()
        torchs.step()
        step(frame.address, factors, live, float(made), kind == "radam")
        furthest = max(furthest, float(np.abs(mine - parameter.detach().numpy()).max()))
    assert furthest < 1e-6
