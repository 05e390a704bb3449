"""Numbers as chances of bins, 16 rows side by side: what they mean, and losses towards the two bins beside a target.

The formulas are those of agents/networks/two_hot.py.
"""

import numpy as np

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats
from stride.agents.engines.fused_cpu.kernels.model_cell import copy
from stride.agents.engines.fused_cpu.kernels.model_nets import answer_of
from stride.agents.engines.fused_cpu.kernels.vectors import BYTES, exp, larger, load, log, splat, store
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit


@njit(inline="always")
def softmax(logits: int, count: int, chances: int) -> None:
    """Chances [count], and behind them the logarithm of what they were divided by."""
    most, total = load(logits, 0), splat(0.0)
    for i in range(1, count):
        most = larger(most, load(logits, i))
    for i in range(count):
        e = exp(load(logits, i) - most)
        store(chances, i, e)
        total = total + e
    rate = 1.0 / total
    for i in range(count):
        store(chances, i, load(chances, i) * rate)
    store(chances, count, most + log(total))


@njit(inline="always")
def expect(chances: int, values_at: int, bins: int, out: int) -> None:
    """The expected numbers, one vector: in pairs +-b, so that equal chances are 0 exactly."""
    total, pairs, values = splat(0.0), bins // 2, floats(values_at, bins)
    for i in range(pairs):
        apart = load(chances, pairs + 1 + i) - load(chances, pairs - 1 - i)
        total = total + apart * values[pairs + 1 + i]
    store(out, 0, total)


@njit(**PIECE)
def number_of(
    answer: int, index: int, rows: int, x: int, room: int, chances: int, values: int, bins: int, kept: int, out: int
) -> None:
    """The numbers that a net tells of the index-th 16 rows, vectors x, by chances; its logits are kept unless at 0."""
    logits = answer_of(answer, index, rows, x, room)
    if kept:
        copy(logits, kept, bins)
    softmax(logits, bins, chances)
    expect(chances, values, bins, out)


@njit(inline="always")
def between(values_at: int, bins: int, target: int, places: int) -> None:
    """Of 16 targets, cut at the outermost bins, the bin below, as a number, and how near the one above is."""
    values, targets, found = floats(values_at, bins), floats(target, LANES), floats(places, 2 * LANES)
    for s in range(LANES):
        x = targets[s]  # comparisons leave NaN as it is
        x = values[0] if x < values[0] else x
        x = values[bins - 1] if x > values[bins - 1] else x
        low, high = 0, bins - 1
        while high - low > 1:  # values[low] < x <= values[high], unless x is the first
            middle = (low + high) // 2
            if values[middle] < x:
                low = middle
            else:
                high = middle
        found[s], found[LANES + s] = low, (x - values[low]) / (values[high] - values[low])


@njit(inline="always")
def pull(
    values: int, bins: int, logits_at: int, target: int, share_at: int, places: int, of_logits_at: int, loss_at: int
) -> None:
    """What the bins beside 16 targets take off a cross-entropy and its slopes, each `share` times."""
    logits, of_logits = floats(logits_at, bins * LANES), floats(of_logits_at, bins * LANES)
    share, loss, found = floats(share_at, LANES), floats(loss_at, LANES), floats(places, 2 * LANES)
    between(values, bins, target, places)
    for s in range(LANES):
        low, near = int(found[s]) * LANES + s, found[LANES + s]
        high = low + LANES
        loss[s] -= share[s] * (logits[low] + near * (logits[high] - logits[low]))
        of_logits[low] -= share[s] * (np.float32(1.0) - near)
        of_logits[high] -= share[s] * near


@njit(inline="always")
def pull_both(values: int, bins: int, logits: int, target: int, slow: int, share: float, out: int, loss: int) -> None:
    """A critic's loss of 16 rows towards two targets, the second `share` as much, and slopes of its logits at `out`.

    Behind them is a vector, the rows' weights, and room for two.
    """
    at, places = out + (bins + 1) * BYTES, out + (bins + 2) * BYTES
    weight = load(at, 0)
    both = weight * (1.0 + share)
    softmax(logits, bins, out)
    store(loss, 0, both * load(out, bins))
    for i in range(bins):
        store(out, i, load(out, i) * both)
    pull(values, bins, logits, target, at, places, out, loss)
    store(at, 0, weight * share)
    pull(values, bins, logits, slow, at, places, out, loss)
