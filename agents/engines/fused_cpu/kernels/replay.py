"""Updates from a replay memory: which rows were drawn, gradient, clip, Adam, targets that follow. All threads together.

What an algorithm makes of a tile of samples is its own kernel: q.py, squashed.py.
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.frame import ENTRIES, LIVES, STATS, SUMS, At
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, barrier, call, doubles, flags, floats, ints, longs
from stride.agents.engines.fused_cpu.kernels.nets import temperature
from stride.agents.engines.fused_cpu.kernels.optimizer import adam, add_sums, clear_sums, norm_of, prepare, reduce_parts
from stride.agents.engines.plan.layout import LANES
from stride.agents.engines.plan.numbers import Live, Stat, Sum
from stride.utils.kernel_cache import njit

F = np.float32


@njit(**PIECE)
def draw(frame: int, written: int, rows: int) -> None:
    """Memory.transitions without its copies: writes where each of D transitions lies, its reward and discount.

    Reads UNIFORMS, POWERS, RING_REWARD, SLOT and flags; writes PLACE, FOLLOWING, REWARD, DISCOUNT. `rows` of each
    world are the ring's size, `written` how many there ever were. PLACE is row * worlds + world, and so is
    FOLLOWING, but ~(slot * worlds + world), in FINAL_OBS, after a cut. DISCOUNT is gamma^k of k steps, 0 after an end.
    """
    f = longs(frame, ENTRIES)
    worlds, span, count = f[At.WORLDS], f[At.SPAN], f[At.DRAWN]
    ring = rows * worlds
    uniform, power = floats(f[At.UNIFORMS], 3 * count), floats(f[At.POWERS], span + 1)
    reward, slot = floats(f[At.RING_REWARD], ring), longs(f[At.SLOT], ring)
    lost, cut = flags(f[At.TERMINATED], ring), flags(f[At.TRUNCATED], ring)
    place, following = ints(f[At.PLACE], count), ints(f[At.FOLLOWING], count)
    gained, discount = floats(f[At.REWARD], count), floats(f[At.DISCOUNT], count)
    oldest = max(0, written - rows)
    choices = min(written, rows) - span
    for i in range(count):
        # 24 bits would draw a million rows unevenly: 48 of two uniforms
        fine = np.float64(uniform[i]) + np.float64(uniform[count + i]) * 2.0**-24
        row, world = oldest + int(fine * choices), int(uniform[2 * count + i] * F(worlds))
        place[i] = np.int32(row % rows * worlds + world)
        total, k = F(0.0), 0
        at = np.int64(place[i])
        while True:
            total += reward[at] * power[k]
            k += 1
            if k == span or lost[at] or cut[at]:
                break
            at = (row + k) % rows * worlds + world
        gained[i] = total
        discount[i] = F(0.0) if lost[at] else power[k]
        following[i] = np.int32(~(slot[at] * worlds + world) if cut[at] else (row + k) % rows * worlds + world)


@njit(**PIECE)
def _tell(frame: int, total: float, alpha: float, number: int) -> None:
    """Add SUMS of update `number` to STATS where it is one that is told of, clear them, and say whether it is sound."""
    f = longs(frame, ENTRIES)
    told = doubles(f[At.STATS], STATS)
    sums = np.empty(SUMS)
    add_sums(frame, sums.ctypes.data)
    clear_sums(frame)
    told[Stat.EVERY_LOSS] += sums[Sum.VALUE_LOSS]
    if number % f[At.TELL_EVERY] == 0:
        for k in range(SUMS):
            told[k] += sums[k]  # the first entries of Stat are those of Sum
        told[Stat.ALPHA] += alpha
        told[Stat.NORM_TOTAL] += total
        told[Stat.UPDATES] += 1.0
    lost = not (math.isfinite(sums[Sum.VALUE_LOSS]) and math.isfinite(sums[Sum.POLICY_LOSS]))
    sound = math.isfinite(total) and not lost
    told[Stat.SOUND] = 1.0 if sound and not flags(f[At.POISONED], 1)[0] else 0.0
    if not sound:
        told[Stat.BROKEN] += 1.0
    if lost:
        told[Stat.LOST] += 1.0


@njit(**PIECE)
def _follow(frame: int, segment: int) -> None:
    """The targets of a segment move towards it by a share of tau, both in PARAMETERS."""
    f = longs(frame, ENTRIES)
    row = longs(f[At.SEGMENT_TABLE] + 24 * segment, 3)
    first, n = row[0], row[1] - row[0]
    tau = F(doubles(f[At.LIVE], LIVES)[Live.TAU])
    source = floats(f[At.PARAMETERS] + 4 * first, n)
    target = floats(f[At.PARAMETERS] + 4 * (first + f[At.FOLLOWS]), n)
    for i in range(n):
        target[i] += tau * (source[i] - target[i])


@njit(**PIECE)
def learn(frame: int, thread: int) -> None:
    """The updates [BEGIN, END) of those that were drawn: PARAMETERS, moments and TURNED change, STATS grow."""
    f = longs(frame, ENTRIES)
    threads, parts, size = f[At.THREADS], f[At.PARTS], f[At.MINIBATCH]
    live, told = doubles(f[At.LIVE], LIVES), doubles(f[At.STATS], STATS)
    squares, table = doubles(f[At.SQUARES], f[At.SEGMENTS]), longs(f[At.SEGMENT_TABLE], 3 * f[At.SEGMENTS])
    factors, vectors, turning = np.empty(4), (size + LANES - 1) // LANES, f[At.NETS]
    barrier(f[At.BARRIER], threads)  # before anything is read that the call before may still be writing
    made = live[Live.STEP]
    for q in range(f[At.BEGIN], f[At.END]):
        for net in range(turning):
            call(f[At.TURN], (frame, net, thread, threads))
        turning = f[At.MOVING]
        alpha = temperature(frame)
        barrier(f[At.BARRIER], threads)
        for part in range(thread, parts, threads):
            # whole vectors of samples, so that only the last one of a minibatch is ragged
            a, b = part * vectors // parts * LANES, min((part + 1) * vectors // parts * LANES, size)
            call(f[At.GRADIENT_PART], (frame, thread, part, q, a, b))
        barrier(f[At.BARRIER], threads)
        for segment in range(thread, f[At.SEGMENTS], threads):
            reduce_parts(frame, segment)
        barrier(f[At.BARRIER], threads)
        total = norm_of(squares)
        if thread == 0:
            _tell(frame, total, alpha, int(live[Live.MADE]) + q + 1)
        barrier(f[At.BARRIER], threads)
        if told[Stat.SOUND] == 1.0:
            made += 1.0
            prepare(factors, live, total, made, f[At.DECOUPLED])
            for segment in range(thread, f[At.SEGMENTS], threads):
                adam(frame, segment, factors.ctypes.data)
                if table[3 * segment + 2] == 1:
                    _follow(frame, segment)
        barrier(f[At.BARRIER], threads)
    if thread == 0:
        live[Live.STEP] = made
