"""Prioritised replay: a sum tree over the rows of a memory says how often each is drawn (Schaul et al. 2016).

The tree is one array [2 * half], half a power of two: node 1 is the root, the sum of all; node i is the sum of nodes 2i
and 2i + 1; nodes from `half` on are the rows' priorities, entry row % rows * worlds + world of the ring. A row that may
not be drawn has priority 0.

On the CPU Numba kernels change one entry after the other. On a GPU all entries are changed at once, without a wait.
Both add the same two numbers for each sum, so both draw the same rows.
"""

import numpy as np
import torch
from torch import Tensor

from stride.utils.kernel_cache import njit

MIN_ERROR = 1e-6  # added to each absolute error, so that every row can be drawn


@njit(cache=True)
def _set(tree: np.ndarray, entry_index: int, value: float) -> None:
    """Set a priority, and compute the sums above anew from their two parts, so that rounding errors do not add up."""
    node_index = tree.size // 2 + entry_index
    tree[node_index] = value
    while node_index > 1:
        node_index //= 2
        tree[node_index] = tree[2 * node_index] + tree[2 * node_index + 1]


@njit(cache=True)
def _open(tree: np.ndarray, since: int, written: int, rows: int, worlds: int, steps: int, reach: int, p: float) -> None:
    """Update the tree for the new rows [since, written); `p` is the priority of rows that may now be drawn.

    A row may be drawn once `steps` rows follow it, and while the `reach` rows before it are stored.
    """
    for row_number in range(max(since, written - rows), written):
        oldest_row = max(0, row_number + 1 - rows)
        for world_index in range(worlds):
            _set(tree, row_number % rows * worlds + world_index, 0.0)
            if row_number - steps >= oldest_row + (reach if oldest_row > 0 else 0):
                _set(tree, (row_number - steps) % rows * worlds + world_index, p)
            for k in range(reach if oldest_row > 0 else 0):
                _set(tree, (oldest_row + k) % rows * worlds + world_index, 0.0)


@njit(cache=True)
def _find(tree: np.ndarray, uniforms: np.ndarray, out: np.ndarray) -> None:
    """Write to `out` the entry that each uniform [B] draws; never one of priority 0, in spite of rounding."""
    bottom_start = tree.size // 2
    for i in range(uniforms.size):
        node_index, target_sum = 1, uniforms[i] * tree[1]
        while node_index < bottom_start:
            node_index *= 2
            if target_sum >= tree[node_index] and tree[node_index + 1] > 0:
                target_sum -= tree[node_index]
                node_index += 1
        out[i] = node_index - bottom_start


@njit(cache=True)
def _update(tree: np.ndarray, indices: np.ndarray, priorities: np.ndarray) -> None:
    for i in range(indices.size):
        if tree[tree.size // 2 + indices[i]] > 0:  # 0: the row was overwritten since it was drawn
            _set(tree, indices[i], priorities[i])


class DevicePriorities:
    """Priorities of a memory on a GPU: p = (|error| + MIN_ERROR)^alpha; new rows get the highest p so far.

    Sums are computed before each draw, level by level.
    """

    def __init__(
        self, rows: int, worlds: int, steps: int, reach: int, alpha: float, device: torch.device | None = None
    ) -> None:
        """A row may be drawn if `steps` rows follow it, and the `reach` rows before it (frames of a stack) remain."""
        self.rows = rows
        self.worlds = worlds
        self.steps = steps
        self.reach = reach
        self.alpha = alpha
        self.followed = 0  # rows of the memory that the tree knows
        entry_count = rows * worlds
        self._half = 1 << max(1, (entry_count - 1).bit_length())
        self.tree = torch.zeros(2 * self._half, dtype=torch.float64, device=device)
        self._table = self.tree[self._half : self._half + entry_count].view(rows, worlds)
        self.highest = torch.ones((), dtype=torch.float64, device=device)

    def follow(self, written: int) -> None:
        """Update the tree to a memory of `written` rows: complete rows may be drawn, overwritten ones may not."""
        for row_number in range(max(self.followed, written - self.rows), written):
            oldest_row = max(0, row_number + 1 - self.rows)
            rows_before = self.reach if oldest_row else 0
            self._table[row_number % self.rows].zero_()
            if row_number - self.steps >= oldest_row + rows_before:
                self._table[(row_number - self.steps) % self.rows] = self.highest
            for k in range(rows_before):
                self._table[(oldest_row + k) % self.rows].zero_()
        self.followed = max(self.followed, written)

    def draw(self, uniforms: Tensor) -> Tensor:
        """Return row ids (row * worlds + world) [B] for uniforms float64 [B] in [0, 1), in proportion to priorities."""
        entry_index = self._find(uniforms)
        ring_index = entry_index // self.worlds
        oldest_row = max(0, self.followed - self.rows)
        return (oldest_row + (ring_index - oldest_row) % self.rows) * self.worlds + entry_index % self.worlds

    def _find(self, uniforms: Tensor) -> Tensor:
        self._add_up()
        node_index = torch.ones(len(uniforms), dtype=torch.int64, device=uniforms.device)
        target_sum = uniforms * self.tree[1]
        for _ in range(self._half.bit_length() - 1):
            node_index = 2 * node_index
            left_sum = self.tree[node_index]
            goes_right = (target_sum >= left_sum) & (self.tree[node_index + 1] > 0)
            target_sum = torch.where(goes_right, target_sum - left_sum, target_sum)
            node_index = node_index + goes_right
        return node_index - self._half

    def _add_up(self) -> None:
        """Compute every sum from the level below it, up to the root."""
        level_start = self._half
        while level_start > 1:
            level_sums = self.tree[level_start : 2 * level_start]
            level_start //= 2
            torch.add(level_sums[::2], level_sums[1::2], out=self.tree[level_start : 2 * level_start])

    def weights(self, row_id: Tensor, beta: float) -> Tensor:
        """Return importance weights (p / smallest p of the batch)^-beta, float32 [B], at most 1."""
        # Schaul et al. section 3.4: (rows * p / sum)^-beta, divided by the batch's largest; rows and sum cancel out
        p = self.tree[self._half + self._index(row_id)]
        return (p / p.min()).pow(-beta).float()

    def update(self, row_id: Tensor, error: Tensor) -> None:
        """Set priorities from the errors [B] of drawn rows; rows overwritten since the draw are left alone."""
        p = (error.double().abs() + MIN_ERROR).pow(self.alpha)
        node_index = self._half + self._index(row_id)
        is_stored = (row_id // self.worlds >= self.followed - self.rows) & (self.tree[node_index] > 0)
        # a row that was drawn twice gets the later error, as on the CPU: all its entries write that one
        last_writer = ((node_index == node_index[:, None]) & is_stored).long().cumsum(1).argmax(1)
        is_changed = is_stored[last_writer] & (node_index[last_writer] == node_index)
        self.tree[node_index] = torch.where(is_changed, p[last_writer], self.tree[node_index])
        highest = p.max()
        self.highest.copy_(torch.where(highest > self.highest, highest, self.highest))  # unchanged where p is NaN

    def _index(self, row_id: Tensor) -> Tensor:
        return row_id % (self.rows * self.worlds)

    def state_dict(self) -> dict:
        """Return a state that both classes can load."""
        return {
            "leaves": self._table.flatten().clone().cpu(),
            "highest": float(self.highest.cpu()),
            "seen": self.followed,
        }

    def load_state_dict(self, state: dict) -> None:
        self._table.copy_(state["leaves"].view_as(self._table))
        self._add_up()
        self.highest.fill_(state["highest"])
        self.followed = state["seen"]


class Priorities(DevicePriorities):
    """Priorities of a memory on the CPU: kernels update the sums at every change."""

    def follow(self, written: int) -> None:
        if written > self.followed:
            sizes = (self.rows, self.worlds, self.steps, self.reach)
            _open(self.tree.numpy(), self.followed, written, *sizes, float(self.highest.numpy()))
            self.followed = written

    def _find(self, uniforms: Tensor) -> Tensor:
        entry_index = np.empty(len(uniforms), np.int64)
        _find(self.tree.numpy(), uniforms.numpy(), entry_index)
        return torch.from_numpy(entry_index)

    def update(self, row_id: Tensor, error: Tensor) -> None:
        p = (error.double().abs() + MIN_ERROR).pow(self.alpha)
        alive = (row_id // self.worlds >= self.followed - self.rows).numpy()
        _update(self.tree.numpy(), self._index(row_id).numpy()[alive], p.numpy()[alive])
        self.highest.fill_(max(float(self.highest.numpy()), float(p.max().numpy())))
