"""Numbers as chances of bins, 16 rows side by side: what they mean, and losses towards the two bins beside a target.

The formulas are those of agents/networks/two_hot.py. N rows are a multiple of 16.
"""

import numpy as np

from agents.engines.fused_cpu.kernels.calls import PIECE, floats, longs
from agents.engines.fused_cpu.kernels.model_cell import to_lanes, to_rows
from agents.engines.fused_cpu.kernels.vectors import BYTES, exp, larger, load, log, splat, store
from agents.engines.plan.layout import LANES
from agents.engines.plan.numbers import Count, auto
from utils.kernel_cache import njit


class Bins(Count):
    """The table of two-hot numbers, int64: counts, then addresses."""

    ROWS = auto()  # N
    BINS = auto()  # B, odd
    THREADS = auto()
    VALUES = auto()  # [B] of the bins
    LOGITS = auto()  # [N, B]
    MEAN = auto()  # [N]
    TARGETS = auto()  # how many each row has
    TARGET = auto()  # [TARGETS, N]
    LOSS = auto()  # [TARGETS, N]
    SLOPE = auto()  # [TARGETS, N] of the losses
    SLOPE_LOGITS = auto()  # [N, B]
    SCRATCH = auto()  # of each thread: logits [B], chances [B + 1], places [2]
    SCRATCH_SIZE = auto()  # bytes of a thread


TABLE = len(Bins)


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
def chances_of(table: int, group: int, scratch: int) -> None:
    """Of 16 rows the logits [B], the chances [B], and the logarithm of what they were divided by."""
    t = longs(table, TABLE)
    bins = t[Bins.BINS]
    to_lanes(t[Bins.LOGITS] + 4 * LANES * group * bins, bins, scratch, bins)
    softmax(scratch, bins, scratch + bins * BYTES)


@njit(inline="always")
def expect(chances: int, values_at: int, bins: int, out: int) -> None:
    """The expected numbers, one vector: in pairs +-b, so that equal chances are 0 exactly."""
    total, pairs, values = splat(0.0), bins // 2, floats(values_at, bins)
    for i in range(pairs):
        apart = load(chances, pairs + 1 + i) - load(chances, pairs - 1 - i)
        total = total + apart * values[pairs + 1 + i]
    store(out, 0, total)


@njit(**PIECE)
def mean(table: int, thread: int) -> None:
    """The expected number of each row."""
    t = longs(table, TABLE)
    bins, groups = t[Bins.BINS], t[Bins.ROWS] // LANES
    scratch = t[Bins.SCRATCH] + thread * t[Bins.SCRATCH_SIZE]
    for group in range(thread, groups, t[Bins.THREADS]):
        chances_of(table, group, scratch)
        expect(scratch + bins * BYTES, t[Bins.VALUES], bins, t[Bins.MEAN] + group * BYTES)


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


@njit(**PIECE)
def losses(table: int, thread: int) -> None:
    """Cross-entropies of each row towards each of its targets."""
    t = longs(table, TABLE)
    bins, rows = t[Bins.BINS], t[Bins.ROWS]
    scratch = t[Bins.SCRATCH] + thread * t[Bins.SCRATCH_SIZE]
    places = scratch + (2 * bins + 1) * BYTES
    logits, found = floats(scratch, bins * LANES), floats(places, 2 * LANES)
    whole = floats(scratch + 2 * bins * BYTES, LANES)
    for group in range(thread, rows // LANES, t[Bins.THREADS]):
        chances_of(table, group, scratch)
        for k in range(t[Bins.TARGETS]):
            at = 4 * (k * rows + LANES * group)
            between(t[Bins.VALUES], bins, t[Bins.TARGET] + at, places)
            out = floats(t[Bins.LOSS] + at, LANES)
            for s in range(LANES):
                low, near = int(found[s]), found[LANES + s]
                below, above = logits[low * LANES + s], logits[(low + 1) * LANES + s]
                out[s] = whole[s] - (below + near * (above - below))


@njit(**PIECE)
def slopes(table: int, thread: int) -> None:
    """Of the logits: for each target its slope, times chances less the two bins beside it."""
    t = longs(table, TABLE)
    bins, rows = t[Bins.BINS], t[Bins.ROWS]
    scratch = t[Bins.SCRATCH] + thread * t[Bins.SCRATCH_SIZE]
    at_chances, places = scratch + bins * BYTES, scratch + (2 * bins + 1) * BYTES
    of_logits, found = floats(at_chances, bins * LANES), floats(places, 2 * LANES)
    for group in range(thread, rows // LANES, t[Bins.THREADS]):
        chances_of(table, group, scratch)
        total = splat(0.0)
        for k in range(t[Bins.TARGETS]):
            total = total + load(t[Bins.SLOPE] + 4 * k * rows, group)
        for i in range(bins):
            store(at_chances, i, load(at_chances, i) * total)
        for k in range(t[Bins.TARGETS]):
            at = 4 * (k * rows + LANES * group)
            between(t[Bins.VALUES], bins, t[Bins.TARGET] + at, places)
            slope = floats(t[Bins.SLOPE] + at, LANES)
            for s in range(LANES):
                low, near = int(found[s]), found[LANES + s]
                of_logits[low * LANES + s] -= slope[s] * (np.float32(1.0) - near)
                of_logits[(low + 1) * LANES + s] -= slope[s] * near
        to_rows(at_chances, t[Bins.SLOPE_LOGITS] + 4 * LANES * group * bins, bins, bins)
