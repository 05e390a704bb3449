"""The random order of a rollout's rows in every epoch: the same as `counter_rng.permutation`, by radix sort."""

import numpy as np

from stride.agents.engines.fused_cpu.frame import FrameFields, fields_at
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, ints, longs
from stride.utils.counter_rng import fill_words
from stride.utils.kernel_cache import njit

RADIX_BITS = 11  # bits of a word that one pass sorts by; 3 passes sort by 32 bits


@njit(**PIECE)
def shuffle(words: int, order: int, spare: int, rows: int) -> None:
    """Write to `order` the numbers 0 to rows - 1, sorted by their random word; equal words keep their order.

    Addresses: words uint32 [rows], which are overwritten; order int32 [rows]; spare [2 * rows], working memory.
    """
    buckets = np.zeros(1 << RADIX_BITS, np.int32)
    keys, next_keys = ints(words, rows), ints(spare, rows)
    index, next_index = ints(order, rows), ints(spare + 4 * rows, rows)
    for i in range(rows):
        index[i] = np.int32(i)
    for turn in range(3):
        shift, mask = np.uint32(RADIX_BITS * turn), np.uint32((1 << RADIX_BITS) - 1)
        buckets[:] = 0
        for i in range(rows):
            buckets[(np.uint32(keys[i]) >> shift) & mask] += 1
        start = np.int32(0)  # from counts to the position where each bucket starts
        for k in range(1 << RADIX_BITS):
            count = buckets[k]
            buckets[k] = start
            start += count
        for i in range(rows):
            bucket = (np.uint32(keys[i]) >> shift) & mask
            position = buckets[bucket]
            buckets[bucket] = position + 1
            next_keys[position] = keys[i]
            next_index[position] = index[i]
        keys, next_keys = next_keys, keys
        index, next_index = next_index, index
    final = ints(order, rows)  # after three turns the result is in the spare memory
    for i in range(rows):
        final[i] = index[i]


@njit(**PIECE)
def shuffle_by_words(f: FrameFields, epoch: int, thread: int, order: int, count: int) -> None:
    """Write to `order` the numbers 0 to count - 1 in the random order of this epoch.

    key[0] is the index of epoch 0; it counts epochs over the complete run.
    """
    key = longs(f.key, 5)
    words = f.spare + 12 * thread * f.steps * f.worlds
    table = ints(words, count).view(np.uint32)
    fill_words(table, (key[0] + epoch) & 0xFFFFFFFF, key[1], key[2], key[3], key[4])
    shuffle(words, order, words + 4 * count, count)


@njit(**PIECE)
def shuffle_epochs(frame: int, thread: int) -> None:
    """Write `order` of every epoch: all rows in a random order. Epochs are divided among the threads."""
    f = fields_at(frame)
    rows = f.steps * f.worlds
    for epoch in range(thread, f.epochs, f.threads):
        shuffle_by_words(f, epoch, thread, f.order + 4 * epoch * rows, rows)


@njit(**PIECE)
def shuffle_sequences(frame: int, thread: int) -> None:
    """Write `order` of every epoch for sequences: worlds in a random order, the rows of each in order of time."""
    f = fields_at(frame)
    steps, worlds = f.steps, f.worlds
    rows = steps * worlds
    for epoch in range(thread, f.epochs, f.threads):
        # the worlds' order is kept in the last entries of the rows' order, which are read before they are overwritten
        order = f.order + 4 * epoch * rows
        last = order + 4 * (rows - worlds)
        shuffle_by_words(f, epoch, thread, last, worlds)
        index, picked = ints(order, rows), ints(last, worlds)
        for i in range(worlds):
            world = picked[i]
            for t in range(steps):
                index[i * steps + t] = t * worlds + world
