"""Shuffle a rollout's rows for every epoch on the GPU (order.cu), in the order of `permutation` in counter_rng.py."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stride.utils.cuda_kernels import Compile, read_source

SOURCE = Path(__file__).with_suffix(".cu")
BLOCK_THREADS, ROWS_PER_THREAD = 256, 16
DIGITS, DIGIT_BITS = 16, 4  # the radix sort of 32-bit words sorts by 4 bits at a time


class Order:
    """Owns the orders, int32 [epochs, rows], and the buffers for sorting."""

    def __init__(self, epochs: int, rows: int, device: torch.device, compile: Compile) -> None:
        self._kernels, self._epochs, self._rows = compile(read_source(SOURCE), device), epochs, rows
        self._blocks = -(-rows // (BLOCK_THREADS * ROWS_PER_THREAD))
        self._words = torch.zeros(2, epochs, rows, dtype=torch.int32, device=device)
        self._order = torch.zeros(2, epochs, rows, dtype=torch.int32, device=device)
        self._counts = torch.zeros(epochs, DIGITS, self._blocks, dtype=torch.int32, device=device)

    def draw(self, key: Tensor) -> Tensor:
        """Return the orders int32 [epochs, rows]; `key` int64 [5] on the device: counters of epoch 0's random key."""
        size, blocks, launch = np.int32(self._rows), np.int32(self._blocks), self._kernels.launch
        words, order = self._words, self._order
        fours = -(-self._rows // 4) * self._epochs  # a thread draws four random words
        launch("draw_rows", fours, key, words[0], order[0], size, np.int32(self._epochs))
        threads = self._epochs * self._blocks * BLOCK_THREADS
        for turn in range(32 // DIGIT_BITS):  # 8 passes, an even number: the last one writes to buffers 0
            source, target, shift = turn % 2, 1 - turn % 2, np.int32(DIGIT_BITS * turn)
            launch("count_digits", threads, words[source], self._counts, size, blocks, shift, block=BLOCK_THREADS)
            launch("place_digits", self._epochs * BLOCK_THREADS, self._counts, blocks, block=BLOCK_THREADS)
            buffers = words[source], order[source], self._counts, words[target], order[target]
            launch("move_digits", threads, *buffers, size, blocks, shift, block=BLOCK_THREADS)
        return order[0]
