"""The actor's head of on-policy algorithms, a tile at a time: probabilities, sampled actions, log-probabilities.

Outputs are [A, TILE]: the samples of one output are next to one another. Formulas: agents/networks/heads.py.
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, FrameFields, Scratch, fields_at, scratch_of
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, flags, floats, ints, longs
from stride.agents.networks.heads import LOG_STD_BOUNDS
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import exp32, log32

F = np.float32
LOG_STD_LOW, LOG_STD_HIGH = F(LOG_STD_BOUNDS[0]), F(LOG_STD_BOUNDS[1])
HALF_LOG_2PI = F(0.5 * math.log(2 * math.pi))


@njit(inline="always")
def gather_actions(f: FrameFields, scratch: Scratch, order: int, first: int, count: int) -> None:
    """Copy actions and masks of the rows order[first : first + count] to scratch.taken and scratch.allowed.

    Where `order` is 0 they are the rows [first, first + count). Lanes behind `count` get action 0, allowed.
    """
    actions = f.actions
    chosen, numbers = ints(scratch.taken, TILE), floats(scratch.taken, actions * TILE)
    allowed = floats(scratch.allowed, actions * TILE)
    for s in range(TILE):
        row = np.int64(-1)
        if s < count:
            row = np.int64(ints(order + 4 * (first + s), 1)[0]) if order else np.int64(first + s)
        if f.gaussian:
            for k in range(actions):
                numbers[k * TILE + s] = floats(f.action + 4 * row * actions, actions)[k] if row >= 0 else F(0.0)
        else:
            chosen[s] = np.int32(longs(f.action + 8 * row, 1)[0]) if row >= 0 else np.int32(0)
        if f.masked:
            for k in range(actions):
                free = row < 0 or flags(f.mask + row * actions, actions)[k]
                allowed[k * TILE + s] = F(1.0) if free else F(0.0)


@njit(**PIECE)
def log_softmax(frame: int, thread: int, masked: int, n: int) -> None:
    """Replace outputs [A, TILE] by log-probabilities, and write the probabilities to `odds`.

    log p = z - max z - log sum exp(z - max z), in which no exp overflows. With masks an output that is not allowed
    becomes -1e9 first, as in networks/heads.py; where no action is allowed all are equally likely. The outer loop is
    over actions, so that the inner one becomes vector instructions over samples.
    """
    f = fields_at(frame)
    scratch, actions = scratch_of(f, thread), f.actions
    outputs, odds = floats(scratch.outputs, actions * TILE), floats(scratch.odds, actions * TILE)
    allowed = floats(scratch.allowed, actions * TILE)
    highest, total = np.empty(TILE, np.float32), np.empty(TILE, np.float32)
    for s in range(n):
        highest[s], total[s] = F(-3e38), F(0.0)
    if masked:
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
            highest[s] = z if z > highest[s] else highest[s]
    for k in range(actions):
        for s in range(n):
            e = exp32(outputs[k * TILE + s] - highest[s])
            odds[k * TILE + s] = e
            total[s] += e
    for s in range(n):
        highest[s] += log32(total[s])
        total[s] = F(1.0) / total[s]
    for k in range(actions):
        for s in range(n):
            outputs[k * TILE + s] -= highest[s]
            odds[k * TILE + s] *= total[s]


@njit(inline="always")
def of_action(outputs: np.ndarray, action: np.ndarray, actions: int, n: int, out: np.ndarray) -> None:
    """out[s] = outputs[action[s], s], by comparisons, which are faster than reading from scattered addresses."""
    for s in range(n):
        out[s] = outputs[s]
    for k in range(1, actions):
        for s in range(n):
            out[s] = outputs[k * TILE + s] if action[s] == k else out[s]


@njit(inline="always")
def gaussian_log_prob(
    mean: np.ndarray, action: np.ndarray, log_std: np.ndarray, actions: int, n: int, out: np.ndarray
) -> None:
    """out[s] = log N(action[:, s]; mean[:, s], exp(log_std)); mean and action are [A, TILE], log_std [A]."""
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
    """Return the logarithm of the policy's deviation, limited to its bounds."""
    low = LOG_STD_LOW if log_std < LOG_STD_LOW else log_std
    return LOG_STD_HIGH if low > LOG_STD_HIGH else low


@njit(**PIECE)
def log_probs(frame: int, thread: int, n: int, out: int) -> None:
    """Write out[s] = log pi(action[s]) for n samples, from the outputs and the gathered actions in scratch."""
    f = fields_at(frame)
    scratch, actions = scratch_of(f, thread), f.actions
    outputs, result = floats(scratch.outputs, actions * TILE), floats(out, TILE)
    if f.gaussian:
        log_std = floats(f.parameters + 4 * f.log_std, actions)
        gaussian_log_prob(outputs, floats(scratch.taken, actions * TILE), log_std, actions, n, result)
    else:
        call(f.log_softmax, (frame, thread, f.masked, n))
        of_action(outputs, ints(scratch.taken, TILE), actions, n, result)


@njit(**PIECE)
def sample(frame: int, thread: int, draws: int, n: int, action: int, log_prob: int) -> None:
    """Sample actions for the first n lanes of the outputs, and write their log-probabilities to `log_prob` [n].

    `draws`: uniform numbers [n] for choices, or standard normal ones [n, A] for numbers. `action` is laid out as in
    the memory: int64 [n] or float32 [n, A].
    """
    f = fields_at(frame)
    scratch, actions = scratch_of(f, thread), f.actions
    outputs, result = floats(scratch.outputs, actions * TILE), floats(log_prob, n)
    if f.gaussian:
        log_std = floats(f.parameters + 4 * f.log_std, actions)
        numbers, noise = floats(action, n * actions), floats(draws, n * actions)
        for s in range(n):
            result[s] = F(0.0)
        for k in range(actions):
            ls = clamped(log_std[k])
            std, inverse = exp32(ls), exp32(-ls)
            for s in range(n):
                mean = outputs[k * TILE + s]
                number = mean + std * noise[s * actions + k]
                numbers[s * actions + k] = number
                # from the rounded action, not from the noise, so that it equals the result of log_probs
                distance = (number - mean) * inverse
                result[s] += F(-0.5) * distance * distance - ls - HALF_LOG_2PI
        return
    odds, uniform, chosen = floats(scratch.odds, actions * TILE), floats(draws, n), longs(action, n)
    # never with masks: these are part of dict observations, which this engine does not play
    call(f.log_softmax, (frame, thread, 0, n))
    choice, level, reached = np.zeros(TILE, np.int32), np.zeros(TILE, np.float32), np.zeros(TILE, np.float32)
    for k in range(actions):
        for s in range(n):
            level[s] += odds[k * TILE + s]
    for s in range(n):  # level: the uniform number times the sum of probabilities, which is 1 but for rounding
        level[s] *= uniform[s]
    for k in range(actions - 1):
        for s in range(n):
            reached[s] += odds[k * TILE + s]
            choice[s] += np.int32(reached[s] <= level[s])
    of_action(outputs, choice, actions, n, level)
    for s in range(n):
        chosen[s], result[s] = np.int64(choice[s]), level[s]
