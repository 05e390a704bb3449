"""Epochs of minibatches: shuffle, gather, gradient, clip, Adam. All threads walk through it together.

A minibatch is cut into PARTS whose gradients are added in a fixed order, so that the result does not depend on how many
threads there are.
"""

import math

import numpy as np

from agents.engines.fused_cpu.calls import PIECE, barrier, call, doubles, flags, floats, ints, longs
from agents.engines.fused_cpu.frame import ENTRIES, LANE_SUMS, SETTINGS, STATS, SUMS, TILE, At, Lane, Setting, Stat
from agents.engines.fused_cpu.lanes import LANES
from utils.counter_rng import fill_words
from utils.kernel_cache import njit

F = np.float32
RADIX = 11  # bits sorted by in one pass


@njit(**PIECE)
def shuffle(words: int, order: int, spare: int, rows: int) -> None:
    """order = the rows sorted by their word, equals as they came: `counter_rng.permutation` without its comparisons.

    words uint32 [rows] (overwritten), order int32 [rows], spare [2 * rows] of either.
    """
    buckets = np.zeros(1 << RADIX, np.int32)
    keys, other = ints(words, rows), ints(spare, rows)
    index, swapped = ints(order, rows), ints(spare + 4 * rows, rows)
    for i in range(rows):
        index[i] = np.int32(i)
    for turn in range(3):
        shift, mask = np.uint32(RADIX * turn), np.uint32((1 << RADIX) - 1)
        buckets[:] = 0
        for i in range(rows):
            buckets[(np.uint32(keys[i]) >> shift) & mask] += 1
        below = np.int32(0)
        for k in range(1 << RADIX):
            here = buckets[k]
            buckets[k] = below
            below += here
        for i in range(rows):
            bucket = (np.uint32(keys[i]) >> shift) & mask
            place = buckets[bucket]
            buckets[bucket] = place + 1
            other[place] = keys[i]
            swapped[place] = index[i]
        keys, other = other, keys
        index, swapped = swapped, index
    final = ints(order, rows)  # three turns: the result lies in the spare memory
    for i in range(rows):
        final[i] = index[i]


@njit(**PIECE)
def shuffle_epochs(frame: int, thread: int, first: int, purpose: int, rank: int, seed_lo: int, seed_hi: int) -> None:
    """The order of every epoch's rows; epochs are shared out over the threads. `first`: iteration word of epoch 0."""
    f = longs(frame, ENTRIES)
    rows = f[At.STEPS] * f[At.WORLDS]
    words = f[At.SPARE] + 12 * thread * rows
    for epoch in range(thread, f[At.EPOCHS], f[At.THREADS]):
        table = ints(words, rows).view(np.uint32)
        fill_words(table, (first + epoch) & 0xFFFFFFFF, purpose, rank, seed_lo, seed_hi)
        shuffle(words, f[At.ORDER] + 4 * epoch * rows, words + 4 * rows, rows)


@njit(inline="always")
def scratch_of(frame: int, thread: int) -> tuple[int, int, int, int]:
    """This thread's scratch: features, activations, outputs, and the rest."""
    f = longs(frame, ENTRIES)
    base = f[At.SCRATCH] + 4 * thread * f[At.SCRATCH_SIZE]
    x = base + 4 * LANES  # the first vector holds a 1.0
    hidden = x + 4 * TILE * f[At.ROW]
    outputs = hidden + 4 * TILE * f[At.HIDDEN_SIZE]
    return x, hidden, outputs, outputs + 4 * TILE * f[At.OUTPUTS]


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
def gradient_part(frame: int, thread: int, part: int, order: int, begin: int, end: int, weighing: int) -> None:
    """Add the gradient of the samples order[begin:end] to this part's; `weighing`: mean, 1 / deviation, 1 / rows."""
    f = longs(frame, ENTRIES)
    actions, nets, rows = f[At.ACTIONS], f[At.NETS], f[At.STEPS] * f[At.WORLDS]
    x, hidden, outputs, rest = scratch_of(frame, thread)
    odds, taken = rest, rest + 4 * TILE * actions
    allowed, actor = rest + 8 * TILE * actions, rest + 12 * TILE * actions
    critic = actor + 12 * TILE
    above = critic + 12 * TILE
    below = above + 4 * TILE * f[At.WIDEST]
    one = f[At.SCRATCH] + 4 * thread * f[At.SCRATCH_SIZE]
    gradient = f[At.PARTIAL] + 4 * part * f[At.SIZE]
    lanes = f[At.LANES] + 4 * part * SUMS * TILE
    numbers = doubles(weighing, 3)
    mean, inverse, share = F(numbers[0]), F(numbers[1]), F(numbers[2])
    index = ints(order, rows)
    log_prob, weight, counted = floats(f[At.LOG_PROB], rows), floats(f[At.WEIGHT], rows), floats(f[At.COUNTED], rows)
    value, target = floats(f[At.VALUE], rows), floats(f[At.TARGET], rows)
    mine, its = floats(actor, 3 * TILE), floats(critic, 3 * TILE)
    each = F(1.0) / F(f[At.MINIBATCH])
    for start in range(begin, end, TILE):
        count = min(TILE, end - start)
        padded = (count + LANES - 1) // LANES * LANES
        call(f[At.ENCODE], (frame, f[At.OBS], order, start, count, x))
        gather_actions(frame, order, start, count, taken, allowed)
        for s in range(3 * TILE):
            mine[s], its[s] = F(0.0), F(0.0)
        for s in range(count):
            row = index[start + s]
            mine[s], mine[TILE + s] = log_prob[row], (weight[row] - mean) * inverse
            mine[2 * TILE + s] = share * counted[row]
            its[s], its[TILE + s], its[2 * TILE + s] = value[row], target[row], each
        for net in range(nets):
            call(f[At.FORWARD], (frame, net, x, hidden, padded, outputs))
            if net == 0:
                call(f[At.ACTOR_LOSS], (frame, outputs, odds, taken, allowed, padded, actor, gradient, lanes))
            if net == f[At.VALUE_NET]:
                call(f[At.CRITIC_LOSS], (frame, outputs + 4 * TILE * f[At.VALUE_ROW], padded, critic, lanes))
            call(f[At.BACKWARD], (frame, net, x, hidden, padded, outputs, gradient, one, above, below))


@njit(**PIECE)
def _weighing(frame: int, order: int, begin: int, end: int, out: int) -> None:
    """How the weights of this minibatch are shifted and scaled: mean, 1 / deviation, and what a row counts."""
    f = longs(frame, ENTRIES)
    rows = f[At.STEPS] * f[At.WORLDS]
    weight, counted, index = floats(f[At.WEIGHT], rows), floats(f[At.COUNTED], rows), ints(order, rows)
    result, stats = doubles(out, 3), doubles(f[At.STATS], STATS)
    base = np.float64(weight[index[begin]])
    count, total, squares = 0.0, 0.0, 0.0
    for i in range(begin, end):
        row = index[i]
        share = np.float64(counted[row])
        w = (weight[row] - base) * share
        count += share
        total += w
        squares += w * w
    count = max(count, 1.0)
    result[0], result[1], result[2] = 0.0, 1.0, 1.0 / count
    if f[At.NORMALIZE] == 1:
        mean = total / count
        result[0] = mean + base
        result[1] = 1.0 / (math.sqrt(max(squares / count - mean * mean, 0.0)) + 1e-8)
    elif f[At.NORMALIZE] == 2:
        result[0], result[1] = stats[Stat.WEIGHT_MEAN], 1.0 / (stats[Stat.WEIGHT_STD] + 1e-8)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def reduce_parts(frame: int, segment: int) -> None:
    """Add up the parts' gradients of a segment, clear them, and note the sum of squares."""
    f = longs(frame, ENTRIES)
    row = longs(f[At.SEGMENT_TABLE] + 24 * segment, 3)
    first, n = row[0], row[1] - row[0]
    total = floats(f[At.GRADIENT] + 4 * first, n)
    mine = floats(f[At.PARTIAL] + 4 * first, n)
    for i in range(n):
        total[i] = mine[i]
        mine[i] = F(0.0)
    for part in range(1, f[At.PARTS]):
        other = floats(f[At.PARTIAL] + 4 * (part * f[At.SIZE] + first), n)
        for i in range(n):
            total[i] += other[i]
            other[i] = F(0.0)
    squares = F(0.0)
    for i in range(n):
        squares += total[i] * total[i]
    doubles(f[At.SQUARES], f[At.SEGMENTS])[segment] = np.float64(squares)


@njit(inline="always")
def norm_of(squares: np.ndarray) -> float:
    """Of the whole gradient, from the segments' sums of squares."""
    total = 0.0
    for segment in range(squares.size):
        total += squares[segment]
    return math.sqrt(total)


@njit(inline="always")
def prepare(factors: np.ndarray, settings: np.ndarray, norm: float, made: float, decoupled: int) -> None:
    """What `adam` multiplies by in step `made`, the gradient being of this norm before it is clipped."""
    rate = settings[Setting.LEARNING_RATE]
    factors[0] = min(1.0, settings[Setting.MAX_NORM] / (norm + 1e-6))
    factors[1] = rate / (1.0 - settings[Setting.BETA_1] ** made)
    factors[2] = 1.0 / math.sqrt(1.0 - settings[Setting.BETA_2] ** made)
    factors[3] = 1.0 - rate * settings[Setting.DECAY] if decoupled else 1.0


@njit(**PIECE)
def adam(frame: int, segment: int, factors: int) -> None:
    """One step of Adam on a segment; factors: gradient scale, step, 1 / sqrt(correction), shrinking."""
    f = longs(frame, ENTRIES)
    row = longs(f[At.SEGMENT_TABLE] + 24 * segment, 3)
    first, n = row[0], row[1] - row[0]
    given, settings = doubles(factors, 4), doubles(f[At.SETTINGS], SETTINGS)
    scale, step, correction, shrink = F(given[0]), F(given[1]), F(given[2]), F(given[3])
    b1, b2, eps = F(1.0 - settings[Setting.BETA_1]), F(settings[Setting.BETA_2]), F(settings[Setting.EPSILON])
    c2 = F(1.0 - settings[Setting.BETA_2])
    decay = F(0.0) if f[At.DECOUPLED] else F(settings[Setting.DECAY])
    parameter, gradient = floats(f[At.PARAMETERS] + 4 * first, n), floats(f[At.GRADIENT] + 4 * first, n)
    moment, square = floats(f[At.FIRST_MOMENT] + 4 * first, n), floats(f[At.SECOND_MOMENT] + 4 * first, n)
    for i in range(n):
        g = gradient[i] * scale + decay * parameter[i]
        m = moment[i] + b1 * (g - moment[i])
        v = b2 * square[i] + c2 * g * g
        moment[i], square[i] = m, v
        parameter[i] = parameter[i] * shrink - step * m / (np.sqrt(v) * correction + eps)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def add_lanes(frame: int, sums: int) -> None:
    """Sum the parts' and lanes' sums of this minibatch into sums [SUMS]."""
    f = longs(frame, ENTRIES)
    out = doubles(sums, SUMS)
    for k in range(SUMS):
        total = F(0.0)
        for part in range(f[At.PARTS]):
            lanes = floats(f[At.LANES] + 4 * TILE * (part * SUMS + k), TILE)
            for s in range(TILE):
                total += lanes[s]
        out[k] = np.float64(total)


@njit(inline="always")
def clear_lanes(frame: int) -> None:
    f = longs(frame, ENTRIES)
    floats(f[At.LANES], f[At.PARTS] * SUMS * TILE)[:] = F(0.0)


@njit(**PIECE)
def _tell(frame: int, sums: int, total: float, lost: bool, halted: bool) -> None:
    """Add this minibatch's numbers to the statistics, and clear the lanes they came from."""
    f = longs(frame, ENTRIES)
    stats, added = doubles(f[At.STATS], STATS), doubles(sums, SUMS)
    for k in range(LANE_SUMS):
        stats[k] += added[k]  # the first entries of Stat are those of Lane
    clear_lanes(frame)
    if halted:
        stats[Stat.HALTED] = 1.0
    stats[Stat.STOPPED] += stats[Stat.HALTED]
    squares, table = doubles(f[At.SQUARES], f[At.SEGMENTS]), longs(f[At.SEGMENT_TABLE], 3 * f[At.SEGMENTS])
    for part in range(3):
        of_part = 0.0
        for segment in range(f[At.SEGMENTS]):
            if table[3 * segment + 2] == part:
                of_part += squares[segment]
        stats[Stat.NORM_ACTOR + part] += math.sqrt(of_part)
    stats[Stat.NORM_TOTAL] += total
    stats[Stat.UPDATES] += 1.0
    if lost:
        stats[Stat.LOST] += 1.0
    if lost or not math.isfinite(total):
        stats[Stat.BROKEN] += 1.0


@njit(**PIECE)
def learn(frame: int, thread: int) -> None:
    """What is left of an iteration once it is played; of a long one the updates [BEGIN, END)."""
    f = longs(frame, ENTRIES)
    if f[At.BEGIN] == 0:
        call(f[At.JUDGE], (frame, thread))
    call(f[At.UPDATE], (frame, thread))


@njit(**PIECE)
def update(frame: int, thread: int) -> None:
    """The updates [BEGIN, END) of this rollout, counted over all epochs; nothing once KL_LIMIT has been exceeded."""
    f = longs(frame, ENTRIES)
    threads, parts, rows, size = f[At.THREADS], f[At.PARTS], f[At.STEPS] * f[At.WORLDS], f[At.MINIBATCH]
    settings, stats = doubles(f[At.SETTINGS], SETTINGS), doubles(f[At.STATS], STATS)
    squares = doubles(f[At.SQUARES], f[At.SEGMENTS])
    per_epoch = (rows + size - 1) // size
    weighing, factors, sums = np.empty(3), np.empty(4), np.empty(SUMS)
    barrier(f[At.BARRIER], threads)  # the call before has written what is read now
    made, halted = settings[Setting.STEP], stats[Stat.HALTED] > 0
    for q in range(f[At.BEGIN], f[At.END]):
        if halted:
            break
        order = f[At.ORDER] + 4 * (q // per_epoch) * rows
        low = (q % per_epoch) * size
        high = min(low + size, rows)
        _weighing(frame, order, low, high, weighing.ctypes.data)
        for part in range(thread, parts, threads):
            # whole tiles, so that only the last one of a minibatch is ragged
            tiles = (high - low + TILE - 1) // TILE
            a, b = low + part * tiles // parts * TILE, min(low + (part + 1) * tiles // parts * TILE, high)
            call(f[At.GRADIENT_PART], (frame, thread, part, order, a, b, weighing.ctypes.data))
        barrier(f[At.BARRIER], threads)
        for segment in range(thread, f[At.SEGMENTS], threads):
            reduce_parts(frame, segment)
        barrier(f[At.BARRIER], threads)
        total = norm_of(squares)
        add_lanes(frame, sums.ctypes.data)
        halted = sums[Lane.KL] > settings[Setting.KL_LIMIT]
        lost = not math.isfinite(sums[Lane.POLICY_LOSS] + sums[Lane.VALUE_LOSS] + sums[Lane.ENTROPY])
        if math.isfinite(total) and not lost and not halted:
            made += 1.0
            prepare(factors, settings, total, made, f[At.DECOUPLED])
            for segment in range(thread, f[At.SEGMENTS], threads):
                adam(frame, segment, factors.ctypes.data)
        barrier(f[At.BARRIER], threads)  # all have read the sums, which are cleared now
        if thread == 0:
            _tell(frame, sums.ctypes.data, total, lost, halted)
        if thread == threads - 1:
            for net in range(f[At.NETS]):
                call(f[At.TURN], (frame, net, 0, 1))
        barrier(f[At.BARRIER], threads)
    if thread == 0:
        settings[Setting.STEP] = made
