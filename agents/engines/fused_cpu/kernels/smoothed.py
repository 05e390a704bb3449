"""The gradient of TD3, a tile of samples at a time: actions with noise, targets, slopes of two losses; and its actions.

Formulas: agents/td3.py and agents/networks/squashed.py. Tests compare every slope with torch's autograd of these.
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, FrameFields, Scratch, fields_at, live_at, scratch_of
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, floats
from stride.agents.engines.fused_cpu.kernels.critics import critic_slopes, put_actions
from stride.agents.engines.fused_cpu.kernels.nets import moves_actor
from stride.agents.engines.plan.layout import LANES
from stride.agents.engines.plan.numbers import SUMS, Sum
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import tanh32

F = np.float32
ACTOR, FIRST_CRITIC = 0, 1  # numbers of the nets; after all critics come the target nets, in the same order
NO_LIMIT = F(math.inf)


@njit(inline="always")
def _within(x: np.float32, limit: np.float32) -> np.float32:
    """Return x, limited to +-limit."""
    x = -limit if x < -limit else x
    return limit if x > limit else x


@njit(**PIECE)
def disturb(
    frame: int, thread: int, noise: int, deviation: np.float32, limit: np.float32, count: int, n: int, action: int,
    stride: int,
) -> None:  # fmt: skip
    """Write n actions tanh(output) + noise, limited to +-1, to `action`, in rows of `stride` floats.

    `noise` [count, A] is standard normal; it is multiplied by `deviation` and limited to +-limit. Lanes behind `count`
    get no noise. The actions also replace the outputs in scratch.
    """
    f = fields_at(frame)
    actions = f.actions
    z, normals = floats(scratch_of(f, thread).outputs, actions * TILE), floats(noise, count * actions)
    for k in range(actions):
        for s in range(n):
            z[k * TILE + s] = tanh32(z[k * TILE + s])
        for s in range(count):
            drawn = _within(deviation * normals[s * actions + k], limit)
            z[k * TILE + s] = _within(z[k * TILE + s] + drawn, F(1.0))
        for s in range(n):
            floats(action + 4 * (s * stride + k), 1)[0] = z[k * TILE + s]


@njit(**PIECE)
def td3_gradient(frame: int, thread: int, part: int, number: int, begin: int, end: int) -> None:
    """Add the gradient of the samples [begin, end) of update `number` to this part's `partial`, statistics to `sums`.

    Reads place, following, reward, discount, noise of these transitions; obs, final_obs and action at the rows they
    name. Loss of each critic: (q - y)^2 / 2 with y = reward + discount * (the least q' of the target critics), for the
    target actor's next action with noise. Loss of the actor, in updates that move it: -q of the first critic. `noise`
    [updates, B, A] is for the next actions.
    """
    f = fields_at(frame)
    scratch, live, size = scratch_of(f, thread), live_at(f.live), f.minibatch
    x, next_x, outputs, hidden, q = scratch.x, scratch.other_x, scratch.outputs, scratch.hidden, scratch.q
    target_actor, moves = FIRST_CRITIC + f.critics, moves_actor(f, number)
    deviation, limit = F(live.target_noise), F(live.target_noise_clip)
    for start in range(begin, end, TILE):
        count = min(TILE, end - start)
        first, n = number * size + start, (count + LANES - 1) // LANES * LANES
        noise = f.noise + 4 * first * f.actions
        call(f.encode, (frame, f.obs, f.following, first, count, next_x))
        call(f.forward, (frame, target_actor, next_x, hidden, n, outputs))
        disturb(frame, thread, noise, deviation, limit, count, n, next_x + 4 * f.features, f.row)
        call(f.forward, (frame, target_actor + FIRST_CRITIC, next_x, hidden, n, scratch.target))
        for critic in range(1, f.critics):
            call(f.forward, (frame, target_actor + FIRST_CRITIC + critic, next_x, hidden, n, q))
            _keep_lesser(scratch, count)
        _targets(f, scratch, first, count)

        call(f.encode, (frame, f.obs, f.place, first, count, x))
        put_actions(f, first, count, x)
        for critic in range(f.critics):
            call(f.forward, (frame, FIRST_CRITIC + critic, x, hidden, n, q))
            critic_slopes(f, scratch, part, count, n)
            call(f.backward, (frame, thread, part, FIRST_CRITIC + critic, x, hidden, n, q))

        if moves:  # the critics are done with x, so the actor's own action may overwrite the action taken
            call(f.forward, (frame, ACTOR, x, scratch.actor_hidden, n, outputs))
            disturb(frame, thread, noise, F(0.0), F(0.0), 0, n, x + 4 * f.features, f.row)
            call(f.forward, (frame, FIRST_CRITIC, x, hidden, n, q))
            _value_slopes(f, scratch, part, count, n)
            call(f.to_inputs, (frame, thread, FIRST_CRITIC, hidden, n, q, scratch.slopes))
            _actor_slopes(f, scratch, n)
            call(f.backward, (frame, thread, part, ACTOR, x, scratch.actor_hidden, n, outputs))


@njit(inline="always")
def _keep_lesser(scratch: Scratch, count: int) -> None:
    """Write to scratch.target [TILE] the smaller one of it and scratch.q; NaN where one of them is NaN."""
    lesser, q = floats(scratch.target, TILE), floats(scratch.q, TILE)
    for s in range(count):
        lesser[s] = q[s] if q[s] < lesser[s] or q[s] != q[s] else lesser[s]


@njit(inline="always")
def _targets(f: FrameFields, scratch: Scratch, first: int, count: int) -> None:
    """Replace the least values in scratch.target by the targets reward + discount * value."""
    target = floats(scratch.target, TILE)
    reward, discount = floats(f.reward + 4 * first, count), floats(f.discount + 4 * first, count)
    for s in range(count):
        target[s] = reward[s] + discount[s] * target[s]


@njit(inline="always")
def _value_slopes(f: FrameFields, scratch: Scratch, part: int, count: int, n: int) -> None:
    """Replace values by the slopes of the actor's loss, which is minus their mean; add the loss to `sums`."""
    q = floats(scratch.q, TILE)
    sums = floats(f.sums + 4 * part * SUMS * TILE, SUMS * TILE)
    fraction = F(1.0) / F(f.minibatch)
    for s in range(count):
        sums[Sum.POLICY_LOSS * TILE + s] -= fraction * q[s]
        q[s] = -fraction
    for s in range(count, n):
        q[s] = F(0.0)


@njit(inline="always")
def _actor_slopes(f: FrameFields, scratch: Scratch, n: int) -> None:
    """Replace the actions in scratch.outputs by the slopes at the outputs, from the slopes at the actions."""
    z, slopes = floats(scratch.outputs, f.actions * TILE), floats(scratch.slopes, f.actions * TILE)
    for k in range(f.actions):
        for s in range(n):
            action = z[k * TILE + s]
            z[k * TILE + s] = slopes[k * TILE + s] * (F(1.0) - action * action)


@njit(**PIECE)
def act_smoothed(frame: int, thread: int, draws: int, n: int, action: int, log_prob: int) -> None:
    """Write the actions of the first n lanes, as DeterministicPolicy.act does; draws are standard normal [n, A]."""
    f = fields_at(frame)
    disturb(frame, thread, draws, F(live_at(f.live).action_noise), NO_LIMIT, n, n, action, f.actions)
