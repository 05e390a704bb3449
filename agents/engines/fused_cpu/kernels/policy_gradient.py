"""PPO's and REINFORCE's samples, a tile at a time: losses and their slopes at the outputs, and back through the nets.

The formulas are those of agents/ppo.py and agents/reinforce.py, whose autograd is the test of every slope here.
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.frame import ENTRIES, LIVES, SUMS, TILE, At
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, doubles, floats, ints, longs
from stride.agents.engines.fused_cpu.kernels.heads import clamped, gather_actions, gaussian_log_prob, of_action
from stride.agents.engines.fused_cpu.kernels.scratch import scratch_of
from stride.agents.engines.plan.layout import LANES
from stride.agents.engines.plan.numbers import Live, Sum
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import exp32

F = np.float32
HALF_LOG_2PIE = F(0.5 * math.log(2 * math.pi * math.e))


@njit(**PIECE)
def gradient_part(frame: int, thread: int, part: int, order: int, begin: int, end: int, weighing: int) -> None:
    """Add the gradient of the samples order[begin:end] to this part's PARTIAL, what is told of them to its SUMS.

    Reads OBS, ACTION, MASK and LOG_PROB, WEIGHT, COUNTED, VALUE, TARGET of these rows. `weighing` float64 [3]: mean,
    1 / deviation, 1 / rows.
    """
    f = longs(frame, ENTRIES)
    nets, rows = f[At.NETS], f[At.STEPS] * f[At.WORLDS]
    mine = scratch_of(frame, thread)
    x, hidden, outputs = mine.x, mine.hidden, mine.outputs
    odds, taken, allowed, actor, critic = mine.odds, mine.taken, mine.allowed, mine.actor, mine.critic
    gradient = f[At.PARTIAL] + 4 * part * f[At.SIZE]
    sums = f[At.SUMS] + 4 * part * SUMS * TILE
    numbers = doubles(weighing, 3)
    mean, inverse, share = F(numbers[0]), F(numbers[1]), F(numbers[2])
    index = ints(order, rows)
    log_prob, weight, counted = floats(f[At.LOG_PROB], rows), floats(f[At.WEIGHT], rows), floats(f[At.COUNTED], rows)
    value, target = floats(f[At.VALUE], rows), floats(f[At.TARGET], rows)
    of_actor, of_critic = floats(actor, 3 * TILE), floats(critic, 3 * TILE)
    each = F(1.0) / F(f[At.MINIBATCH])
    for start in range(begin, end, TILE):
        count = min(TILE, end - start)
        padded = (count + LANES - 1) // LANES * LANES
        call(f[At.ENCODE], (frame, f[At.OBS], order, start, count, x))
        gather_actions(frame, order, start, count, taken, allowed)
        for s in range(3 * TILE):  # filling has share 0, so it adds nothing to sums and gradients
            of_actor[s], of_critic[s] = F(0.0), F(0.0)
        for s in range(count):
            row = index[start + s]
            of_actor[s], of_actor[TILE + s] = log_prob[row], (weight[row] - mean) * inverse
            of_actor[2 * TILE + s] = share * counted[row]
            of_critic[s], of_critic[TILE + s], of_critic[2 * TILE + s] = value[row], target[row], each
        for net in range(nets):
            call(f[At.FORWARD], (frame, net, x, hidden, padded, outputs))
            if net == 0:
                call(f[At.ACTOR_LOSS], (frame, outputs, odds, taken, allowed, padded, actor, gradient, sums))
            if net == f[At.VALUE_NET]:
                call(f[At.CRITIC_LOSS], (frame, outputs + 4 * TILE * f[At.VALUE_ROW], padded, critic, sums))
            call(f[At.BACKWARD], (frame, net, x, hidden, padded, outputs, gradient, mine.one, mine.above, mine.below))


@njit(**PIECE)
def actor_loss(
    frame: int, outputs: int, odds: int, actions_at: int, allowed: int, n: int, columns: int, gradient: int,
    sums_at: int,
) -> None:  # fmt: skip
    """Outputs become the slope of the loss. `columns` [3, TILE]: old log-probability, weight of the action, share.

    The share of a sample is what it counts in the mean: 1 / rows, or 0 for filling. Sums are added at
    `sums_at` [len(Sum), TILE], the slope of log_std to `gradient`.
    """
    f = longs(frame, ENTRIES)
    actions, masked = f[At.ACTIONS], f[At.MASKED]
    live = doubles(f[At.LIVE], LIVES)
    clip, bonus = F(live[Live.CLIP]), F(live[Live.ENTROPY])
    z, p = floats(outputs, actions * TILE), floats(odds, actions * TILE)
    taken, numbers = ints(actions_at, TILE), floats(actions_at, actions * TILE)
    may = floats(allowed, actions * TILE)
    log_std = floats(f[At.PARAMETERS] + 4 * f[At.LOG_STD], actions)
    old, weight, share = floats(columns, TILE), floats(columns + 4 * TILE, TILE), floats(columns + 8 * TILE, TILE)
    now, entropy, slope = np.empty(TILE, np.float32), np.empty(TILE, np.float32), np.empty(TILE, np.float32)
    if f[At.GAUSSIAN]:
        gaussian_log_prob(z, numbers, log_std, actions, n, now)
        total = F(0.0)
        for k in range(actions):
            total += clamped(log_std[k]) + HALF_LOG_2PIE
        for s in range(n):
            entropy[s] = total
    else:
        call(f[At.LOG_SOFTMAX], (outputs, odds, allowed, masked, actions, n))
        of_action(z, taken, actions, n, now)
        for s in range(n):
            entropy[s] = F(0.0)
        for k in range(actions):
            for s in range(n):
                entropy[s] -= p[k * TILE + s] * z[k * TILE + s]
    _surrogate(f[At.REINFORCE], now, old, weight, share, clip, n, slope, sums_at)
    sums = floats(sums_at + 4 * TILE * Sum.ENTROPY, TILE)
    for s in range(n):
        sums[s] += share[s] * entropy[s]
    if f[At.GAUSSIAN]:
        steps = floats(gradient + 4 * f[At.LOG_STD], actions)
        _gaussian_slopes(z, numbers, log_std, actions, n, slope, share, bonus, steps)
        return
    # z is log pi: d log pi(a) / d z_k = 1{k = a} - p_k, d entropy / d z_k = -p_k (log p_k + entropy)
    for k in range(actions):
        for s in range(n):
            chosen = F(1.0) if taken[s] == k else F(0.0)
            i = k * TILE + s
            z[i] = slope[s] * (chosen - p[i]) + share[s] * bonus * p[i] * (z[i] + entropy[s])
    if masked:
        for i in range(actions * TILE):
            z[i] *= may[i]


@njit(inline="always")
def _surrogate(
    plain: int, now: np.ndarray, old: np.ndarray, weight: np.ndarray, share: np.ndarray, clip: np.float32, n: int,
    slope: np.ndarray, sums_at: int,
) -> None:  # fmt: skip
    """slope[s] = d loss / d log pi: REINFORCE's, or that of PPO's clipped ratio.

    -share A, and of -share min(r A, clip(r) A) with r = pi / pi_old: -share r A where r A is the lesser, else 0.
    """
    losses, kls = floats(sums_at + 4 * TILE * Sum.POLICY_LOSS, TILE), floats(sums_at + 4 * TILE * Sum.KL, TILE)
    clips = floats(sums_at + 4 * TILE * Sum.CLIPPED, TILE)
    if plain:
        for s in range(n):
            slope[s] = -share[s] * weight[s]
            losses[s] += slope[s] * now[s]
        return
    low, high = F(1.0) - clip, F(1.0) + clip
    for s in range(n):
        log_ratio = now[s] - old[s]
        ratio = exp32(log_ratio)
        kept = low if ratio < low else ratio
        kept = high if kept > high else kept
        free, held = ratio * weight[s], kept * weight[s]
        active = free <= held
        losses[s] -= share[s] * (free if active else held)
        # no comparison with a NaN holds, and it must reach the gradient, where it is noticed
        slope[s] = -share[s] * free if (active or free != free) else F(0.0)
        kls[s] += share[s] * (ratio - F(1.0) - log_ratio)
        clips[s] += share[s] if abs(ratio - F(1.0)) > clip else F(0.0)


@njit(inline="always")
def _gaussian_slopes(
    z: np.ndarray, action: np.ndarray, log_std: np.ndarray, actions: int, n: int, slope: np.ndarray, share: np.ndarray,
    bonus: np.float32, steps: np.ndarray,
) -> None:  # fmt: skip
    for k in range(actions):
        ls = clamped(log_std[k])
        inverse = exp32(-ls)
        inside = F(1.0) if ls == log_std[k] else F(0.0)
        total = F(0.0)
        for s in range(n):
            i = k * TILE + s
            distance = (action[i] - z[i]) * inverse
            total += slope[s] * (distance * distance - F(1.0)) - share[s] * bonus
            z[i] = slope[s] * distance * inverse
        steps[k] += inside * total


@njit(**PIECE)
def critic_loss(frame: int, values: int, n: int, columns: int, sums_at: int) -> None:
    """Values become the slope of their loss. `columns` [3, TILE]: old value, target, share."""
    f = longs(frame, ENTRIES)
    live = doubles(f[At.LIVE], LIVES)
    clip, factor = F(live[Live.VALUE_CLIP]), F(2.0 * live[Live.VALUE])
    v, sums = floats(values, TILE), floats(sums_at + 4 * TILE * Sum.VALUE_LOSS, TILE)
    old, target, share = floats(columns, TILE), floats(columns + 4 * TILE, TILE), floats(columns + 8 * TILE, TILE)
    for s in range(n):
        error, moved = v[s] - target[s], v[s] - old[s]
        held = -clip if moved < -clip else moved
        held = clip if held > clip else held
        other = old[s] + held - target[s]
        # rounding alone can make the clipped copy the larger one where nothing was clipped
        free = (held == moved) | (error * error >= other * other) | (error != error)
        sums[s] += share[s] * (error * error if free else other * other)
        v[s] = factor * share[s] * error if free else F(0.0)
