"""The kernels that judge a rollout before the first update: values, advantages or returns, their mean and deviation.

Formulas: agents/returns.py. minibatches.py calls `judge`.
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.frame import (
    MOMENT_BYTES,
    TILE,
    FrameFields,
    fields_at,
    live_at,
    moments_at,
    scratch_of,
    stats_at,
)
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, barrier, call, doubles, flags, floats, longs
from stride.agents.engines.fused_cpu.kernels.heads import gather_actions
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit

F = np.float32


@njit(**PIECE)
def judge(frame: int, thread: int) -> None:
    """Compute everything that updates need besides the rows of a rollout.

    Writes value, final_value, log_prob (where the rollout wrote none), weight, target, counted, order and statistics.
    Threads divide tiles, then worlds, then parts. Each of these steps reads what other threads wrote in the one before,
    so there is a barrier between them.
    """
    f = fields_at(frame)
    steps, worlds, slots = f.steps, f.worlds, f.slots
    rows = steps * worlds
    if not f.has_log_prob:
        call(f.all_log_probs, (frame, thread, rows))
    if f.value_net >= 0:
        call(f.values, (frame, thread, f.obs, rows, f.value))
        call(f.values, (frame, thread, f.next_obs, worlds, f.value + 4 * rows))
        call(f.values, (frame, thread, f.final_obs, slots * worlds, f.final_value))
    weigh_and_order(f, frame, thread)


@njit(inline="always")
def weigh_and_order(f: FrameFields, frame: int, thread: int) -> None:
    """Do the rest of `judge`, after this thread has written its values: weights, targets, orders, statistics."""
    threads, worlds, rows = f.threads, f.worlds, f.steps * f.worlds
    begin, end = thread * worlds // threads, (thread + 1) * worlds // threads
    barrier(f.barrier, threads)
    call(f.weigh, (frame, begin, end))
    barrier(f.barrier, threads)
    for part in range(thread, f.parts, threads):
        call(f.moment_sums, (frame, part, rows))
    call(f.shuffle, (frame, thread))
    barrier(f.barrier, threads)
    if thread == 0:
        _report(f)


@njit(**PIECE)
def values(frame: int, thread: int, obs: int, rows: int, out: int) -> None:
    """Write the values V of `rows` observations at `obs` to out [rows]; tiles are divided among the threads."""
    f = fields_at(frame)
    scratch, result, units = scratch_of(f, thread), floats(out, rows), floats(f.units, 2)
    for start in range(thread * TILE, rows, f.threads * TILE):
        count = min(TILE, rows - start)
        padded = (count + LANES - 1) // LANES * LANES
        call(f.encode, (frame, obs, 0, start, count, scratch.x))
        call(f.forward, (frame, f.value_net, scratch.x, scratch.hidden, padded, scratch.outputs))
        row = floats(scratch.outputs + 4 * TILE * f.value_row, count)
        for s in range(count):
            result[start + s] = row[s] * units[1] + units[0]


@njit(**PIECE)
def all_log_probs(frame: int, thread: int, rows: int) -> None:
    """Write log_prob of all actions in the memory's table; tiles are divided among the threads."""
    f = fields_at(frame)
    scratch, result = scratch_of(f, thread), floats(f.log_prob, rows)
    for start in range(thread * TILE, rows, f.threads * TILE):
        count = min(TILE, rows - start)
        padded = (count + LANES - 1) // LANES * LANES
        call(f.encode, (frame, f.obs, 0, start, count, scratch.x))
        gather_actions(f, scratch, 0, start, count)
        call(f.forward, (frame, 0, scratch.x, scratch.hidden, padded, scratch.outputs))
        call(f.log_probs, (frame, thread, padded, scratch.actor))
        row = floats(scratch.actor, count)
        for s in range(count):
            result[start + s] = row[s]


@njit(**PIECE)
def advantages(frame: int, first: int, last: int) -> None:
    """Compute generalised advantages (Schulman et al. 2016) of the worlds [first, last), from the last step back.

    A_t = r_t + gamma V(s_t+1) - V(s_t) + gamma lambda A_t+1, and target = A_t + V(s_t). Where the episode terminated,
    V(s_t+1) is 0; where it was truncated, it is V of the final observation; after both A_t+1 is 0.
    Reads reward, value, final_value, slot, terminated, truncated; writes weight (the advantages) and target.
    """
    f = fields_at(frame)
    steps, worlds, n = f.steps, f.worlds, last - first
    live = live_at(f.live)
    gamma, decay = F(live.gamma), F(live.gamma * live.gae_lambda)
    later_advantage, next_value = np.zeros(n, np.float32), np.empty(n, np.float32)
    finals = floats(f.final_value, f.slots * worlds)
    for t in range(steps - 1, -1, -1):
        row = t * worlds + first
        reward, value = floats(f.reward + 4 * row, n), floats(f.value + 4 * row, n)
        later_value = floats(f.value + 4 * (row + worlds), n)
        advantage, target = floats(f.weight + 4 * row, n), floats(f.target + 4 * row, n)
        terminated, truncated = flags(f.terminated + row, n), flags(f.truncated + row, n)
        slot = longs(f.slot + 8 * row, n)
        cuts = 0
        for i in range(n):
            next_value[i] = later_value[i]
            cuts += int(truncated[i])
        if cuts:
            for i in range(n):
                if truncated[i]:
                    next_value[i] = finals[slot[i] * worlds + first + i]
        for i in range(n):
            alive, flows = F(1 - np.int32(terminated[i])), F(1 - np.int32(terminated[i] | truncated[i]))
            a = reward[i] - value[i] + gamma * alive * next_value[i] + decay * flows * later_advantage[i]
            later_advantage[i] = a
            advantage[i] = a
            target[i] = a + value[i]


@njit(**PIECE)
def monte_carlo(frame: int, first: int, last: int) -> None:
    """Compute Monte Carlo returns of the worlds [first, last); without a critic only complete episodes count.

    target = G_t = r_t + gamma G_t+1. G_t+1 is 0 where the episode terminated. Where it was truncated, and after the
    last row, it is V of the observation that follows, or 0 without a critic. weight is G_t, or with whole_episode the
    return of the first row of its episode in this rollout; with a critic V(s_t) is subtracted. counted is 0 for rows
    whose episode does not end in this rollout, unless there is a critic.
    Reads reward, value, final_value, slot, terminated, truncated, is_first; writes weight, target, counted.
    """
    f = fields_at(frame)
    steps, worlds, critic = f.steps, f.worlds, f.value_net >= 0
    rows = steps * worlds
    gamma = F(live_at(f.live).gamma)
    reward, value, weight = floats(f.reward, rows), floats(f.value, rows + worlds), floats(f.weight, rows)
    target, counted = floats(f.target, rows), floats(f.counted, rows)
    terminated, truncated, is_first = flags(f.terminated, rows), flags(f.truncated, rows), flags(f.is_first, rows)
    finals, slot = floats(f.final_value, f.slots * worlds), longs(f.slot, rows)
    for i in range(first, last):
        later_return = value[rows + i] if critic else F(0.0)
        complete = critic
        for t in range(steps - 1, -1, -1):
            r = t * worlds + i
            complete = complete or terminated[r] or truncated[r]
            if truncated[r]:
                later_return = finals[slot[r] * worlds + i] if critic else F(0.0)
            elif terminated[r]:
                later_return = F(0.0)
            later_return = reward[r] + gamma * later_return
            target[r] = later_return
            counted[r] = F(1.0) if complete else F(0.0)
        used_return = target[i]
        for t in range(steps):
            r = t * worlds + i
            used_return = target[r] if is_first[r] or not f.whole_episode else used_return
            weight[r] = used_return - value[r] if critic else used_return


@njit(**PIECE)
def moment_sums(frame: int, part: int, rows: int) -> None:
    """Write sums and sums of squares over this part's rows to `moments`, in float64.

    The first row's weight and target are subtracted from all rows: sums of squares of small numbers lose no digits.
    """
    f = fields_at(frame)
    first, last = part * rows // f.parts, (part + 1) * rows // f.parts
    weight, target, value = floats(f.weight, rows), floats(f.target, rows), floats(f.value, rows)
    counted = floats(f.counted, rows)
    address = f.moments + MOMENT_BYTES * part
    doubles(address, MOMENT_BYTES // 8)[:] = 0.0
    sums = moments_at(address)
    first_weight, first_target = np.float64(weight[0]), np.float64(target[0])
    for r in range(first, last):
        counts = np.float64(counted[r])
        w, g = (weight[r] - first_weight) * counts, np.float64(target[r]) - first_target
        e = np.float64(target[r] - value[r])
        sums.count += counts
        sums.weight += w
        sums.weight_2 += w * w
        sums.target += g
        sums.target_2 += g * g
        sums.error += e
        sums.error_2 += e * e
        sums.total_return += counts * np.float64(target[r])


@njit(inline="always")
def _report(f: FrameFields) -> None:
    """Write statistics from `moments`: mean and deviation of the weights, mean return, explained variance.

    The explained variance is 1 - variance(target - value) / variance(target); NaN where targets do not vary.
    """
    rows, size = f.steps * f.worlds, MOMENT_BYTES // 8
    totals = doubles(f.moments, size)
    for part in range(1, f.parts):
        totals += doubles(f.moments + MOMENT_BYTES * part, size)
    total, stats = moments_at(f.moments), stats_at(f.stats)
    count = max(total.count, 1.0)
    mean = total.weight / count
    spread = total.target_2 - total.target**2 / rows
    unexplained = total.error_2 - total.error**2 / rows
    first_weight = np.float64(floats(f.weight, 1)[0])
    # where no row counts, the first row's weight was not subtracted from anything
    stats.weight_mean = mean + first_weight if total.count > 0 else 0.0
    stats.weight_std = math.sqrt(max(total.weight_2 / count - mean * mean, 0.0))
    stats.return_mean = total.total_return / count
    stats.explained = 1.0 - unexplained / spread if spread > 0 else math.nan
