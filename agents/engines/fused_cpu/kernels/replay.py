"""The kernels that draw transitions from a replay memory and learn from them: gradient, clipping, Adam, target nets.

All threads run `learn` together. How a tile of samples gets its gradient is the algorithm's own kernel: q.py (DQN),
squashed.py (SAC), quantiles.py (TQC), smoothed.py (TD3).
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.frame import fields_at, live_at, segment_of, stats_at
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, barrier, call, doubles, flags, floats, ints, longs
from stride.agents.engines.fused_cpu.kernels.nets import moves_actor, temperature
from stride.agents.engines.fused_cpu.kernels.optimizer import adam, add_sums, clear_sums, norm_of, prepare, reduce_parts
from stride.agents.engines.plan.layout import DELAYED, LANES
from stride.agents.engines.plan.numbers import SUMS, Sum
from stride.utils.kernel_cache import njit

F = np.float32


@njit(**PIECE)
def draw(frame: int, written: int, rows: int) -> None:
    """Draw D transitions as Memory.transitions does, but write only where they are, not their observations.

    The memory is a ring of `rows` rows; `written` rows were written in total. Reads uniforms, powers, ring_reward,
    slot, terminated, truncated. Writes for each transition of k <= span steps:
      place      row * worlds + world of its first observation
      following  the same for the observation after it; where a time limit cut, ~(slot * worlds + world) in final_obs
      reward     the sum of gamma^j r_j over its steps
      discount   gamma^k, or 0 where the episode terminated
    Where rows have a gamma of their own, a transition uses that of its first row, from which `powers` is made anew.
    """
    f = fields_at(frame)
    worlds, span, count = f.worlds, f.span, f.drawn
    ring = rows * worlds
    uniform, power = floats(f.uniforms, 3 * count), floats(f.powers, span + 1)
    reward, slot = floats(f.ring_reward, ring), longs(f.slot, ring)
    terminated, truncated = flags(f.terminated, ring), flags(f.truncated, ring)
    place, following = ints(f.place, count), ints(f.following, count)
    total_reward, discount = floats(f.reward, count), floats(f.discount, count)
    oldest = max(0, written - rows)
    choices = min(written, rows) - span
    for i in range(count):
        # a uniform number has 24 bits, with which a million rows are not equally likely; two of them have 48
        fine = np.float64(uniform[i]) + np.float64(uniform[count + i]) * 2.0**-24
        row, world = oldest + int(fine * choices), int(uniform[2 * count + i] * F(worlds))
        place[i] = np.int32(row % rows * worlds + world)
        if f.own_gamma:
            gamma = floats(f.gammas, rows)[row % rows]
            for k in range(span):
                power[k + 1] = power[k] * gamma
        total, k = F(0.0), 0
        index = int(place[i])
        while True:
            total += reward[index] * power[k]
            k += 1
            if k == span or terminated[index] or truncated[index]:
                break
            index = (row + k) % rows * worlds + world
        total_reward[i] = total
        discount[i] = F(0.0) if terminated[index] else power[k]
        next_index = (row + k) % rows * worlds + world
        following[i] = np.int32(~(slot[index] * worlds + world) if truncated[index] else next_index)


@njit(**PIECE)
def _report(frame: int, total: float, alpha: float, number: int) -> None:
    """Add `sums` of update `number` to `stats` where that update is reported, and clear them.

    Sets stats.sound: 1.0 where the step may be made, as all losses, the gradient and the collected rows are finite.
    `total`: norm of the gradient; `alpha`: entropy coefficient.
    """
    f = fields_at(frame)
    stats, stat_sums = stats_at(f.stats), doubles(f.stats, SUMS)
    sums = np.empty(SUMS)
    add_sums(frame, sums.ctypes.data)
    clear_sums(f)
    stats.every_loss += sums[Sum.VALUE_LOSS]
    if number % f.report_every == 0:
        for k in range(SUMS):
            stat_sums[k] += sums[k]  # the first fields of Stat are the entries of Sum
        stats.alpha += alpha
        stats.norm_total += total
        stats.updates += 1.0
    lost = not (math.isfinite(sums[Sum.VALUE_LOSS]) and math.isfinite(sums[Sum.POLICY_LOSS]))
    sound = math.isfinite(total) and not lost
    stats.sound = 1.0 if sound and not flags(f.poisoned, 1)[0] else 0.0
    if not sound:
        stats.broken += 1.0
    if lost:
        stats.lost += 1.0


@njit(**PIECE)
def _follow(frame: int, number: int) -> None:
    """Move the target net's copy of a segment by the fraction tau towards the segment; both are in `parameters`."""
    f = fields_at(frame)
    segment = segment_of(f, number)
    first, n = segment.first, segment.last - segment.first
    tau = F(live_at(f.live).tau)
    source = floats(f.parameters + 4 * first, n)
    target = floats(f.parameters + 4 * (first + f.follows), n)
    for i in range(n):
        target[i] += tau * (source[i] - target[i])


@njit(**PIECE)
def learn(frame: int, thread: int) -> None:
    """Make the updates [f.begin, f.end) of those that were drawn.

    Changes parameters, both moments and turned, and adds to stats. Each update transposes the nets that the update
    before has changed, and only at the begin of a call all of them.
    """
    f = fields_at(frame)
    threads, parts, size = f.threads, f.parts, f.minibatch
    live, stats = live_at(f.live), stats_at(f.stats)
    squares = doubles(f.squares, f.segments)
    factors, actor_factors = np.empty(5), np.empty(5)
    vectors, turning = (size + LANES - 1) // LANES, f.nets
    barrier(f.barrier, threads)  # another thread may still be in the call before, writing what is read below
    made, actor_made = live.step, live.actor_step
    for number in range(f.begin, f.end):
        for net in range(turning):
            call(f.turn, (frame, net, thread, threads))
        moves = moves_actor(f, number)
        turning = f.nets if moves else f.moving
        alpha = temperature(f)
        barrier(f.barrier, threads)
        for part in range(thread, parts, threads):
            # a part begins at a full vector, so that only the last vector of a minibatch may be incomplete
            begin, end = part * vectors // parts * LANES, min((part + 1) * vectors // parts * LANES, size)
            call(f.gradient_part, (frame, thread, part, number, begin, end))
        barrier(f.barrier, threads)
        for segment in range(thread, f.segments, threads):
            reduce_parts(frame, segment)
        barrier(f.barrier, threads)
        total = norm_of(squares)
        if thread == 0:
            _report(frame, total, alpha, int(live.made) + number + 1)
        barrier(f.barrier, threads)
        if stats.sound == 1.0:
            made += 1.0
            prepare(factors, live, total, made, f.decoupled, f.rectified)
            if moves:
                actor_made += 1.0
                prepare(actor_factors, live, total, actor_made, f.decoupled, f.rectified)
            for segment in range(thread, f.segments, threads):
                part = segment_of(f, segment).part
                if part != DELAYED:
                    adam(frame, segment, factors.ctypes.data)
                elif moves:
                    adam(frame, segment, actor_factors.ctypes.data)
                if part and (moves or f.actor_every == 0):
                    _follow(frame, segment)
        barrier(f.barrier, threads)
    if thread == 0:
        live.step, live.actor_step = made, actor_made
