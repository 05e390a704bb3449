"""The order of a rollout's rows in every epoch, by the kernels of order.cu: `permutation` of utils/counter_rng.py."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stride.utils.cuda_kernels import Compile, read_source

SOURCE = Path(__file__).with_suffix(".cu")
BLOCK, EACH = 256, 16  # threads of a block, rows of a thread
DIGITS, BITS = 16, 4


class Order:
    """Owns the orders, int32 [epochs, rows], and what is sorted on the way to them."""

    def __init__(self, epochs: int, rows: int, device: torch.device, compile: Compile) -> None:
        self._kernels, self._epochs, self._rows = compile(read_source(SOURCE), device), epochs, rows
        self._blocks = -(-rows // (BLOCK * EACH))
        self._words = torch.zeros(2, epochs, rows, dtype=torch.int32, device=device)
        self._order = torch.zeros(2, epochs, rows, dtype=torch.int32, device=device)
        self._counts = torch.zeros(epochs, DIGITS, self._blocks, dtype=torch.int32, device=device)

    def draw(self, key: Tensor) -> Tensor:
        """The orders for the counters of a key, int64 [5] on the device; the first is that of epoch 0."""
        size, blocks, launch = np.int32(self._rows), np.int32(self._blocks), self._kernels.launch
        words, order = self._words, self._order
        fours = -(-self._rows // 4) * self._epochs
        launch("draw_rows", fours, key, words[0], order[0], size, np.int32(self._epochs))
        threads = self._epochs * self._blocks * BLOCK
        for turn in range(32 // BITS):  # an even number: the last one writes where the first reads
            source, target, shift = turn % 2, 1 - turn % 2, np.int32(BITS * turn)
            launch("count_digits", threads, words[source], self._counts, size, blocks, shift, block=BLOCK)
            launch("place_digits", self._epochs * BLOCK, self._counts, blocks, block=BLOCK)
            buffers = words[source], order[source], self._counts, words[target], order[target]
            launch("move_digits", threads, *buffers, size, blocks, shift, block=BLOCK)
        return order[0]
