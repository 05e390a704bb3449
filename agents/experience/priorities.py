"""Which rows are drawn how often: a sum tree over the rows of a memory (Schaul et al. 2016).

Entry i of the bottom level is the row at index i of the ring; a row that may not be drawn has the priority 0.

On the CPU Numba kernels change one entry after the other. On a device all entries are changed at once, without a wait;
a sum is made of the same two parts in either form, so that both draw the same rows.
"""

import numpy as np
import torch
from torch import Tensor

from stride.utils.kernel_cache import njit

FLOOR = 1e-6  # added to an error, so that every row can be drawn


@njit(cache=True)
def _set(tree: np.ndarray, entry_index: int, value: float) -> None:
    """Every sum is made of its two parts anew: no rounding error ever adds up."""
    node_index = tree.size // 2 + entry_index
    tree[node_index] = value
    while node_index > 1:
        node_index //= 2
        tree[node_index] = tree[2 * node_index] + tree[2 * node_index + 1]


@njit(cache=True)
def _open(tree: np.ndarray, since: int, written: int, rows: int, worlds: int, steps: int, reach: int, p: float) -> None:
    """Take the rows [since, written) in: the row `steps` before each is complete, what each overwrites is gone."""
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
    """The entry whose part of the sum each uniform falls into; never one of priority 0, whatever is rounded."""
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
        if tree[tree.size // 2 + indices[i]] > 0:  # else it has been overwritten meanwhile
            _set(tree, indices[i], priorities[i])


class DevicePriorities:
    """p = (|error| + FLOOR)^alpha of every row that may be drawn; a new one gets the highest there has been.

    Where rows are stored on a device; sums are made anew before a draw, level by level.
    """

    def __init__(
        self, rows: int, worlds: int, steps: int, reach: int, alpha: float, device: torch.device | None = None
    ) -> None:
        """`steps` rows must follow one that is drawn, `reach` rows before it must not be overwritten yet."""
        self.rows = rows
        self.worlds = worlds
        self.steps = steps
        self.reach = reach
        self.alpha = alpha
        self.followed = 0  # rows that were taken in
        entry_count = rows * worlds
        self._half = 1 << max(1, (entry_count - 1).bit_length())
        self.tree = torch.zeros(2 * self._half, dtype=torch.float64, device=device)
        self._table = self.tree[self._half : self._half + entry_count].view(rows, worlds)
        self.highest = torch.ones((), dtype=torch.float64, device=device)

    def follow(self, written: int) -> None:
        """Catch up with a memory of `written` rows: complete rows may be drawn, overwritten ones may not."""
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
        """float64 [B] in [0, 1) -> row ids (row * worlds + world) [B], each as often as its priority says."""
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
        """Every sum from the level below it, up to the root."""
        level_start = self._half
        while level_start > 1:
            level_sums = self.tree[level_start : 2 * level_start]
            level_start //= 2
            torch.add(level_sums[::2], level_sums[1::2], out=self.tree[level_start : 2 * level_start])

    def weights(self, row_id: Tensor, beta: float) -> Tensor:
        """(p / smallest p of the batch)^-beta, float32 [B], at most 1: what makes up for frequent draws."""
        # (rows p / sum)^-beta / max of the batch, Schaul et al. section 3.4: rows and sum cancel out
        p = self.tree[self._half + self._index(row_id)]
        return (p / p.min()).pow(-beta).float()

    def update(self, row_id: Tensor, error: Tensor) -> None:
        """Set priorities by the errors of rows; rows overwritten since they were drawn stay as they are."""
        p = (error.double().abs() + FLOOR).pow(self.alpha)
        node_index = self._half + self._index(row_id)
        is_stored = (row_id // self.worlds >= self.followed - self.rows) & (self.tree[node_index] > 0)
        # a row that was drawn twice gets the later error, as if one came after the other: all its writers write that
        last_writer = ((node_index == node_index[:, None]) & is_stored).long().cumsum(1).argmax(1)
        is_changed = is_stored[last_writer] & (node_index[last_writer] == node_index)
        self.tree[node_index] = torch.where(is_changed, p[last_writer], self.tree[node_index])
        highest = p.max()
        self.highest.copy_(torch.where(highest > self.highest, highest, self.highest))  # unchanged where p is NaN

    def _index(self, row_id: Tensor) -> Tensor:
        return row_id % (self.rows * self.worlds)

    def state_dict(self) -> dict:
        """State that either class loads."""
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
    """Priorities on the CPU: kernels keep every sum up to date."""

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
        p = (error.double().abs() + FLOOR).pow(self.alpha)
        alive = (row_id // self.worlds >= self.followed - self.rows).numpy()
        _update(self.tree.numpy(), self._index(row_id).numpy()[alive], p.numpy()[alive])
        self.highest.fill_(max(float(self.highest.numpy()), float(p.max().numpy())))
