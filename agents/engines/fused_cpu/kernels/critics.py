"""What the critics of SAC, TD3 and TQC share: their inputs (features and an action), and slopes of squared errors."""

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, FrameFields, Scratch
from stride.agents.engines.fused_cpu.kernels.calls import floats, ints
from stride.agents.engines.plan.numbers import SUMS, Sum
from stride.utils.kernel_cache import njit

F = np.float32


@njit(inline="always")
def put_actions(f: FrameFields, first: int, count: int, x: int) -> None:
    """Copy the action that was taken behind the features of each sample in x [count, row].

    The samples are the drawn transitions [first, first + count).
    """
    actions = f.actions
    for s in range(count):
        place = np.int64(ints(f.place + 4 * (first + s), 1)[0])
        target = floats(x + 4 * (s * f.row + f.features), actions)
        taken = floats(f.action + 4 * place * actions, actions)
        for k in range(actions):
            target[k] = taken[k]


@njit(inline="always")
def critic_slopes(f: FrameFields, scratch: Scratch, part: int, count: int, n: int) -> None:
    """Replace one critic's values in scratch.q by the slopes of (value - target)^2 / 2; add the losses to `sums`.

    Lanes from `count` to n are filling and get slope 0.
    """
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
