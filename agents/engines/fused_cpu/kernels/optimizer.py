"""From the parts' gradients to a step of Adam: sums in a fixed order, the norm, the step.

A segment is a piece of the flat parameters; threads share the work by segments. minibatches.py and replay.py use this.
"""

import math
from typing import Any

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, FrameFields, fields_at, live_at, segment_of
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, doubles, floats
from stride.agents.engines.plan.numbers import SUMS, Live
from stride.utils.kernel_cache import njit

F = np.float32
# options of kernels that sum: "reassoc" allows another order of additions, so that a sum uses vector instructions
SUMMING: dict[str, Any] = {**PIECE, "fastmath": {"reassoc", "contract", "nsz"}}


@njit(**SUMMING)
def reduce_parts(frame: int, number: int) -> None:
    """Add up segment `number` of all parts' gradients into `gradient`, clear these, and write its sum of squares."""
    f = fields_at(frame)
    segment = segment_of(f, number)
    first, n = segment.first, segment.last - segment.first
    total = floats(f.gradient + 4 * first, n)
    partial = floats(f.partial + 4 * first, n)
    for i in range(n):
        total[i] = partial[i]
        partial[i] = F(0.0)
    for part in range(1, f.parts):
        other = floats(f.partial + 4 * (part * f.size + first), n)
        for i in range(n):
            total[i] += other[i]
            other[i] = F(0.0)
    squares = F(0.0)
    for i in range(n):
        squares += total[i] * total[i]
    doubles(f.squares, f.segments)[number] = np.float64(squares)


@njit(**SUMMING)
def square_up(frame: int, number: int) -> None:
    """Write the sum of squares of segment `number` of `gradient` to `squares`."""
    f = fields_at(frame)
    segment = segment_of(f, number)
    first, n = segment.first, segment.last - segment.first
    total, squares = floats(f.gradient + 4 * first, n), F(0.0)
    for i in range(n):
        squares += total[i] * total[i]
    doubles(f.squares, f.segments)[number] = np.float64(squares)


@njit(inline="always")
def norm_of(squares: np.ndarray) -> float:
    """Return the norm of the complete gradient, from the sums of squares of all segments."""
    total = 0.0
    for number in range(squares.size):
        total += squares[number]
    return math.sqrt(total)


@njit(inline="always")
def prepare(factors: np.ndarray, live: Live, norm: float, made: float, decoupled: int, rectified: int) -> None:
    """Write the factors of `adam` [5] for step number `made` (from 1 on); `norm` is that of the gradient, not clipped.

    Rectified (RAdam, Liu et al. 2020), a step is shorter while the average of squares has few terms. With an effective
    number of terms of 5 or less, the step is not divided by the root of that average at all.
    """
    factors[0] = min(1.0, live.max_norm / (norm + 1e-6))
    factors[1] = live.learning_rate / (1.0 - live.beta_1**made)
    factors[2] = 1.0 / math.sqrt(1.0 - live.beta_2**made)
    factors[3] = 1.0 - live.learning_rate * live.decay if decoupled else 1.0
    factors[4] = live.epsilon
    if rectified:
        squares = 1.0 - live.beta_2**made  # weight of all squares so far in their moving average
        longest = 2.0 / (1.0 - live.beta_2) - 1.0  # number of terms after infinitely many steps
        length = longest - 2.0 * made * (1.0 - squares) / squares  # effective number of terms now
        if length > 5.0:
            share = (length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length)
            factors[1] *= math.sqrt(share * squares)
            factors[2] = 1.0
        else:
            factors[2], factors[4] = 0.0, 1.0


@njit(**PIECE)
def adam(frame: int, number: int, factors: int) -> None:
    """Make one step of Adam on segment `number`: read `gradient`, write `parameters` and both moments.

    factors float64 [5]: factor of the gradient (clipping), step size, 1 / sqrt(correction), factor of the parameter
    (AdamW's decay), eps.
        m += (1 - b1) (g - m)      v = b2 v + (1 - b2) g^2
        p = p factor - step m / (sqrt(v) / sqrt(correction) + eps)
    Adam's own weight decay is part of g, added after clipping.
    """
    f = fields_at(frame)
    segment, live = segment_of(f, number), live_at(f.live)
    first, n = segment.first, segment.last - segment.first
    factor = doubles(factors, 5)
    scale, step, correction, shrink = F(factor[0]), F(factor[1]), F(factor[2]), F(factor[3])
    b1, b2, eps = F(1.0 - live.beta_1), F(live.beta_2), F(factor[4])
    c2 = F(1.0 - live.beta_2)
    decay = F(0.0) if f.decoupled else F(live.decay)
    parameter, gradient = floats(f.parameters + 4 * first, n), floats(f.gradient + 4 * first, n)
    moment, square = floats(f.first_moment + 4 * first, n), floats(f.second_moment + 4 * first, n)
    for i in range(n):
        g = gradient[i] * scale + decay * parameter[i]
        m = moment[i] + b1 * (g - moment[i])
        v = b2 * square[i] + c2 * g * g
        moment[i], square[i] = m, v
        parameter[i] = parameter[i] * shrink - step * m / (np.sqrt(v) * correction + eps)


@njit(**SUMMING)
def add_sums(frame: int, out: int) -> None:
    """Add up `sums` of this minibatch over parts and samples, and write them to out float64 [SUMS]."""
    f = fields_at(frame)
    totals = doubles(out, SUMS)
    for k in range(SUMS):
        total = F(0.0)
        for part in range(f.parts):
            column = floats(f.sums + 4 * TILE * (part * SUMS + k), TILE)
            for s in range(TILE):
                total += column[s]
        totals[k] = np.float64(total)


@njit(inline="always")
def clear_sums(f: FrameFields) -> None:
    """Set `sums` to 0, before the next minibatch."""
    floats(f.sums, f.parts * SUMS * TILE)[:] = F(0.0)
