"""Epochs of minibatches of a rollout: gradient, clip, Adam. All threads walk through it together.

A minibatch is cut into PARTS whose gradients are added in a fixed order, so that the result does not depend on how many
threads there are.
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.frame import ENTRIES, LIVES, STATS, SUMS, TILE, At
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, barrier, call, doubles, floats, ints, longs
from stride.agents.engines.fused_cpu.kernels.optimizer import adam, add_sums, clear_sums, norm_of, prepare, reduce_parts
from stride.agents.engines.plan.numbers import Live, Stat, Sum
from stride.utils.kernel_cache import njit


@njit(**PIECE)
def _weighing(frame: int, order: int, begin: int, end: int, out: int) -> None:
    """How WEIGHT is shifted and scaled in this minibatch, float64 [3]: mean, 1 / deviation, what a row counts.

    Each thread computes its own, all in the same order, so none waits. Sums are of differences to the first row: their
    squares lose nothing where the mean is far from 0.
    """
    f = longs(frame, ENTRIES)
    rows = f[At.STEPS] * f[At.WORLDS]
    weight, counted, index = floats(f[At.WEIGHT], rows), floats(f[At.COUNTED], rows), ints(order, rows)
    result, stats = doubles(out, 3), doubles(f[At.STATS], STATS)
    base = np.float64(weight[index[begin]])
    count, total, squares = 0.0, 0.0, 0.0
    for i in range(begin, end):
        row = index[i]
        share = np.float64(counted[row])
        w = (weight[row] - base) * share
        count += share
        total += w
        squares += w * w
    count = max(count, 1.0)
    result[0], result[1], result[2] = 0.0, 1.0, 1.0 / count
    if f[At.NORMALIZE] == 1:
        mean = total / count
        result[0] = mean + base
        result[1] = 1.0 / (math.sqrt(max(squares / count - mean * mean, 0.0)) + 1e-8)
    elif f[At.NORMALIZE] == 2:
        result[0], result[1] = stats[Stat.WEIGHT_MEAN], 1.0 / (stats[Stat.WEIGHT_STD] + 1e-8)


@njit(**PIECE)
def _tell(frame: int, sums: int, total: float, lost: bool, halted: bool) -> None:
    """Add this minibatch's numbers to STATS, and clear SUMS, from which they came."""
    f = longs(frame, ENTRIES)
    stats, added = doubles(f[At.STATS], STATS), doubles(sums, SUMS)
    for k in range(SUMS):
        stats[k] += added[k]  # the first entries of Stat are those of Sum
    clear_sums(frame)
    if halted:
        stats[Stat.HALTED] = 1.0
    stats[Stat.STOPPED] += stats[Stat.HALTED]
    squares, table = doubles(f[At.SQUARES], f[At.SEGMENTS]), longs(f[At.SEGMENT_TABLE], 3 * f[At.SEGMENTS])
    for part in range(3):
        of_part = 0.0
        for segment in range(f[At.SEGMENTS]):
            if table[3 * segment + 2] == part:
                of_part += squares[segment]
        stats[Stat.NORM_ACTOR + part] += math.sqrt(of_part)
    stats[Stat.NORM_TOTAL] += total
    stats[Stat.UPDATES] += 1.0
    if lost:
        stats[Stat.LOST] += 1.0
    if lost or not math.isfinite(total):
        stats[Stat.BROKEN] += 1.0


@njit(**PIECE)
def learn(frame: int, thread: int) -> None:
    """What is left of an iteration once it is played; of a long one the updates [BEGIN, END)."""
    f = longs(frame, ENTRIES)
    if f[At.BEGIN] == 0:
        call(f[At.JUDGE], (frame, thread))
    call(f[At.UPDATE], (frame, thread))


@njit(**PIECE)
def update(frame: int, thread: int) -> None:
    """The updates [BEGIN, END) of this rollout, counted over all epochs; nothing once KL_LIMIT has been exceeded.

    PARAMETERS, moments and TURNED change, STATS grow.
    """
    f = longs(frame, ENTRIES)
    threads, parts, rows, size = f[At.THREADS], f[At.PARTS], f[At.STEPS] * f[At.WORLDS], f[At.MINIBATCH]
    live, stats = doubles(f[At.LIVE], LIVES), doubles(f[At.STATS], STATS)
    squares = doubles(f[At.SQUARES], f[At.SEGMENTS])
    per_epoch = (rows + size - 1) // size
    weighing, factors, sums = np.empty(3), np.empty(4), np.empty(SUMS)
    barrier(f[At.BARRIER], threads)  # the call before has written what is read now
    made, halted = live[Live.STEP], stats[Stat.HALTED] > 0
    for q in range(f[At.BEGIN], f[At.END]):
        if halted:
            break
        order = f[At.ORDER] + 4 * (q // per_epoch) * rows
        low = (q % per_epoch) * size
        high = min(low + size, rows)
        _weighing(frame, order, low, high, weighing.ctypes.data)
        for part in range(thread, parts, threads):
            # whole tiles, so that only the last one of a minibatch is ragged
            tiles = (high - low + TILE - 1) // TILE
            a, b = low + part * tiles // parts * TILE, min(low + (part + 1) * tiles // parts * TILE, high)
            call(f[At.GRADIENT_PART], (frame, thread, part, order, a, b, weighing.ctypes.data))
        barrier(f[At.BARRIER], threads)
        for segment in range(thread, f[At.SEGMENTS], threads):
            reduce_parts(frame, segment)
        barrier(f[At.BARRIER], threads)
        total = norm_of(squares)
        add_sums(frame, sums.ctypes.data)
        halted = sums[Sum.KL] > live[Live.KL_LIMIT]
        lost = not math.isfinite(sums[Sum.POLICY_LOSS] + sums[Sum.VALUE_LOSS] + sums[Sum.ENTROPY])
        if math.isfinite(total) and not lost and not halted:
            made += 1.0
            prepare(factors, live, total, made, f[At.DECOUPLED])
            for segment in range(thread, f[At.SEGMENTS], threads):
                adam(frame, segment, factors.ctypes.data)
        barrier(f[At.BARRIER], threads)  # all have read the sums, which are cleared now
        if thread == 0:
            _tell(frame, sums.ctypes.data, total, lost, halted)
        if thread == threads - 1:
            for net in range(f[At.NETS]):
                call(f[At.TURN], (frame, net, 0, 1))
        barrier(f[At.BARRIER], threads)
    if thread == 0:
        live[Live.STEP] = made
