"""What the outputs of an on-policy head say of actions, a tile at a time: their probabilities, and draws of them.

Outputs are [A, TILE], lanes are samples. The formulas are those of agents/networks/heads.py.
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.frame import ENTRIES, TILE, At
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, flags, floats, ints, longs
from stride.agents.networks.heads import LOG_STD_BOUNDS
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import exp32, log32

F = np.float32
LOG_STD_LOW, LOG_STD_HIGH = F(LOG_STD_BOUNDS[0]), F(LOG_STD_BOUNDS[1])
HALF_LOG_2PI = F(0.5 * math.log(2 * math.pi))


@njit(inline="always")
def gather_actions(frame: int, order: int, first: int, count: int, actions_at: int, allowed: int) -> None:
    """Actions and masks of order[first:] (0: as they lie) into lanes; the lanes that are left choose action 0."""
    f = longs(frame, ENTRIES)
    actions = f[At.ACTIONS]
    taken, numbers = ints(actions_at, TILE), floats(actions_at, actions * TILE)
    may = floats(allowed, actions * TILE)
    for s in range(TILE):
        row = np.int64(-1)
        if s < count:
            row = np.int64(ints(order + 4 * (first + s), 1)[0]) if order else np.int64(first + s)
        if f[At.GAUSSIAN]:
            for k in range(actions):
                numbers[k * TILE + s] = floats(f[At.ACTION] + 4 * row * actions, actions)[k] if row >= 0 else F(0.0)
        else:
            taken[s] = np.int32(longs(f[At.ACTION] + 8 * row, 1)[0]) if row >= 0 else np.int32(0)
        if f[At.MASKED]:
            for k in range(actions):
                free = row < 0 or flags(f[At.MASK] + row * actions, actions)[k]
                may[k * TILE + s] = F(1.0) if free else F(0.0)


@njit(**PIECE)
def log_softmax(outputs_at: int, odds_at: int, allowed_at: int, masked: int, actions: int, n: int) -> None:
    """Outputs [A, TILE] to log-probabilities, odds to probabilities; where nothing is allowed all are alike.

    log p = z - max z - log sum exp(z - max z): no exp overflows. An output that is not allowed is -1e9 before it, as in
    networks/heads.py. Actions are the outer loop, so that neighbouring samples share a vector.
    """
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
    """Within the bounds of the policy's deviation."""
    low = LOG_STD_LOW if log_std < LOG_STD_LOW else log_std
    return LOG_STD_HIGH if low > LOG_STD_HIGH else low


@njit(**PIECE)
def log_probs(frame: int, outputs: int, odds: int, actions_at: int, allowed: int, n: int, out: int) -> None:
    """out[s] = log pi(action[s]); actions as `gather_actions` lays them."""
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
                distance = (action - mean) * inverse  # not the noise: of the action as it was rounded, like log_probs
                result[s] += F(-0.5) * distance * distance - ls - HALF_LOG_2PI
        return
    p, uniform, chosen = floats(odds, actions * TILE), floats(draws, n), longs(actions_at, n)
    # without masks: they come in dicts, on which kernels do not act
    call(f[At.LOG_SOFTMAX], (outputs, odds, odds, 0, actions, n))
    taken, level, reached = np.zeros(TILE, np.int32), np.zeros(TILE, np.float32), np.zeros(TILE, np.float32)
    for k in range(actions):
        for s in range(n):
            level[s] += p[k * TILE + s]
    for s in range(n):  # u times their sum, which is 1 but for rounding
        level[s] *= uniform[s]
    for k in range(actions - 1):
        for s in range(n):
            reached[s] += p[k * TILE + s]
            taken[s] += np.int32(reached[s] <= level[s])
    of_action(z, taken, actions, n, level)
    for s in range(n):
        chosen[s], result[s] = np.int64(taken[s]), level[s]
