"""The order of a rollout's rows in every epoch: `counter_rng.permutation`, sorted by radix."""

import numpy as np

from stride.agents.engines.fused_cpu.frame import ENTRIES, At
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
    """ORDER of every epoch; epochs are shared out over the threads. `first`: iteration word of epoch 0."""
    f = longs(frame, ENTRIES)
    rows = f[At.STEPS] * f[At.WORLDS]
    words = f[At.SPARE] + 12 * thread * rows
    for epoch in range(thread, f[At.EPOCHS], f[At.THREADS]):
        table = ints(words, rows).view(np.uint32)
        fill_words(table, (first + epoch) & 0xFFFFFFFF, purpose, rank, seed_lo, seed_hi)
        shuffle(words, f[At.ORDER] + 4 * epoch * rows, words + 4 * rows, rows)
