"""What nets with a memory remember of each world, where kernels find it; and the room to learn from sequences."""

import numpy as np
import torch

from stride.agents.engines.fused_cpu.frame import TILE, Frame, aligned
from stride.agents.engines.plan.layout import FlatLayout, padded
from stride.agents.experience.nouns import Tree, leaves


class Carry:
    """Torch's states, copied in before a rollout is played or learnt from, and out when it is played."""

    def __init__(self, frame: Frame, layout: FlatLayout, carry: Tree, steps: int, threads: int) -> None:
        worlds, width = leaves(carry)[0].shape
        nets, cells = len(layout.nets), layout.cells
        table = aligned(nets * cells * 2 * worlds * padded(width)).reshape(nets * cells, 2 * worlds, padded(width))
        self._views = [*torch.from_numpy(table)[:, :worlds, :width].unbind()]
        rows_kept = steps * max(1, TILE // steps)
        frame.fill(
            cells=cells,
            together=steps,
            carry=table,
            sequences=np.ascontiguousarray(np.arange(steps * worlds, dtype=np.int32).reshape(steps, worlds).T),
            past=aligned(threads * padded_to_tiles(rows_kept) * layout.hidden),
        )

    def fetch(self, carry: Tree) -> None:
        """Take the states that torch has."""
        torch._foreach_copy_(self._views, leaves(carry))

    def give(self, carry: Tree) -> None:
        """Write the states to where torch has them."""
        torch._foreach_copy_(leaves(carry), self._views)


def padded_to_tiles(rows: int) -> int:
    """The next full number of tiles."""
    return -(-rows // TILE) * TILE
