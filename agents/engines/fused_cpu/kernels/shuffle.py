"""The order of a rollout's rows in every epoch: `counter_rng.permutation`, sorted by radix."""

import numpy as np

from stride.agents.engines.fused_cpu.frame import FrameFields, fields_at
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, ints, longs
from stride.utils.counter_rng import fill_words
from stride.utils.kernel_cache import njit

RADIX = 11  # bits sorted by in one pass


@njit(**PIECE)
def shuffle(words: int, order: int, spare: int, rows: int) -> None:
    """order = the rows sorted by their word, equals as they came: `counter_rng.permutation` without its comparisons.

    words uint32 [rows] (overwritten), order int32 [rows], spare [2 * rows] of either.
    """
    buckets = np.zeros(1 << RADIX, np.int32)
    keys, next_keys = ints(words, rows), ints(spare, rows)
    index, next_index = ints(order, rows), ints(spare + 4 * rows, rows)
    for i in range(rows):
        index[i] = np.int32(i)
    for turn in range(3):
        shift, mask = np.uint32(RADIX * turn), np.uint32((1 << RADIX) - 1)
        buckets[:] = 0
        for i in range(rows):
            buckets[(np.uint32(keys[i]) >> shift) & mask] += 1
        below = np.int32(0)
        for k in range(1 << RADIX):
            count = buckets[k]
            buckets[k] = below
            below += count
        for i in range(rows):
            bucket = (np.uint32(keys[i]) >> shift) & mask
            position = buckets[bucket]
            buckets[bucket] = position + 1
            next_keys[position] = keys[i]
            next_index[position] = index[i]
        keys, next_keys = next_keys, keys
        index, next_index = next_index, index
    final = ints(order, rows)  # three turns: the result is in the spare memory
    for i in range(rows):
        final[i] = index[i]


@njit(**PIECE)
def shuffle_by_words(f: FrameFields, epoch: int, thread: int, order: int, count: int) -> None:
    """order = `count` things in the random order of this epoch. key[0] is the iteration of epoch 0."""
    key = longs(f.key, 5)
    words = f.spare + 12 * thread * f.steps * f.worlds
    table = ints(words, count).view(np.uint32)
    fill_words(table, (key[0] + epoch) & 0xFFFFFFFF, key[1], key[2], key[3], key[4])
    shuffle(words, order, words + 4 * count, count)


@njit(**PIECE)
def shuffle_epochs(frame: int, thread: int) -> None:
    """Write `order` of every epoch; epochs are divided among the threads."""
    f = fields_at(frame)
    rows = f.steps * f.worlds
    for epoch in range(thread, f.epochs, f.threads):
        shuffle_by_words(f, epoch, thread, f.order + 4 * epoch * rows, rows)


@njit(**PIECE)
def shuffle_sequences(frame: int, thread: int) -> None:
    """Write `order` of every epoch, the worlds in a random order, of each its rows one after the other."""
    f = fields_at(frame)
    steps, worlds = f.steps, f.worlds
    rows = steps * worlds
    for epoch in range(thread, f.epochs, f.threads):
        # the worlds' order waits at the end of the rows': as it is read from there, rows reach its place, never before
        order = f.order + 4 * epoch * rows
        last = order + 4 * (rows - worlds)
        shuffle_by_words(f, epoch, thread, last, worlds)
        index, picked = ints(order, rows), ints(last, worlds)
        for i in range(worlds):
            world = picked[i]
            for t in range(steps):
                index[i * steps + t] = t * worlds + world
