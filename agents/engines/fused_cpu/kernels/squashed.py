"""The gradient of SAC, a tile of samples at a time: sampled actions, targets, slopes of three losses; and its actions.

Formulas: agents/sac.py and agents/networks/squashed.py. Tests compare every slope with torch's autograd of these.
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, FrameFields, Scratch, fields_at, live_at, scratch_of
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, floats
from stride.agents.engines.fused_cpu.kernels.critics import critic_slopes, put_actions
from stride.agents.engines.fused_cpu.kernels.nets import temperature
from stride.agents.engines.plan.layout import LANES
from stride.agents.engines.plan.numbers import SUMS, Sum
from stride.agents.networks.squashed import LOG_STD_BOUNDS
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import exp32, log32, tanh32

F = np.float32
ACTOR, CRITICS, TARGETS = 0, (1, 2), (3, 4)  # numbers of the nets
LOG_STD_LOW, LOG_STD_HIGH = F(LOG_STD_BOUNDS[0]), F(LOG_STD_BOUNDS[1])
LOG_2, HALF_LOG_2PI = F(math.log(2.0)), F(0.5 * math.log(2 * math.pi))


@njit(inline="always")
def _clamped(log_std: np.float32) -> np.float32:
    """Return the logarithm of the policy's deviation, limited to its bounds."""
    low = LOG_STD_LOW if log_std < LOG_STD_LOW else log_std
    return LOG_STD_HIGH if low > LOG_STD_HIGH else low


@njit(**PIECE)
def squash(frame: int, thread: int, noise: int, count: int, n: int, action: int, stride: int, out: int) -> None:
    """Write n actions tanh(mean + std noise) to `action`, in rows of `stride` floats, and log-probabilities to out [n].

    Means [A, TILE] and log deviations [A, TILE] are the outputs in scratch. `noise` [count, A] is standard normal;
    lanes behind `count` get 0. With u the action before tanh, log pi = log N(u) - sum log(1 - tanh(u)^2). The last
    logarithm is computed as 2 (log 2 - u - softplus(-2 u)), which loses no digits for large u.
    """
    f = fields_at(frame)
    actions = f.actions
    z, result = floats(scratch_of(f, thread).outputs, 2 * actions * TILE), floats(out, TILE)
    pre, log_std, drawn = np.empty(TILE, np.float32), np.empty(TILE, np.float32), np.empty(TILE, np.float32)
    for s in range(n):
        result[s] = F(0.0)
    normals = floats(noise, count * actions)
    for k in range(actions):
        for s in range(n):
            drawn[s] = F(0.0)
        for s in range(count):
            drawn[s] = normals[s * actions + k]
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
            floats(action + 4 * (s * stride + k), 1)[0] = pre[s]


@njit(**PIECE)
def sac_gradient(frame: int, thread: int, part: int, number: int, begin: int, end: int) -> None:
    """Add the gradient of the samples [begin, end) of update `number` to this part's `partial`, statistics to `sums`.

    Reads place, following, reward, discount, noise of these transitions; obs, final_obs and action at the rows they
    name. Loss of each critic: (q - y)^2 / 2 with y = reward + discount (min q' - alpha log pi'), from the target
    critics and a sampled next action. Loss of the actor: alpha log pi - min q for a sampled action. `noise`
    [updates, 2, B, A] is for the present actions, then for the next ones.
    """
    f = fields_at(frame)
    scratch, actions, size = scratch_of(f, thread), f.actions, f.minibatch
    x, next_x, outputs, hidden = scratch.x, scratch.other_x, scratch.outputs, scratch.hidden
    log_prob, q, other_q = scratch.log_prob, scratch.q, scratch.other_q
    alpha = F(temperature(f))
    noise = f.noise + 8 * number * size * actions
    for start in range(begin, end, TILE):
        count = min(TILE, end - start)
        first, n = number * size + start, (count + LANES - 1) // LANES * LANES
        noise_now, noise_next = noise + 4 * start * actions, noise + 4 * (size + start) * actions
        call(f.encode, (frame, f.obs, f.following, first, count, next_x))
        call(f.forward, (frame, ACTOR, next_x, hidden, n, outputs))
        squash(frame, thread, noise_next, count, n, next_x + 4 * f.features, f.row, log_prob)
        call(f.forward, (frame, TARGETS[0], next_x, hidden, n, q))
        call(f.forward, (frame, TARGETS[1], next_x, hidden, n, other_q))
        _targets(f, scratch, first, count, alpha)

        call(f.encode, (frame, f.obs, f.place, first, count, x))
        put_actions(f, first, count, x)
        for critic in CRITICS:
            call(f.forward, (frame, critic, x, hidden, n, q))
            critic_slopes(f, scratch, part, count, n)
            call(f.backward, (frame, thread, part, critic, x, hidden, n, q))

        # the critics are done with x, so a newly sampled action may overwrite the action taken
        call(f.forward, (frame, ACTOR, x, scratch.actor_hidden, n, outputs))
        squash(frame, thread, noise_now, count, n, x + 4 * f.features, f.row, log_prob)
        call(f.forward, (frame, CRITICS[0], x, hidden, n, q))
        call(f.forward, (frame, CRITICS[1], x, scratch.second_hidden, n, other_q))
        _lesser_slopes(f, scratch, part, count, n, alpha)
        call(f.to_inputs, (frame, thread, CRITICS[0], hidden, n, q, scratch.slopes))
        call(f.to_inputs, (frame, thread, CRITICS[1], scratch.second_hidden, n, other_q, scratch.other_slopes))
        actor_slopes(f, scratch, count, n, alpha, noise_now)
        call(f.backward, (frame, thread, part, ACTOR, x, scratch.actor_hidden, n, outputs))


@njit(inline="always")
def _targets(f: FrameFields, scratch: Scratch, first: int, count: int, alpha: np.float32) -> None:
    """Write the targets reward + discount * (smaller value - alpha log pi) to scratch.target [TILE]."""
    a, b, out = floats(scratch.q, TILE), floats(scratch.other_q, TILE), floats(scratch.target, TILE)
    log_prob = floats(scratch.log_prob, TILE)
    reward, discount = floats(f.reward + 4 * first, count), floats(f.discount + 4 * first, count)
    for s in range(count):
        lesser = b[s] if b[s] < a[s] or b[s] != b[s] else a[s]
        out[s] = reward[s] + discount[s] * (lesser - alpha * log_prob[s])


@njit(inline="always")
def _lesser_slopes(f: FrameFields, scratch: Scratch, part: int, count: int, n: int, alpha: np.float32) -> None:
    """Replace the values of both critics by the slopes of the policy's loss, which depends on the smaller one.

    Where both are equal each gets half. Also adds statistics and the gradient of alpha, see judge_policy.
    """
    a, b, value = floats(scratch.q, TILE), floats(scratch.other_q, TILE), floats(scratch.target, TILE)
    fraction = F(1.0) / F(f.minibatch)
    half = F(0.5) * fraction
    for s in range(count):
        lesser = b[s] if b[s] < a[s] or b[s] != b[s] else a[s]
        value[s] = lesser
        a[s], b[s] = (-half, -half) if a[s] == b[s] else (-fraction, F(0.0)) if a[s] < b[s] else (F(0.0), -fraction)
    for s in range(count, n):
        a[s], b[s] = F(0.0), F(0.0)
    judge_policy(f, scratch, part, count, alpha, scratch.target)


@njit(inline="always")
def judge_policy(f: FrameFields, scratch: Scratch, part: int, count: int, alpha: np.float32, value: int) -> None:
    """Add statistics of the policy to `sums`, and the gradient of log alpha, where it is learnt, to `partial`.

    `value`: address of the values [TILE] of its actions.
    """
    q, log_prob = floats(value, TILE), floats(scratch.log_prob, TILE)
    sums = floats(f.sums + 4 * part * SUMS * TILE, SUMS * TILE)
    fraction, target_entropy = F(1.0) / F(f.minibatch), F(live_at(f.live).target_entropy)
    total = F(0.0)
    for s in range(count):
        sums[Sum.POLICY_LOSS * TILE + s] += fraction * (alpha * log_prob[s] - q[s])
        sums[Sum.ENTROPY * TILE + s] -= fraction * log_prob[s]
        total -= fraction * (log_prob[s] + target_entropy)
    if f.learnt_alpha:
        floats(f.partial + 4 * (part * f.size + f.log_alpha), 1)[0] += total


@njit(inline="always")
def actor_slopes(f: FrameFields, scratch: Scratch, count: int, n: int, alpha: np.float32, noise: int) -> None:
    """Replace outputs (means, then log deviations) by the slopes of the policy's loss, from the slopes at the actions.

    The slopes at the actions come from the critics; the slope of alpha log pi is added here.
    """
    actions, row = f.actions, f.row
    z, x = floats(scratch.outputs, 2 * actions * TILE), scratch.x + 4 * f.features
    slopes, other_slopes = floats(scratch.slopes, actions * TILE), floats(scratch.other_slopes, actions * TILE)
    drawn, pull = floats(noise, count * actions), alpha / F(f.minibatch)
    for k in range(actions):
        for s in range(count):
            action = floats(x + 4 * s * row, actions)[k]
            raw = z[(actions + k) * TILE + s]
            log_std = _clamped(raw)
            slope = slopes[k * TILE + s] + other_slopes[k * TILE + s]
            slope = slope * (F(1.0) - action * action) + pull * F(2.0) * action
            z[k * TILE + s] = slope
            spread = slope * exp32(log_std) * drawn[s * actions + k] - pull
            z[(actions + k) * TILE + s] = spread if log_std == raw else F(0.0)
        for s in range(count, n):
            z[k * TILE + s], z[(actions + k) * TILE + s] = F(0.0), F(0.0)


@njit(**PIECE)
def act_squashed(frame: int, thread: int, draws: int, n: int, action: int, log_prob: int) -> None:
    """Write the actions of the first n lanes, as SquashedPolicy.act does; draws are standard normal [n, A]."""
    out = np.empty(TILE, np.float32)
    squash(frame, thread, draws, n, n, action, fields_at(frame).actions, out.ctypes.data)
