"""The kernels that learn from a rollout: epochs of minibatches, each with a gradient, clipping and a step of Adam.

All threads run the same kernel together. A minibatch is cut into `parts`, whose gradients are added in a fixed order,
so that the result does not depend on the number of threads. How a part gets its gradient is the algorithm's own
kernel, `gradient_part`.
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.frame import fields_at, live_at, segment_of, stats_at
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, barrier, call, doubles, floats, ints
from stride.agents.engines.fused_cpu.kernels.optimizer import (
    adam,
    add_sums,
    clear_sums,
    norm_of,
    prepare,
    reduce_parts,
    square_up,
)
from stride.agents.engines.plan.numbers import SUMS, Sum
from stride.utils.kernel_cache import njit


@njit(**PIECE)
def _weighing(frame: int, order: int, begin: int, end: int, out: int) -> None:
    """Write how `weight` is normalized in this minibatch, float64 [3]: mean, 1 / deviation, 1 / rows that count.

    The minibatch is order[begin:end]. Each thread computes this itself, so that none waits for another. The first
    row's weight is subtracted before sums are made: sums of squares lose no digits where the mean is far from 0.
    """
    f = fields_at(frame)
    rows = f.steps * f.worlds
    weight, counted, index = floats(f.weight, rows), floats(f.counted, rows), ints(order, rows)
    result, stats = doubles(out, 3), stats_at(f.stats)
    base = np.float64(weight[index[begin]])
    count, total, squares = 0.0, 0.0, 0.0
    for i in range(begin, end):
        row = index[i]
        counts = np.float64(counted[row])
        w = (weight[row] - base) * counts
        count += counts
        total += w
        squares += w * w
    count = max(count, 1.0)
    result[0], result[1], result[2] = 0.0, 1.0, 1.0 / count
    if f.normalize == 1:
        mean = total / count
        result[0] = mean + base
        result[1] = 1.0 / (math.sqrt(max(squares / count - mean * mean, 0.0)) + 1e-8)
    elif f.normalize == 2:
        result[0], result[1] = stats.weight_mean, 1.0 / (stats.weight_std + 1e-8)


@njit(**PIECE)
def _report(frame: int, sums: int, total: float, lost: bool, halted: bool) -> None:
    """Add the statistics of this minibatch to `stats`, and clear `sums`.

    `total`: norm of the gradient. `lost`: a loss is not finite. `halted`: the KL divergence is above its limit.
    """
    f = fields_at(frame)
    stats, stat_sums, added = stats_at(f.stats), doubles(f.stats, SUMS), doubles(sums, SUMS)
    for k in range(SUMS):
        stat_sums[k] += added[k]  # the first fields of Stat are the entries of Sum
    clear_sums(f)
    if halted:
        stats.halted = 1.0
    stats.stopped += stats.halted
    squares, norms = doubles(f.squares, f.segments), np.zeros(3)
    for number in range(f.segments):
        norms[segment_of(f, number).part] += squares[number]
    stats.norm_actor += math.sqrt(norms[0])
    stats.norm_critic += math.sqrt(norms[1])
    stats.norm_trunk += math.sqrt(norms[2])
    stats.norm_total += total
    stats.updates += 1.0
    if lost:
        stats.lost += 1.0
    if lost or not math.isfinite(total):
        stats.broken += 1.0


@njit(**PIECE)
def learn(frame: int, thread: int) -> None:
    """Make the updates [f.begin, f.end) of a rollout; before update 0, judge the rollout."""
    f = fields_at(frame)
    if f.begin == 0:
        call(f.judge, (frame, thread))
    call(f.update, (frame, thread))


@njit(inline="always")
def _gradient(frame: int, thread: int, number: int, weighing: int) -> None:
    """Compute `gradient`, `squares` and `sums` of the minibatch of update `number`."""
    f = fields_at(frame)
    threads, parts, rows, size, together = f.threads, f.parts, f.steps * f.worlds, f.minibatch, f.together
    per_epoch = (rows + size - 1) // size
    order = f.order + 4 * (number // per_epoch) * rows
    low = (number % per_epoch) * size
    high = min(low + size, rows)
    for part in range(thread, parts, threads):
        # a part begins at a full tile, so that only the last tile of a minibatch may be incomplete; or it has complete
        # sequences
        pieces = (high - low + together - 1) // together
        begin, end = low + part * pieces // parts * together, low + (part + 1) * pieces // parts * together
        end = min(end, high)
        call(f.gradient_part, (frame, thread, part, order, begin, end, weighing))
    barrier(f.barrier, threads)
    for segment in range(thread, f.segments, threads):
        reduce_parts(frame, segment)
    barrier(f.barrier, threads)


@njit(**PIECE)
def shard_gradient(frame: int, thread: int) -> None:
    """Do the first half of a shard's update number f.begin: its own `gradient`, and its sums in `totals`."""
    f = fields_at(frame)
    barrier(f.barrier, f.threads)
    _gradient(frame, thread, f.begin, f.weighings + 24 * f.begin)
    if thread == 0:
        add_sums(frame, f.totals)


@njit(**PIECE)
def shard_step(frame: int, thread: int) -> None:
    """Do the second half of an update, the step, after `gradient` and `totals` became the means over all shards."""
    f = fields_at(frame)
    threads, live = f.threads, live_at(f.live)
    barrier(f.barrier, threads)
    for segment in range(thread, f.segments, threads):
        square_up(frame, segment)
    updates_made = live.step
    barrier(f.barrier, threads)
    updates_made, _ = _step(frame, thread, f.totals, updates_made)
    if thread == 0:
        live.step = updates_made


@njit(inline="always")
def _step(frame: int, thread: int, totals: int, updates_made: float) -> tuple[float, bool]:
    """Make a step of the optimizer with `gradient`, and write statistics.

    No step is made where a loss or the gradient is not finite, or where the KL divergence is above kl_limit. Returns
    how many steps the optimizer has made in total, and whether kl_limit was exceeded.
    """
    f = fields_at(frame)
    threads, live, sums, factors = f.threads, live_at(f.live), doubles(totals, SUMS), np.empty(5)
    total = norm_of(doubles(f.squares, f.segments))
    halted = sums[Sum.KL] > live.kl_limit
    lost = not math.isfinite(sums[Sum.POLICY_LOSS] + sums[Sum.VALUE_LOSS] + sums[Sum.ENTROPY])
    if math.isfinite(total) and not lost and not halted:
        updates_made += 1.0
        prepare(factors, live, total, updates_made, f.decoupled, f.rectified)
        for segment in range(thread, f.segments, threads):
            adam(frame, segment, factors.ctypes.data)
    barrier(f.barrier, threads)  # all threads have read the sums, which `_report` clears
    if thread == 0:
        _report(frame, totals, total, lost, halted)
    if thread == threads - 1:
        for net in range(f.nets):
            call(f.turn, (frame, net, 0, 1))
    barrier(f.barrier, threads)
    return updates_made, halted


@njit(**PIECE)
def update(frame: int, thread: int) -> None:
    """Make the updates [f.begin, f.end) of this rollout, counted over all epochs; none after kl_limit was exceeded.

    Changes parameters, both moments and turned, and adds to stats.
    """
    f = fields_at(frame)
    threads, rows, size = f.threads, f.steps * f.worlds, f.minibatch
    live, stats = live_at(f.live), stats_at(f.stats)
    per_epoch = (rows + size - 1) // size
    weighing, sums = np.empty(3), np.empty(SUMS)
    barrier(f.barrier, threads)  # `judge`, where it ran before, has written what is read now
    updates_made, halted = live.step, stats.halted > 0
    for number in range(f.begin, f.end):
        if halted:
            break
        order = f.order + 4 * (number // per_epoch) * rows
        low = (number % per_epoch) * size
        high = min(low + size, rows)
        _weighing(frame, order, low, high, weighing.ctypes.data)
        _gradient(frame, thread, number, weighing.ctypes.data)
        add_sums(frame, sums.ctypes.data)
        updates_made, halted = _step(frame, thread, sums.ctypes.data, updates_made)
    if thread == 0:
        live.step = updates_made
