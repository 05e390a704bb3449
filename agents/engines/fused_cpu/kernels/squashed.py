"""SAC's samples, a tile at a time: actions drawn anew, targets, the slopes of three losses; and how the policy acts.

The formulas are those of agents/sac.py and agents/networks/squashed.py, whose autograd is the test of every slope here.
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.frame import ENTRIES, LIVES, SUMS, TILE, At, Kernels
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, doubles, floats, ints, longs
from stride.agents.engines.fused_cpu.kernels.nets import temperature
from stride.agents.engines.fused_cpu.kernels.scratch import scratch_of
from stride.agents.engines.plan.layout import LANES
from stride.agents.engines.plan.numbers import Live, Sum
from stride.agents.networks.squashed import LOG_STD_BOUNDS
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import exp32, log32, tanh32

F = np.float32
ACTOR, CRITICS, TARGETS = 0, (1, 2), (3, 4)  # nets
LOG_STD_LOW, LOG_STD_HIGH = F(LOG_STD_BOUNDS[0]), F(LOG_STD_BOUNDS[1])
LOG_2, HALF_LOG_2PI = F(math.log(2.0)), F(0.5 * math.log(2 * math.pi))


@njit(inline="always")
def _clamped(log_std: np.float32) -> np.float32:
    """Within the bounds of the policy's deviation."""
    low = LOG_STD_LOW if log_std < LOG_STD_LOW else log_std
    return LOG_STD_HIGH if low > LOG_STD_HIGH else low


@njit(**PIECE)
def squash(frame: int, outputs: int, noise: int, count: int, n: int, actions_at: int, stride: int, out: int) -> None:
    """Actions tanh(mean + std noise) [n, ..] in rows of `stride` floats and their log-probabilities out[n].

    noise [count, A]; lanes beyond `count` get none. With u the action before tanh,
    log pi = log N(u) - sum log(1 - tanh(u)^2), the latter as 2 (log 2 - u - softplus(-2 u)), which does not cancel.
    """
    f = longs(frame, ENTRIES)
    actions = f[At.ACTIONS]
    z, result = floats(outputs, 2 * actions * TILE), floats(out, TILE)
    pre, log_std, drawn = np.empty(TILE, np.float32), np.empty(TILE, np.float32), np.empty(TILE, np.float32)
    for s in range(n):
        result[s] = F(0.0)
    given = floats(noise, count * actions)
    for k in range(actions):
        for s in range(n):
            drawn[s] = F(0.0)
        for s in range(count):
            drawn[s] = given[s * actions + k]
        for s in range(n):
            log_std[s] = _clamped(z[(actions + k) * TILE + s])
            pre[s] = z[k * TILE + s] + exp32(log_std[s]) * drawn[s]
        for s in range(n):
            u = F(-2.0) * pre[s]
            softplus = (u if u > F(0.0) else F(0.0)) + log32(F(1.0) + exp32(-abs(u)))
            correction = F(2.0) * (LOG_2 - pre[s] - softplus)
            result[s] += F(-0.5) * drawn[s] * drawn[s] - log_std[s] - HALF_LOG_2PI - correction
            pre[s] = tanh32(pre[s])
        for s in range(n):
            floats(actions_at + 4 * (s * stride + k), 1)[0] = pre[s]


@njit(**PIECE)
def sac_gradient(frame: int, thread: int, part: int, number: int, begin: int, end: int) -> None:
    """Add the gradient of the samples [begin, end) of update `number` to this part's PARTIAL, what is told to its SUMS.

    Reads PLACE, FOLLOWING, REWARD, DISCOUNT, NOISE of these transitions, and OBS, FINAL_OBS, ACTION where they say.
    Losses: (q - y)^2 / 2 of each critic, y = reward + discount (min q' - alpha log pi'); alpha log pi - min q of the
    actor. NOISE [updates, 2, B, A] is for the actions here, then for those that follow.
    """
    f = longs(frame, ENTRIES)
    actions, size, features, row = f[At.ACTIONS], f[At.MINIBATCH], f[At.FEATURES], f[At.ROW]
    mine = scratch_of(frame, thread)
    x, y, outputs, hidden = mine.x, mine.other_x, mine.outputs, mine.hidden
    one, above, below = mine.one, mine.above, mine.below
    log_prob, target, q, other = mine.log_prob, mine.target, mine.q, mine.other_q
    gradient, sums_at = f[At.PARTIAL] + 4 * part * f[At.SIZE], f[At.SUMS] + 4 * part * SUMS * TILE
    alpha = F(temperature(frame))
    noise = f[At.NOISE] + 8 * number * size * actions
    for start in range(begin, end, TILE):
        count = min(TILE, end - start)
        first, n = number * size + start, (count + LANES - 1) // LANES * LANES
        here, next_ = noise + 4 * start * actions, noise + 4 * (size + start) * actions
        call(f[At.ENCODE], (frame, f[At.OBS], f[At.FOLLOWING], first, count, y))
        call(f[At.FORWARD], (frame, ACTOR, y, hidden, n, outputs))
        squash(frame, outputs, next_, count, n, y + 4 * features, row, log_prob)
        call(f[At.FORWARD], (frame, TARGETS[0], y, hidden, n, q))
        call(f[At.FORWARD], (frame, TARGETS[1], y, hidden, n, other))
        _targets(frame, first, count, alpha, q, other, log_prob, target)

        call(f[At.ENCODE], (frame, f[At.OBS], f[At.PLACE], first, count, x))
        _put_actions(frame, first, count, x)
        for critic in CRITICS:
            call(f[At.FORWARD], (frame, critic, x, hidden, n, q))
            _critic_slopes(size, count, n, q, target, sums_at)
            call(f[At.BACKWARD], (frame, critic, x, hidden, n, q, gradient, one, above, below))

        # the critics have learnt from x: the action drawn anew takes the place of the one taken
        call(f[At.FORWARD], (frame, ACTOR, x, mine.actor_hidden, n, outputs))
        squash(frame, outputs, here, count, n, x + 4 * features, row, log_prob)
        call(f[At.FORWARD], (frame, CRITICS[0], x, hidden, n, q))
        call(f[At.FORWARD], (frame, CRITICS[1], x, mine.second_hidden, n, other))
        _least(frame, size, count, n, alpha, q, other, log_prob, gradient, sums_at)
        zero = one + 4
        inputs = (features, actions)
        call(f[At.TO_INPUTS], (frame, CRITICS[0], hidden, n, q, *inputs, mine.slopes, zero, above, below))
        call(
            f[At.TO_INPUTS],
            (frame, CRITICS[1], mine.second_hidden, n, other, *inputs, mine.other_slopes, zero, above, below),
        )
        _actor_slopes(frame, size, count, n, alpha, x, here, outputs, mine.slopes, mine.other_slopes)
        call(f[At.BACKWARD], (frame, ACTOR, x, mine.actor_hidden, n, outputs, gradient, one, above, below))


@njit(inline="always")
def _put_actions(frame: int, first: int, count: int, x: int) -> None:
    """Behind the features of each sample the action that was taken."""
    f = longs(frame, ENTRIES)
    actions, features, row = f[At.ACTIONS], f[At.FEATURES], f[At.ROW]
    for s in range(count):
        place = np.int64(ints(f[At.PLACE] + 4 * (first + s), 1)[0])
        given = floats(x + 4 * (s * row + features), actions)
        taken = floats(f[At.ACTION] + 4 * place * actions, actions)
        for k in range(actions):
            given[k] = taken[k]


@njit(inline="always")
def _targets(
    frame: int, first: int, count: int, alpha: np.float32, q: int, other: int, log_prob: int, target: int
) -> None:
    """target = reward + discount * (the lesser value, less alpha log pi) [TILE]."""
    f = longs(frame, ENTRIES)
    a, b, lp, out = floats(q, TILE), floats(other, TILE), floats(log_prob, TILE), floats(target, TILE)
    reward, discount = floats(f[At.REWARD] + 4 * first, count), floats(f[At.DISCOUNT] + 4 * first, count)
    for s in range(count):
        least = b[s] if b[s] < a[s] or b[s] != b[s] else a[s]
        out[s] = reward[s] + discount[s] * (least - alpha * lp[s])


@njit(inline="always")
def _critic_slopes(size: int, count: int, n: int, q: int, target: int, sums_at: int) -> None:
    """Values become the slope of their squared error."""
    v, goal, sums = floats(q, TILE), floats(target, TILE), floats(sums_at, SUMS * TILE)
    share = F(1.0) / F(size)
    for s in range(count):
        error = v[s] - goal[s]
        sums[Sum.VALUE_LOSS * TILE + s] += F(0.5) * share * error * error
        sums[Sum.Q * TILE + s] += F(0.5) * share * v[s]
        sums[Sum.TARGET * TILE + s] += F(0.5) * share * goal[s]
        v[s] = share * error
    for s in range(count, n):
        v[s] = F(0.0)


@njit(inline="always")
def _least(
    frame: int, size: int, count: int, n: int, alpha: np.float32, q: int, other: int, log_prob: int, gradient: int,
    sums_at: int,
) -> None:  # fmt: skip
    """Values become the slope of the policy's loss, which is that of the lesser one; the temperature's gradient."""
    f = longs(frame, ENTRIES)
    a, b, lp, sums = floats(q, TILE), floats(other, TILE), floats(log_prob, TILE), floats(sums_at, SUMS * TILE)
    share, goal = F(1.0) / F(size), F(doubles(f[At.LIVE], LIVES)[Live.TARGET_ENTROPY])
    total = F(0.0)
    for s in range(count):
        least = b[s] if b[s] < a[s] or b[s] != b[s] else a[s]
        sums[Sum.POLICY_LOSS * TILE + s] += share * (alpha * lp[s] - least)
        sums[Sum.ENTROPY * TILE + s] -= share * lp[s]
        total -= share * (lp[s] + goal)
        half = F(0.5) * share
        a[s], b[s] = (-half, -half) if a[s] == b[s] else (-share, F(0.0)) if a[s] < b[s] else (F(0.0), -share)
    for s in range(count, n):
        a[s], b[s] = F(0.0), F(0.0)
    if f[At.LEARNT_ALPHA]:
        floats(gradient + 4 * f[At.LOG_ALPHA], 1)[0] += total


@njit(inline="always")
def _actor_slopes(
    frame: int, size: int, count: int, n: int, alpha: np.float32, x: int, noise: int, outputs: int, slopes: int,
    more: int,
) -> None:  # fmt: skip
    """Outputs (means, then log deviations) become the slope of the policy's loss, given that at the actions."""
    f = longs(frame, ENTRIES)
    actions, features, row = f[At.ACTIONS], f[At.FEATURES], f[At.ROW]
    z, one, two = floats(outputs, 2 * actions * TILE), floats(slopes, actions * TILE), floats(more, actions * TILE)
    drawn, pull = floats(noise, count * actions), alpha / F(size)
    for k in range(actions):
        for s in range(count):
            action = floats(x + 4 * (s * row + features), actions)[k]
            raw = z[(actions + k) * TILE + s]
            kept = _clamped(raw)
            slope = (one[k * TILE + s] + two[k * TILE + s]) * (F(1.0) - action * action) + pull * F(2.0) * action
            z[k * TILE + s] = slope
            spread = slope * exp32(kept) * drawn[s * actions + k] - pull
            z[(actions + k) * TILE + s] = spread if kept == raw else F(0.0)
        for s in range(count, n):
            z[k * TILE + s], z[(actions + k) * TILE + s] = F(0.0), F(0.0)


@njit(**PIECE)
def act_squashed(frame: int, outputs: int, spare: int, draws: int, n: int, actions_at: int, log_prob: int) -> None:
    """Actions of the first n lanes, as SquashedPolicy.act; draws are normals [n, A]."""
    actions = longs(frame, ENTRIES)[At.ACTIONS]
    out = np.empty(TILE, np.float32)
    squash(frame, outputs, draws, n, n, actions_at, actions, out.ctypes.data)


OWN: dict[str, Kernels] = {"sac": {At.GRADIENT_PART: sac_gradient, At.SAMPLE: act_squashed}}
