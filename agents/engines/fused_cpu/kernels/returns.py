"""What each action was worth: values of every observation, then advantages or returns, then their moments.

The formulas are those of agents/returns.py.
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.frame import ENTRIES, LIVES, MOMENTS, STATS, TILE, At, Kernels
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, barrier, call, doubles, flags, floats, longs
from stride.agents.engines.fused_cpu.kernels.heads import gather_actions
from stride.agents.engines.fused_cpu.kernels.scratch import scratch_of
from stride.agents.engines.plan.layout import LANES
from stride.agents.engines.plan.numbers import Live, Moment, Stat
from stride.utils.kernel_cache import njit

F = np.float32


@njit(**PIECE)
def judge(frame: int, thread: int) -> None:
    """All that updates need of a rollout beside its rows; writes VALUE, FINAL_VALUE, LOG_PROB where the rollout left
    none, WEIGHT, TARGET, COUNTED, ORDER and what STATS tell of them. Threads share out tiles, then worlds, then parts:
    what one has written another reads, hence the barriers."""
    f = longs(frame, ENTRIES)
    threads, steps, worlds, slots = f[At.THREADS], f[At.STEPS], f[At.WORLDS], f[At.SLOTS]
    rows = steps * worlds
    begin, end = thread * worlds // threads, (thread + 1) * worlds // threads
    if not f[At.HAS_LOG_PROB]:
        call(f[At.ALL_LOG_PROBS], (frame, thread, rows))
    if f[At.VALUE_NET] >= 0:
        call(f[At.VALUES], (frame, thread, f[At.OBS], rows, f[At.VALUE]))
        call(f[At.VALUES], (frame, thread, f[At.NEXT_OBS], worlds, f[At.VALUE] + 4 * rows))
        call(f[At.VALUES], (frame, thread, f[At.FINAL_OBS], slots * worlds, f[At.FINAL_VALUE]))
    barrier(f[At.BARRIER], threads)
    call(f[At.WEIGH], (frame, begin, end))
    barrier(f[At.BARRIER], threads)
    for part in range(thread, f[At.PARTS], threads):
        call(f[At.MOMENT_SUMS], (frame, part, rows))
    key = longs(f[At.KEY], 5)
    call(f[At.SHUFFLE], (frame, thread, key[0], key[1], key[2], key[3], key[4]))
    barrier(f[At.BARRIER], threads)
    if thread == 0:
        _tell(frame)


@njit(**PIECE)
def values(frame: int, thread: int, base: int, rows: int, out: int) -> None:
    """V of `rows` observations at `base` to out [rows]; tiles are shared out over the threads."""
    f = longs(frame, ENTRIES)
    mine = scratch_of(frame, thread)
    x, hidden, outputs = mine.x, mine.hidden, mine.outputs
    found = floats(out, rows)
    for start in range(thread * TILE, rows, f[At.THREADS] * TILE):
        count = min(TILE, rows - start)
        call(f[At.ENCODE], (frame, base, 0, start, count, x))
        call(f[At.FORWARD], (frame, f[At.VALUE_NET], x, hidden, (count + LANES - 1) // LANES * LANES, outputs))
        row = floats(outputs + 4 * TILE * f[At.VALUE_ROW], count)
        for s in range(count):
            found[start + s] = row[s]


@njit(**PIECE)
def all_log_probs(frame: int, thread: int, rows: int) -> None:
    """Writes LOG_PROB of the actions in the table; tiles are shared out over the threads."""
    f = longs(frame, ENTRIES)
    mine = scratch_of(frame, thread)
    x, hidden, outputs = mine.x, mine.hidden, mine.outputs
    actions, allowed, now = mine.taken, mine.allowed, mine.actor
    kept = floats(f[At.LOG_PROB], rows)
    for start in range(thread * TILE, rows, f[At.THREADS] * TILE):
        count = min(TILE, rows - start)
        padded = (count + LANES - 1) // LANES * LANES
        call(f[At.ENCODE], (frame, f[At.OBS], 0, start, count, x))
        gather_actions(frame, 0, start, count, actions, allowed)
        call(f[At.FORWARD], (frame, 0, x, hidden, padded, outputs))
        call(f[At.LOG_PROBS], (frame, outputs, mine.odds, actions, allowed, padded, now))
        row = floats(now, count)
        for s in range(count):
            kept[start + s] = row[s]


@njit(**PIECE)
def advantages(frame: int, first: int, last: int) -> None:
    """Generalised advantages of the worlds [first, last), from the last step back (Schulman et al. 2016).

    A_t = r_t + gamma V(s_t+1) - V(s_t) + gamma lambda A_t+1: after an end without V, after a cut with V of the final
    observation, after both without A_t+1. TARGET = A_t + V(s_t).
    Reads REWARD, VALUE, FINAL_VALUE, SLOT and flags; writes WEIGHT, TARGET.
    """
    f = longs(frame, ENTRIES)
    steps, worlds, n = f[At.STEPS], f[At.WORLDS], last - first
    live = doubles(f[At.LIVE], LIVES)
    gamma, keep = F(live[Live.GAMMA]), F(live[Live.GAMMA] * live[Live.LAMBDA])
    ahead, following = np.zeros(n, np.float32), np.empty(n, np.float32)
    finals = floats(f[At.FINAL_VALUE], f[At.SLOTS] * worlds)
    for t in range(steps - 1, -1, -1):
        at = t * worlds + first
        reward, value = floats(f[At.REWARD] + 4 * at, n), floats(f[At.VALUE] + 4 * at, n)
        later = floats(f[At.VALUE] + 4 * (at + worlds), n)
        advantage, target = floats(f[At.WEIGHT] + 4 * at, n), floats(f[At.TARGET] + 4 * at, n)
        lost, cut = flags(f[At.TERMINATED] + at, n), flags(f[At.TRUNCATED] + at, n)
        slot = longs(f[At.SLOT] + 8 * at, n)
        cuts = 0
        for i in range(n):
            following[i] = later[i]
            cuts += int(cut[i])
        if cuts:
            for i in range(n):
                if cut[i]:
                    following[i] = finals[slot[i] * worlds + first + i]
        for i in range(n):
            alive, flows = F(1 - np.int32(lost[i])), F(1 - np.int32(lost[i] | cut[i]))
            a = reward[i] - value[i] + gamma * alive * following[i] + keep * flows * ahead[i]
            ahead[i] = a
            advantage[i] = a
            target[i] = a + value[i]


@njit(**PIECE)
def monte_carlo(frame: int, first: int, last: int) -> None:
    """Monte Carlo returns of the worlds [first, last); without a critic only whole episodes count.

    TARGET = G_t = r_t + gamma G_t+1, beginning with 0 after an end, with V of what follows after a cut and after the
    last row, 0 there without a critic. WEIGHT is G_t, under WHOLE_EPISODE that of its episode's first row here, less
    V(s_t) where there is a critic.
    Reads REWARD, VALUE, FINAL_VALUE, SLOT and flags; writes WEIGHT, TARGET, COUNTED.
    """
    f = longs(frame, ENTRIES)
    steps, worlds, critic = f[At.STEPS], f[At.WORLDS], f[At.VALUE_NET] >= 0
    rows = steps * worlds
    gamma = F(doubles(f[At.LIVE], LIVES)[Live.GAMMA])
    reward, value, weight = floats(f[At.REWARD], rows), floats(f[At.VALUE], rows + worlds), floats(f[At.WEIGHT], rows)
    target, counted = floats(f[At.TARGET], rows), floats(f[At.COUNTED], rows)
    lost, cut, fresh = flags(f[At.TERMINATED], rows), flags(f[At.TRUNCATED], rows), flags(f[At.IS_FIRST], rows)
    finals, slot = floats(f[At.FINAL_VALUE], f[At.SLOTS] * worlds), longs(f[At.SLOT], rows)
    for i in range(first, last):
        ahead = value[rows + i] if critic else F(0.0)
        known = critic
        for t in range(steps - 1, -1, -1):
            r = t * worlds + i
            known = known or lost[r] or cut[r]
            if cut[r]:
                ahead = finals[slot[r] * worlds + i] if critic else F(0.0)
            elif lost[r]:
                ahead = F(0.0)
            ahead = reward[r] + gamma * ahead
            target[r] = ahead
            counted[r] = F(1.0) if known else F(0.0)
        whole = target[i]
        for t in range(steps):
            r = t * worlds + i
            whole = target[r] if fresh[r] or not f[At.WHOLE_EPISODE] else whole
            weight[r] = whole - value[r] if critic else whole


@njit(**PIECE)
def moment_sums(frame: int, part: int, rows: int) -> None:
    """MOMENTS of this part's rows, less the first row's numbers: what is left is small and loses nothing."""
    f = longs(frame, ENTRIES)
    first, last = part * rows // f[At.PARTS], (part + 1) * rows // f[At.PARTS]
    weight, target, value = floats(f[At.WEIGHT], rows), floats(f[At.TARGET], rows), floats(f[At.VALUE], rows)
    counted = floats(f[At.COUNTED], rows)
    sums = doubles(f[At.MOMENTS] + 8 * part * MOMENTS, MOMENTS)
    sums[:] = 0.0
    base, aim = np.float64(weight[0]), np.float64(target[0])
    for r in range(first, last):
        share = np.float64(counted[r])
        w, g = (weight[r] - base) * share, np.float64(target[r]) - aim
        e = np.float64(target[r] - value[r])
        sums[Moment.COUNT] += share
        sums[Moment.WEIGHT] += w
        sums[Moment.WEIGHT_2] += w * w
        sums[Moment.TARGET] += g
        sums[Moment.TARGET_2] += g * g
        sums[Moment.ERROR] += e
        sums[Moment.ERROR_2] += e * e
        sums[Moment.RETURN] += share * np.float64(target[r])


@njit(**PIECE)
def _tell(frame: int) -> None:
    """From MOMENTS to STATS: the weights' mean and deviation, how much of the targets' variance the critic explains."""
    f = longs(frame, ENTRIES)
    rows = f[At.STEPS] * f[At.WORLDS]
    total = np.zeros(MOMENTS)
    for part in range(f[At.PARTS]):
        total += doubles(f[At.MOMENTS] + 8 * part * MOMENTS, MOMENTS)
    stats = doubles(f[At.STATS], STATS)
    count = max(total[Moment.COUNT], 1.0)
    mean = total[Moment.WEIGHT] / count
    spread = total[Moment.TARGET_2] - total[Moment.TARGET] ** 2 / rows
    left = total[Moment.ERROR_2] - total[Moment.ERROR] ** 2 / rows
    base = np.float64(floats(f[At.WEIGHT], 1)[0])
    # without one row that counts the offset is not part of any sum
    stats[Stat.WEIGHT_MEAN] = mean + base if total[Moment.COUNT] > 0 else 0.0
    stats[Stat.WEIGHT_STD] = math.sqrt(max(total[Moment.WEIGHT_2] / count - mean * mean, 0.0))
    stats[Stat.RETURN_MEAN] = total[Moment.RETURN] / count
    stats[Stat.EXPLAINED] = 1.0 - left / spread if spread > 0 else math.nan


OWN: dict[str, Kernels] = {"ppo": {At.WEIGH: advantages}, "reinforce": {At.WEIGH: monte_carlo}}
