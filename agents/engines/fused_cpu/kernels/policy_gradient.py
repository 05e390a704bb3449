"""The gradients of PPO and REINFORCE, a tile of samples at a time: losses, their slopes, and back through the nets.

Formulas: agents/ppo.py and agents/reinforce.py. Tests compare every slope with torch's autograd of these.
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, FrameFields, Scratch, fields_at, live_at, scratch_of
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, doubles, floats, ints
from stride.agents.engines.fused_cpu.kernels.heads import clamped, gather_actions, gaussian_log_prob, of_action
from stride.agents.engines.plan.layout import LANES
from stride.agents.engines.plan.numbers import SUMS, Sum
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import exp32

F = np.float32
HALF_LOG_2PIE = F(0.5 * math.log(2 * math.pi * math.e))


@njit(**PIECE)
def gradient_part(frame: int, thread: int, part: int, order: int, begin: int, end: int, weighing: int) -> None:
    """Add the gradient of the rows order[begin:end] to this part's `partial`, and their statistics to its `sums`.

    Reads obs, action, mask, log_prob, weight, counted, value, target. `weighing` is the address of float64 [3]: mean
    and 1 / deviation of `weight`, 1 / rows that count.
    """
    f = fields_at(frame)
    scratch = scratch_of(f, thread)
    for start in range(begin, end, TILE):
        count = min(TILE, end - start)
        padded = (count + LANES - 1) // LANES * LANES
        call(f.encode, (frame, f.obs, order, start, count, scratch.x))
        gather(f, scratch, order, start, count, weighing)
        for net in range(f.nets):
            call(f.forward, (frame, net, scratch.x, scratch.hidden, padded, scratch.outputs))
            if net == 0:
                call(f.actor_loss, (frame, thread, part, padded))
            if net == f.value_net:
                call(f.critic_loss, (frame, thread, part, padded))
            call(f.backward, (frame, thread, part, net, scratch.x, scratch.hidden, padded, scratch.outputs))


@njit(inline="always")
def gather(f: FrameFields, scratch: Scratch, order: int, start: int, count: int, weighing: int) -> None:
    """Copy what the losses of the rows order[start : start + count] need besides the outputs, to scratch."""
    rows, numbers = f.steps * f.worlds, doubles(weighing, 3)
    mean, inverse, fraction = F(numbers[0]), F(numbers[1]), F(numbers[2])
    index = ints(order, rows)
    log_prob, weight, counted = floats(f.log_prob, rows), floats(f.weight, rows), floats(f.counted, rows)
    value, target = floats(f.value, rows), floats(f.target, rows)
    actor, critic = floats(scratch.actor, 3 * TILE), floats(scratch.critic, 3 * TILE)
    critic_fraction = F(1.0) / F(f.minibatch)
    gather_actions(f, scratch, order, start, count)
    for s in range(3 * TILE):  # filling has fraction 0, so it adds nothing to sums and gradients
        actor[s], critic[s] = F(0.0), F(0.0)
    for s in range(count):
        row = index[start + s]
        actor[s] = log_prob[row]
        actor[TILE + s] = (weight[row] - mean) * inverse
        actor[2 * TILE + s] = fraction * counted[row]
        critic[s] = value[row]
        critic[TILE + s] = target[row]
        critic[2 * TILE + s] = critic_fraction


@njit(**PIECE)
def actor_loss(frame: int, thread: int, part: int, n: int) -> None:
    """Replace the actor's outputs by the slopes of its loss; add to `sums`, and the gradient of log_std to `partial`.

    The fraction of a sample is its weight in the mean: 1 / rows that count, or 0 for filling and rows that do not.
    """
    f = fields_at(frame)
    scratch, live = scratch_of(f, thread), live_at(f.live)
    actions, bonus = f.actions, F(live.entropy)
    z, p = floats(scratch.outputs, actions * TILE), floats(scratch.odds, actions * TILE)
    chosen, numbers = ints(scratch.taken, TILE), floats(scratch.taken, actions * TILE)
    log_std = floats(f.parameters + 4 * f.log_std, actions)
    fraction = floats(scratch.actor + 8 * TILE, TILE)
    log_prob, entropy, slope = np.empty(TILE, np.float32), np.empty(TILE, np.float32), np.empty(TILE, np.float32)
    if f.gaussian:
        gaussian_log_prob(z, numbers, log_std, actions, n, log_prob)
        total = F(0.0)
        for k in range(actions):
            total += clamped(log_std[k]) + HALF_LOG_2PIE
        for s in range(n):
            entropy[s] = total
    else:
        call(f.log_softmax, (frame, thread, f.masked, n))
        of_action(z, chosen, actions, n, log_prob)
        for s in range(n):
            entropy[s] = F(0.0)
        for k in range(actions):
            for s in range(n):
                entropy[s] -= p[k * TILE + s] * z[k * TILE + s]
    sums = f.sums + 4 * part * SUMS * TILE
    _surrogate(f.reinforce, scratch, log_prob, F(live.clip), n, slope, sums)
    entropies = floats(sums + 4 * TILE * Sum.ENTROPY, TILE)
    for s in range(n):
        entropies[s] += fraction[s] * entropy[s]
    if f.gaussian:
        log_std_slopes = floats(f.partial + 4 * part * f.size + 4 * f.log_std, actions)
        _gaussian_slopes(z, numbers, log_std, actions, n, slope, fraction, bonus, log_std_slopes)
        return
    # z is log pi: d log pi(a) / d z_k = 1{k = a} - p_k, d entropy / d z_k = -p_k (log p_k + entropy)
    for k in range(actions):
        for s in range(n):
            is_chosen = F(1.0) if chosen[s] == k else F(0.0)
            i = k * TILE + s
            z[i] = slope[s] * (is_chosen - p[i]) + fraction[s] * bonus * p[i] * (z[i] + entropy[s])
    if f.masked:
        allowed = floats(scratch.allowed, actions * TILE)
        for i in range(actions * TILE):
            z[i] *= allowed[i]


@njit(inline="always")
def _surrogate(
    reinforce: int, scratch: Scratch, log_prob: np.ndarray, clip: np.float32, n: int, slope: np.ndarray, sums: int
) -> None:
    """Write slope[s] = d loss / d log pi, and add losses and KL divergences to `sums`.

    With A the weight of the action and r = pi / pi_old, the loss and its slope are
      REINFORCE   -fraction A log pi                  -fraction A
      PPO         -fraction min(r A, clip(r) A)       -fraction r A where r A is the smaller one, else 0
    """
    actor = scratch.actor
    old, weight, fraction = floats(actor, TILE), floats(actor + 4 * TILE, TILE), floats(actor + 8 * TILE, TILE)
    losses, kls = floats(sums + 4 * TILE * Sum.POLICY_LOSS, TILE), floats(sums + 4 * TILE * Sum.KL, TILE)
    clips = floats(sums + 4 * TILE * Sum.CLIPPED, TILE)
    if reinforce:
        for s in range(n):
            slope[s] = -fraction[s] * weight[s]
            losses[s] += slope[s] * log_prob[s]
        return
    low, high = F(1.0) - clip, F(1.0) + clip
    for s in range(n):
        log_ratio = log_prob[s] - old[s]
        ratio = exp32(log_ratio)
        clipped = low if ratio < low else ratio
        clipped = high if clipped > high else clipped
        free, limited = ratio * weight[s], clipped * weight[s]
        active = free <= limited
        losses[s] -= fraction[s] * (free if active else limited)
        # no comparison with NaN is true, but a NaN must reach the gradient, where it is noticed
        slope[s] = -fraction[s] * free if (active or free != free) else F(0.0)
        kls[s] += fraction[s] * (ratio - F(1.0) - log_ratio)
        clips[s] += fraction[s] if abs(ratio - F(1.0)) > clip else F(0.0)


@njit(inline="always")
def _gaussian_slopes(
    z: np.ndarray, action: np.ndarray, log_std: np.ndarray, actions: int, n: int, slope: np.ndarray,
    fraction: np.ndarray, bonus: np.float32, log_std_slopes: np.ndarray,
) -> None:  # fmt: skip
    """Replace means z [A, TILE] by the slopes of the loss, and add the gradient of log_std, which all samples share.

    `slope` [n]: d loss / d log pi; `bonus`: coefficient of the entropy. log_std has no slope beyond its bounds.
    """
    for k in range(actions):
        ls = clamped(log_std[k])
        inverse = exp32(-ls)
        inside = F(1.0) if ls == log_std[k] else F(0.0)
        total = F(0.0)
        for s in range(n):
            i = k * TILE + s
            distance = (action[i] - z[i]) * inverse
            total += slope[s] * (distance * distance - F(1.0)) - fraction[s] * bonus
            z[i] = slope[s] * distance * inverse
        log_std_slopes[k] += inside * total


@njit(**PIECE)
def critic_loss(frame: int, thread: int, part: int, n: int) -> None:
    """Replace the critic's values by the slopes of their loss; add the losses to `sums`.

    The loss is fraction * max((v - target)^2, (clipped v - target)^2), where the clipped v is at most value_clip away
    from the old value.
    """
    f = fields_at(frame)
    scratch, live = scratch_of(f, thread), live_at(f.live)
    clip, factor = F(live.value_clip), F(2.0 * live.value)
    v = floats(scratch.outputs + 4 * TILE * f.value_row, TILE)
    losses = floats(f.sums + 4 * TILE * (part * SUMS + Sum.VALUE_LOSS), TILE)
    columns = floats(scratch.critic, 3 * TILE)
    for s in range(n):
        old, target, fraction = columns[s], columns[TILE + s], columns[2 * TILE + s]
        error, moved = v[s] - target, v[s] - old
        limited = -clip if moved < -clip else moved
        limited = clip if limited > clip else limited
        other = old + limited - target
        # limited == moved: nothing was clipped; without this test rounding could make the clipped error the larger one
        free = (limited == moved) | (error * error >= other * other) | (error != error)
        losses[s] += fraction * (error * error if free else other * other)
        v[s] = factor * fraction * error if free else F(0.0)
