"""The recurrent states of nets with a memory, at an address that kernels read, and memory to learn from sequences."""

import numpy as np
import torch

from stride.agents.engines.fused_cpu.frame import TILE, Frame, aligned
from stride.agents.engines.plan.layout import FlatLayout, padded
from stride.agents.experience.nouns import Tree, leaves


class Carry:
    """A copy of torch's recurrent states of all worlds.

    They are copied from torch before a rollout is played or learnt from, and back after it was played. `carry` in the
    frame has N states of each layer, then as many that kernels work with.
    """

    def __init__(self, frame: Frame, layout: FlatLayout, carry: Tree, steps: int, threads: int) -> None:
        worlds, width = leaves(carry)[0].shape
        nets, cells = len(layout.nets), layout.cells
        table = aligned(nets * cells * 2 * worlds * padded(width)).reshape(nets * cells, 2 * worlds, padded(width))
        self._views = [*torch.from_numpy(table)[:, :worlds, :width].unbind()]  # torch's states, without padding
        rows_kept = steps * max(1, TILE // steps)  # complete sequences whose activations are kept for the way back
        frame.fill(
            cells=cells,
            together=steps,
            carry=table,
            sequences=np.ascontiguousarray(np.arange(steps * worlds, dtype=np.int32).reshape(steps, worlds).T),
            past=aligned(threads * padded_to_tiles(rows_kept) * layout.hidden),
        )

    def fetch(self, carry: Tree) -> None:
        """Copy torch's states to the kernels' memory."""
        torch._foreach_copy_(self._views, leaves(carry))

    def give(self, carry: Tree) -> None:
        """Copy the states back to torch's tensors."""
        torch._foreach_copy_(leaves(carry), self._views)


def padded_to_tiles(rows: int) -> int:
    """Return `rows`, rounded up to a multiple of TILE."""
    return -(-rows // TILE) * TILE
