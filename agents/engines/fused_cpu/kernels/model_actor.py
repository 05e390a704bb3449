"""An actor's outputs, 16 starts side by side: what is done by them, and slopes of its loss.

The formulas are those of agents/networks/heads.py; the loss of a start is -(credit * log-probability + care * entropy).
"""

import math

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats, longs
from stride.agents.engines.fused_cpu.kernels.model_cell import to_lanes, to_rows
from stride.agents.engines.fused_cpu.kernels.model_two_hot import softmax
from stride.agents.engines.fused_cpu.kernels.vectors import (
    at_most,
    exp,
    larger,
    load,
    log,
    sigmoid,
    splat,
    store,
    tanh,
)
from stride.agents.engines.plan.layout import LANES
from stride.agents.networks.heads import LEAST_STD
from stride.utils.kernel_cache import njit

OF_LOG_PROB, OF_ENTROPY = 0.5 * math.log(2 * math.pi), 0.5 * math.log(2 * math.pi * math.e)  # of a number


@njit(**PIECE)
def choose(logits: int, options: int, u: int, hot: int, place: int, row: int) -> None:
    """One of so many options by uniforms [16]: one-hot vectors, and the number of it in every `row`-th int64."""
    most, total = load(logits, 0), splat(0.0)
    for k in range(1, options):
        most = larger(most, load(logits, k))
    for k in range(options):
        total = total + exp(load(logits, k) - most)
        store(hot, k, total)
    level, passed, number = load(u, 0) * total, splat(1.0), splat(0.0)
    for k in range(options - 1):  # below each option whose sum is not above what was drawn lies the choice
        following = at_most(load(hot, k), level)
        number = number + following
        store(hot, k, passed - following)
        passed = following
    store(hot, options - 1, passed)
    store(logits, 0, number)
    numbers, chosen = floats(logits, LANES), longs(place, LANES * row)
    for s in range(LANES):
        chosen[s * row] = int(numbers[s])


@njit(**PIECE)
def take_numbers(outputs: int, count: int, normals: int, encoded: int, place: int) -> None:
    """Numbers about a bounded mean, as rows at `place`; encoded they are cut at +-1, as worlds do."""
    for k in range(count):
        std = LEAST_STD + (1.0 - LEAST_STD) * sigmoid(load(outputs, count + k) + 2.0)
        number = tanh(load(outputs, k)) + std * load(normals, k)
        store(outputs, k, number)
        store(encoded, k, -larger(-larger(number, splat(-1.0)), splat(-1.0)))
    to_rows(outputs, place, count, count)


@njit(**PIECE)
def slopes_of_choice(
    logits: int, options: int, place: int, row: int, chances: int, credit: int, care: int, out: int, loss: int,
    spread: int,
) -> None:  # fmt: skip
    """Slopes of the logits; the choice is every `row`-th int64 at `place`. To `loss` and `spread` it adds its own."""
    softmax(logits, options, chances)
    whole, entropy = load(chances, options), splat(0.0)
    for k in range(options):
        entropy = entropy - load(chances, k) * (load(logits, k) - whole)
    for k in range(options):
        p, log_p = load(chances, k), load(logits, k) - whole
        store(out, k, p * (load(credit, 0) + load(care, 0) * (log_p + entropy)))
    store(spread, 0, load(spread, 0) + entropy)
    store(loss, 0, load(loss, 0) + load(credit, 0) * whole - load(care, 0) * entropy)
    chosen, credits, losses = longs(place, LANES * row), floats(credit, LANES), floats(loss, LANES)
    numbers, slopes = floats(logits, LANES * options), floats(out, LANES * options)
    for s in range(LANES):
        at = chosen[s * row] * LANES + s
        slopes[at] -= credits[s]
        losses[s] -= credits[s] * numbers[at]


@njit(**PIECE)
def slopes_of_numbers(
    outputs: int, count: int, place: int, given: int, credit_at: int, care_at: int, out: int, loss: int, spread: int
) -> None:
    """The same of numbers, rows at `place` that become vectors at `given`."""
    to_lanes(place, count, given, count)
    credit, care = load(credit_at, 0), load(care_at, 0)
    for k in range(count):
        mean, on = tanh(load(outputs, k)), sigmoid(load(outputs, count + k) + 2.0)
        std = LEAST_STD + (1.0 - LEAST_STD) * on
        z, log_std = (load(given, k) - mean) / std, log(std)
        entropy = log_std + OF_ENTROPY
        store(spread, 0, load(spread, 0) + entropy)
        store(loss, 0, load(loss, 0) + credit * (z * z * 0.5 + log_std + OF_LOG_PROB) - care * entropy)
        store(out, k, -(credit * z / std) * (1.0 - mean * mean))
        of_std = (credit * (1.0 - z * z) - care) / std
        store(out, count + k, of_std * (1.0 - LEAST_STD) * on * (1.0 - on))
