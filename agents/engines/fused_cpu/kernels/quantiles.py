"""The gradient of TQC, a tile of samples at a time: like SAC, but critics learn quantiles [quantiles, TILE] of returns.

Formulas: agents/tqc.py and agents/dqn.py. Tests compare every slope with torch's autograd of these.
"""

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, FrameFields, Scratch, fields_at, scratch_of
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, floats
from stride.agents.engines.fused_cpu.kernels.critics import put_actions
from stride.agents.engines.fused_cpu.kernels.nets import temperature
from stride.agents.engines.fused_cpu.kernels.squashed import actor_slopes, judge_policy, squash
from stride.agents.engines.plan.layout import LANES
from stride.agents.engines.plan.numbers import SUMS, Sum
from stride.utils.kernel_cache import njit

F = np.float32
ACTOR, FIRST_CRITIC = 0, 1  # numbers of the nets; after all critics come their target nets


@njit(**PIECE)
def tqc_gradient(frame: int, thread: int, part: int, number: int, begin: int, end: int) -> None:
    """Add the gradient of the samples [begin, end) of update `number` to this part's `partial`, statistics to `sums`.

    Reads what sac_gradient reads. Loss of each critic: quantile regression towards the kept target quantiles, the
    lowest f.kept of all target critics together. Loss of the actor: alpha log pi - mean q.
    """
    f = fields_at(frame)
    scratch, actions, size, critics = scratch_of(f, thread), f.actions, f.minibatch, f.critics
    x, next_x, outputs, hidden, q = scratch.x, scratch.other_x, scratch.outputs, scratch.hidden, scratch.q
    alpha = F(temperature(f))
    noise = f.noise + 8 * number * size * actions
    for start in range(begin, end, TILE):
        count = min(TILE, end - start)
        first, n = number * size + start, (count + LANES - 1) // LANES * LANES
        noise_now, noise_next = noise + 4 * start * actions, noise + 4 * (size + start) * actions
        call(f.encode, (frame, f.obs, f.following, first, count, next_x))
        call(f.forward, (frame, ACTOR, next_x, hidden, n, outputs))
        squash(frame, thread, noise_next, count, n, next_x + 4 * f.features, f.row, scratch.log_prob)
        for critic in range(critics):
            own_target = scratch.target + 4 * TILE * critic * f.quantiles
            call(f.forward, (frame, FIRST_CRITIC + critics + critic, next_x, hidden, n, own_target))
        _truncate(f, scratch, n)
        _targets(f, scratch, part, first, count, alpha)

        call(f.encode, (frame, f.obs, f.place, first, count, x))
        put_actions(f, first, count, x)
        for critic in range(critics):
            call(f.forward, (frame, FIRST_CRITIC + critic, x, hidden, n, q))
            _quantile_slopes(f, scratch, part, count, n)
            call(f.backward, (frame, thread, part, FIRST_CRITIC + critic, x, hidden, n, q))

        # the critics are done with x, so a newly sampled action may overwrite the action taken
        call(f.forward, (frame, ACTOR, x, scratch.actor_hidden, n, outputs))
        squash(frame, thread, noise_now, count, n, x + 4 * f.features, f.row, scratch.log_prob)
        _clear(scratch.other_q, TILE)
        _clear(scratch.slopes, actions * TILE)
        for critic in range(critics):
            call(f.forward, (frame, FIRST_CRITIC + critic, x, hidden, n, q))
            _mean_slopes(f, scratch, count, n)
            call(f.to_inputs, (frame, thread, FIRST_CRITIC + critic, hidden, n, q, scratch.other_slopes))
            _add(scratch.other_slopes, scratch.slopes, actions * TILE)
        _clear(scratch.other_slopes, actions * TILE)
        judge_policy(f, scratch, part, count, alpha, scratch.other_q)
        actor_slopes(f, scratch, count, n, alpha, noise_now)
        call(f.backward, (frame, thread, part, ACTOR, x, scratch.actor_hidden, n, outputs))


@njit(inline="always")
def _clear(numbers: int, count: int) -> None:
    floats(numbers, count)[:] = F(0.0)


@njit(inline="always")
def _add(numbers: int, sums: int, count: int) -> None:
    own, total = floats(numbers, count), floats(sums, count)
    for i in range(count):
        total[i] += own[i]


@njit(inline="always")
def _truncate(f: FrameFields, scratch: Scratch, n: int) -> None:
    """Move the largest quantiles of each sample, which are not kept, to the last rows of scratch.target.

    Each round of exchanges moves the largest of the remaining ones to the end, as in bubble sort.
    """
    rows = f.critics * f.quantiles
    q = floats(scratch.target, rows * TILE)
    for last in range(rows - 1, f.kept - 1, -1):
        for i in range(last):
            for s in range(n):
                a, b = q[i * TILE + s], q[(i + 1) * TILE + s]
                q[i * TILE + s] = b if a > b else a
                q[(i + 1) * TILE + s] = a if a > b else b


@njit(inline="always")
def _targets(f: FrameFields, scratch: Scratch, part: int, first: int, count: int, alpha: np.float32) -> None:
    """Replace the kept quantiles [kept, TILE] by the targets reward + discount * (quantile - alpha log pi)."""
    target, log_prob = floats(scratch.target, f.kept * TILE), floats(scratch.log_prob, TILE)
    reward, discount = floats(f.reward + 4 * first, count), floats(f.discount + 4 * first, count)
    sums = floats(f.sums + 4 * part * SUMS * TILE, SUMS * TILE)
    share = F(1.0) / (F(f.minibatch) * F(f.kept))
    for j in range(f.kept):
        for s in range(count):
            target[j * TILE + s] = reward[s] + discount[s] * (target[j * TILE + s] - alpha * log_prob[s])
            sums[Sum.TARGET * TILE + s] += share * target[j * TILE + s]


@njit(inline="always")
def _quantile_slopes(f: FrameFields, scratch: Scratch, part: int, count: int, n: int) -> None:
    """Replace one critic's quantiles by the slopes of their regression towards all targets; add losses to `sums`.

    Quantile i has the level tau = (i + 1/2) / quantiles. Its slope is the sum over targets of
    -|tau - 1{error < 0}| clip(error, +-1) with error = target - quantile.
    """
    quantiles, kept = f.quantiles, f.kept
    q, target = floats(scratch.q, quantiles * TILE), floats(scratch.target, kept * TILE)
    sums = floats(f.sums + 4 * part * SUMS * TILE, SUMS * TILE)
    slope, loss = np.empty(TILE, np.float32), np.empty(TILE, np.float32)
    quantile_share = F(1.0) / (F(f.minibatch) * F(f.critics) * F(quantiles))
    fraction = quantile_share / F(kept)
    for i in range(quantiles):
        tau = (F(i) + F(0.5)) / F(quantiles)
        for s in range(count):
            slope[s], loss[s] = F(0.0), F(0.0)
        for j in range(kept):
            for s in range(count):
                error = target[j * TILE + s] - q[i * TILE + s]
                distance = abs(error)
                small = F(1.0) if distance > F(1.0) else distance
                weight = F(1.0) - tau if error < F(0.0) else tau
                slope[s] += weight * (small if error < F(0.0) else -small)
                loss[s] += weight * small * (distance - F(0.5) * small)
        for s in range(count):
            sums[Sum.VALUE_LOSS * TILE + s] += fraction * loss[s]
            sums[Sum.Q * TILE + s] += quantile_share * q[i * TILE + s]
            q[i * TILE + s] = fraction * slope[s]
        for s in range(count, n):
            q[i * TILE + s] = F(0.0)


@njit(inline="always")
def _mean_slopes(f: FrameFields, scratch: Scratch, count: int, n: int) -> None:
    """Replace one critic's quantiles by the slopes of minus their mean; add their share of it to scratch.other_q."""
    quantiles, share = f.quantiles, F(1.0) / (F(f.critics) * F(f.quantiles))
    q, mean = floats(scratch.q, quantiles * TILE), floats(scratch.other_q, TILE)
    slope = -share / F(f.minibatch)
    for i in range(quantiles):
        for s in range(count):
            mean[s] += share * q[i * TILE + s]
            q[i * TILE + s] = slope
        for s in range(count, n):
            q[i * TILE + s] = F(0.0)
