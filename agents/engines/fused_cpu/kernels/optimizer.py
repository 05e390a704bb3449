"""From partial gradients to a step of Adam: sums in a fixed order, the norm, the step, a segment at a time."""

import math
from typing import Any

import numpy as np

from stride.agents.engines.fused_cpu.frame import ENTRIES, LIVES, SUMS, TILE, At
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, doubles, floats, longs
from stride.agents.engines.plan.numbers import Live
from stride.utils.kernel_cache import njit

F = np.float32
SUMMING: dict[str, Any] = {**PIECE, "fastmath": {"reassoc", "contract", "nsz"}}


@njit(**SUMMING)
def reduce_parts(frame: int, segment: int) -> None:
    """Add up a segment of PARTIAL into GRADIENT, clear it there, and note the sum of squares in SQUARES."""
    f = longs(frame, ENTRIES)
    row = longs(f[At.SEGMENT_TABLE] + 24 * segment, 3)
    first, n = row[0], row[1] - row[0]
    total = floats(f[At.GRADIENT] + 4 * first, n)
    mine = floats(f[At.PARTIAL] + 4 * first, n)
    for i in range(n):
        total[i] = mine[i]
        mine[i] = F(0.0)
    for part in range(1, f[At.PARTS]):
        other = floats(f[At.PARTIAL] + 4 * (part * f[At.SIZE] + first), n)
        for i in range(n):
            total[i] += other[i]
            other[i] = F(0.0)
    squares = F(0.0)
    for i in range(n):
        squares += total[i] * total[i]
    doubles(f[At.SQUARES], f[At.SEGMENTS])[segment] = np.float64(squares)


@njit(inline="always")
def norm_of(squares: np.ndarray) -> float:
    """Of the whole gradient, from the segments' sums of squares."""
    total = 0.0
    for segment in range(squares.size):
        total += squares[segment]
    return math.sqrt(total)


@njit(inline="always")
def prepare(factors: np.ndarray, live: np.ndarray, norm: float, made: float, decoupled: int) -> None:
    """What `adam` multiplies by in step `made`, the gradient being of this norm before it is clipped."""
    rate = live[Live.LEARNING_RATE]
    factors[0] = min(1.0, live[Live.MAX_NORM] / (norm + 1e-6))
    factors[1] = rate / (1.0 - live[Live.BETA_1] ** made)
    factors[2] = 1.0 / math.sqrt(1.0 - live[Live.BETA_2] ** made)
    factors[3] = 1.0 - rate * live[Live.DECAY] if decoupled else 1.0


@njit(**PIECE)
def adam(frame: int, segment: int, factors: int) -> None:
    """One step of Adam on a segment: reads GRADIENT, writes PARAMETERS and both moments.

    factors float64 [4]: gradient scale, step, 1 / sqrt(correction), shrinking. m += (1 - b1) (g - m),
    v = b2 v + (1 - b2) g^2, p = p shrinking - step m / (sqrt(v) / sqrt(correction) + eps). AdamW's decay shrinks p;
    Adam's is part of g, added after clipping.
    """
    f = longs(frame, ENTRIES)
    row = longs(f[At.SEGMENT_TABLE] + 24 * segment, 3)
    first, n = row[0], row[1] - row[0]
    given, live = doubles(factors, 4), doubles(f[At.LIVE], LIVES)
    scale, step, correction, shrink = F(given[0]), F(given[1]), F(given[2]), F(given[3])
    b1, b2, eps = F(1.0 - live[Live.BETA_1]), F(live[Live.BETA_2]), F(live[Live.EPSILON])
    c2 = F(1.0 - live[Live.BETA_2])
    decay = F(0.0) if f[At.DECOUPLED] else F(live[Live.DECAY])
    parameter, gradient = floats(f[At.PARAMETERS] + 4 * first, n), floats(f[At.GRADIENT] + 4 * first, n)
    moment, square = floats(f[At.FIRST_MOMENT] + 4 * first, n), floats(f[At.SECOND_MOMENT] + 4 * first, n)
    for i in range(n):
        g = gradient[i] * scale + decay * parameter[i]
        m = moment[i] + b1 * (g - moment[i])
        v = b2 * square[i] + c2 * g * g
        moment[i], square[i] = m, v
        parameter[i] = parameter[i] * shrink - step * m / (np.sqrt(v) * correction + eps)


@njit(**SUMMING)
def add_sums(frame: int, sums: int) -> None:
    """Add up SUMS of this minibatch, over parts and samples, into sums [len(Sum)] float64."""
    f = longs(frame, ENTRIES)
    out = doubles(sums, SUMS)
    for k in range(SUMS):
        total = F(0.0)
        for part in range(f[At.PARTS]):
            column = floats(f[At.SUMS] + 4 * TILE * (part * SUMS + k), TILE)
            for s in range(TILE):
                total += column[s]
        out[k] = np.float64(total)


@njit(inline="always")
def clear_sums(frame: int) -> None:
    """Before the next minibatch."""
    f = longs(frame, ENTRIES)
    floats(f[At.SUMS], f[At.PARTS] * SUMS * TILE)[:] = F(0.0)
