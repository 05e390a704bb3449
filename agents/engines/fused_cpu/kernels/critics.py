"""What critics of state and action share, whichever actor they judge: their inputs, and the slopes of their errors."""

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, FrameFields, Scratch
from stride.agents.engines.fused_cpu.kernels.calls import floats, ints
from stride.agents.engines.plan.numbers import SUMS, Sum
from stride.utils.kernel_cache import njit

F = np.float32


@njit(inline="always")
def put_actions(f: FrameFields, first: int, count: int, x: int) -> None:
    """Behind the features of each sample the action that was taken."""
    actions = f.actions
    for s in range(count):
        place = np.int64(ints(f.place + 4 * (first + s), 1)[0])
        target = floats(x + 4 * (s * f.row + f.features), actions)
        taken = floats(f.action + 4 * place * actions, actions)
        for k in range(actions):
            target[k] = taken[k]


@njit(inline="always")
def critic_slopes(f: FrameFields, scratch: Scratch, part: int, count: int, n: int) -> None:
    """Values become the slope of their squared error."""
    v, target = floats(scratch.q, TILE), floats(scratch.target, TILE)
    sums = floats(f.sums + 4 * part * SUMS * TILE, SUMS * TILE)
    fraction, share = F(1.0) / F(f.minibatch), F(1.0) / F(f.critics)
    for s in range(count):
        error = v[s] - target[s]
        sums[Sum.VALUE_LOSS * TILE + s] += F(0.5) * fraction * error * error
        sums[Sum.Q * TILE + s] += share * fraction * v[s]
        sums[Sum.TARGET * TILE + s] += share * fraction * target[s]
        v[s] = fraction * error
    for s in range(count, n):
        v[s] = F(0.0)
