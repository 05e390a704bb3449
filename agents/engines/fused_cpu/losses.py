"""What the outputs of a head say of the actions taken, and the slope of the loss at those outputs, a tile at a time.

Outputs are [A, TILE], lanes are samples. The formulas are those of agents/networks/heads.py, agents/ppo.py and
agents/reinforce.py, whose autograd is the test of every slope here.
"""

import math

import numpy as np

from agents.engines.fused_cpu.calls import PIECE, call, doubles, floats, ints, longs
from agents.engines.fused_cpu.frame import ENTRIES, SETTINGS, TILE, At, Lane, Setting
from utils.kernel_cache import njit
from utils.simd_math import exp32, log32

F = np.float32
LOG_STD_LOW, LOG_STD_HIGH = F(-5.0), F(2.0)  # heads.LOG_STD_BOUNDS
HALF_LOG_2PI = F(0.5 * math.log(2 * math.pi))
HALF_LOG_2PIE = F(0.5 * math.log(2 * math.pi * math.e))


@njit(**PIECE)
def log_softmax(outputs_at: int, odds_at: int, allowed_at: int, masked: int, actions: int, n: int) -> None:
    """Outputs [A, TILE] to log-probabilities, odds to probabilities; where nothing is allowed all are alike."""
    outputs, odds = floats(outputs_at, actions * TILE), floats(odds_at, actions * TILE)
    allowed = floats(allowed_at, actions * TILE)
    most, total = np.empty(TILE, np.float32), np.empty(TILE, np.float32)
    for s in range(n):
        most[s], total[s] = F(-3e38), F(0.0)
    if masked:
        for s in range(n):
            total[s] = F(0.0)
        for k in range(actions):
            for s in range(n):
                total[s] += allowed[k * TILE + s]
        for k in range(actions):
            for s in range(n):
                if total[s] == F(0.0):
                    outputs[k * TILE + s] = F(0.0)
                elif allowed[k * TILE + s] == F(0.0):
                    outputs[k * TILE + s] = F(-1e9)
        for s in range(n):
            total[s] = F(0.0)
    for k in range(actions):
        for s in range(n):
            z = outputs[k * TILE + s]
            most[s] = z if z > most[s] else most[s]
    for k in range(actions):
        for s in range(n):
            e = exp32(outputs[k * TILE + s] - most[s])
            odds[k * TILE + s] = e
            total[s] += e
    for s in range(n):
        most[s] += log32(total[s])
        total[s] = F(1.0) / total[s]
    for k in range(actions):
        for s in range(n):
            outputs[k * TILE + s] -= most[s]
            odds[k * TILE + s] *= total[s]


@njit(inline="always")
def of_action(outputs: np.ndarray, action: np.ndarray, actions: int, n: int, out: np.ndarray) -> None:
    """out[s] = outputs[action[s], s], without a gather."""
    for s in range(n):
        out[s] = outputs[s]
    for k in range(1, actions):
        for s in range(n):
            out[s] = outputs[k * TILE + s] if action[s] == k else out[s]


@njit(inline="always")
def gaussian_log_prob(
    mean: np.ndarray, action: np.ndarray, log_std: np.ndarray, actions: int, n: int, out: np.ndarray
) -> None:
    """out[s] = log N(action[:, s]; mean[:, s], exp(log_std)); both [A * TILE]."""
    for s in range(n):
        out[s] = F(0.0)
    for k in range(actions):
        ls = clamped(log_std[k])
        inverse = exp32(-ls)
        for s in range(n):
            z = (action[k * TILE + s] - mean[k * TILE + s]) * inverse
            out[s] += F(-0.5) * z * z - ls - HALF_LOG_2PI


@njit(inline="always")
def clamped(log_std: np.float32) -> np.float32:
    low = LOG_STD_LOW if log_std < LOG_STD_LOW else log_std
    return LOG_STD_HIGH if low > LOG_STD_HIGH else low


@njit(**PIECE)
def log_probs(frame: int, outputs: int, odds: int, actions_at: int, allowed: int, n: int, out: int) -> None:
    """out[s] = log pi(action[s]); actions as `gather` in update.py lays them: int32, or float32 [A, TILE]."""
    f = longs(frame, ENTRIES)
    actions = f[At.ACTIONS]
    z, result = floats(outputs, actions * TILE), floats(out, TILE)
    if f[At.GAUSSIAN]:
        log_std = floats(f[At.PARAMETERS] + 4 * f[At.LOG_STD], actions)
        gaussian_log_prob(z, floats(actions_at, actions * TILE), log_std, actions, n, result)
    else:
        call(f[At.LOG_SOFTMAX], (outputs, odds, allowed, f[At.MASKED], actions, n))
        of_action(z, ints(actions_at, TILE), actions, n, result)


@njit(**PIECE)
def actor_loss(
    frame: int, outputs: int, odds: int, actions_at: int, allowed: int, n: int, columns: int, gradient: int, lanes: int
) -> None:
    """Outputs become the slope of the loss. `columns` [3, TILE]: old log-probability, weight of the action, share.

    The share of a sample is what it counts in the mean: 1 / rows, or 0 for filling. Sums go to `lanes`.
    """
    f = longs(frame, ENTRIES)
    actions, masked = f[At.ACTIONS], f[At.MASKED]
    settings = doubles(f[At.SETTINGS], SETTINGS)
    clip, bonus = F(settings[Setting.CLIP]), F(settings[Setting.ENTROPY])
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
    _surrogate(f[At.REINFORCE], now, old, weight, share, clip, n, slope, lanes)
    sums = floats(lanes + 4 * TILE * Lane.ENTROPY, TILE)
    for s in range(n):
        sums[s] += share[s] * entropy[s]
    if f[At.GAUSSIAN]:
        steps = floats(gradient + 4 * f[At.LOG_STD], actions)
        _gaussian_slopes(z, numbers, log_std, actions, n, slope, share, bonus, steps)
        return
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
    slope: np.ndarray, lanes: int,
) -> None:  # fmt: skip
    """slope[s] = d loss / d log pi: REINFORCE's, or that of PPO's clipped ratio."""
    losses, kls = floats(lanes + 4 * TILE * Lane.POLICY_LOSS, TILE), floats(lanes + 4 * TILE * Lane.KL, TILE)
    clips = floats(lanes + 4 * TILE * Lane.CLIPPED, TILE)
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
def critic_loss(frame: int, values: int, n: int, columns: int, lanes: int) -> None:
    """Values become the slope of their loss. `columns` [3, TILE]: old value, target, share."""
    f = longs(frame, ENTRIES)
    settings = doubles(f[At.SETTINGS], SETTINGS)
    clip, factor = F(settings[Setting.VALUE_CLIP]), F(2.0 * settings[Setting.VALUE])
    v, sums = floats(values, TILE), floats(lanes + 4 * TILE * Lane.VALUE_LOSS, TILE)
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


@njit(**PIECE)
def sample(frame: int, outputs: int, odds: int, draws: int, n: int, actions_at: int, log_prob: int) -> None:
    """Draw actions for the first n lanes; draws are uniforms [n], or normals [n, A]. Where to: as in the memory."""
    f = longs(frame, ENTRIES)
    actions = f[At.ACTIONS]
    z, result = floats(outputs, actions * TILE), floats(log_prob, n)
    if f[At.GAUSSIAN]:
        log_std = floats(f[At.PARAMETERS] + 4 * f[At.LOG_STD], actions)
        numbers, noise = floats(actions_at, n * actions), floats(draws, n * actions)
        for s in range(n):
            result[s] = F(0.0)
        for k in range(actions):
            ls = clamped(log_std[k])
            std, inverse = exp32(ls), exp32(-ls)
            for s in range(n):
                mean = z[k * TILE + s]
                action = mean + std * noise[s * actions + k]
                numbers[s * actions + k] = action
                distance = (action - mean) * inverse
                result[s] += F(-0.5) * distance * distance - ls - HALF_LOG_2PI
        return
    p, uniform, chosen = floats(odds, actions * TILE), floats(draws, n), longs(actions_at, n)
    call(f[At.LOG_SOFTMAX], (outputs, odds, odds, 0, actions, n))
    taken, level, reached = np.zeros(TILE, np.int32), np.zeros(TILE, np.float32), np.zeros(TILE, np.float32)
    for k in range(actions):
        for s in range(n):
            level[s] += p[k * TILE + s]
    for s in range(n):
        level[s] *= uniform[s]
    for k in range(actions - 1):
        for s in range(n):
            reached[s] += p[k * TILE + s]
            taken[s] += np.int32(reached[s] <= level[s])
    of_action(z, taken, actions, n, level)
    for s in range(n):
        chosen[s], result[s] = np.int64(taken[s]), level[s]
