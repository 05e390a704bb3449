"""Which rows are drawn how often: a sum tree over the rows of a memory (Schaul et al. 2016). On the CPU, in Numba.

Leaf i is the row at place i of the ring; a row that may not be drawn has the priority 0.
"""

import numpy as np
import torch
from torch import Tensor

from stride.utils.kernel_cache import njit


@njit(cache=True)
def _set(tree: np.ndarray, leaf: int, value: float) -> None:
    """Every sum is made of its two parts anew: no rounding error ever adds up."""
    node = tree.size // 2 + leaf
    tree[node] = value
    while node > 1:
        node //= 2
        tree[node] = tree[2 * node] + tree[2 * node + 1]


@njit(cache=True)
def _open(tree: np.ndarray, since: int, written: int, rows: int, worlds: int, steps: int, reach: int, p: float) -> None:
    """Take the rows [since, written) in: the row `steps` before each is complete, what each overwrites is gone."""
    for row in range(max(since, written - rows), written):
        oldest = max(0, row + 1 - rows)
        for world in range(worlds):
            _set(tree, row % rows * worlds + world, 0.0)
            if row - steps >= oldest + (reach if oldest > 0 else 0):
                _set(tree, (row - steps) % rows * worlds + world, p)
            for k in range(reach if oldest > 0 else 0):
                _set(tree, (oldest + k) % rows * worlds + world, 0.0)


@njit(cache=True)
def _find(tree: np.ndarray, uniforms: np.ndarray, out: np.ndarray) -> None:
    """The leaf whose share of the sum each uniform falls into; never one of priority 0, however things are rounded."""
    half = tree.size // 2
    for i in range(uniforms.size):
        node, target = 1, uniforms[i] * tree[1]
        while node < half:
            node *= 2
            if target >= tree[node] and tree[node + 1] > 0:
                target -= tree[node]
                node += 1
        out[i] = node - half


@njit(cache=True)
def _update(tree: np.ndarray, leaves: np.ndarray, priorities: np.ndarray) -> None:
    for i in range(leaves.size):
        if tree[tree.size // 2 + leaves[i]] > 0:  # else it has been overwritten meanwhile
            _set(tree, leaves[i], priorities[i])


class Priorities:
    """p = (|error| + floor)^alpha of every row that may be drawn; a new one gets the highest there has been."""

    def __init__(self, rows: int, worlds: int, steps: int, reach: int, alpha: float, floor: float = 1e-6) -> None:
        """`steps` rows must follow one that is drawn, `reach` rows before it must not be overwritten yet."""
        self.rows, self.worlds, self.steps, self.reach = rows, worlds, steps, reach
        self.alpha, self.floor, self.highest, self.seen = alpha, floor, 1.0, 0
        self._half = 1 << (rows * worlds - 1).bit_length() if rows * worlds > 1 else 2
        self.tree = np.zeros(2 * self._half)

    def follow(self, written: int) -> None:
        """Catch up with a memory of `written` rows."""
        if written > self.seen:
            sizes = (self.rows, self.worlds, self.steps, self.reach)
            _open(self.tree, self.seen, written, *sizes, self.highest)
            self.seen = written

    def draw(self, uniforms: Tensor) -> Tensor:
        """float64 [B] in [0, 1) -> row ids (row * worlds + world) [B], each as often as its priority says."""
        out = np.empty(len(uniforms), np.int64)
        _find(self.tree, uniforms.numpy(), out)
        place = torch.from_numpy(out)
        row, oldest = place // self.worlds, max(0, self.seen - self.rows)
        row = oldest + (row - oldest) % self.rows
        return row * self.worlds + place % self.worlds

    def weights(self, row_id: Tensor, beta: float) -> Tensor:
        """(p / smallest p of the batch)^-beta, float32 [B], at most 1: what makes up for frequent draws."""
        # (rows p / sum)^-beta / max of the batch, Schaul et al. section 3.4: rows and sum cancel out
        p = torch.from_numpy(self.tree[self._half + self._place(row_id)])
        return (p / p.min()).pow(-beta).float()

    def update(self, row_id: Tensor, error: Tensor) -> None:
        """What the rows were worth learning from; rows overwritten since they were drawn stay as they are."""
        p = (error.double().abs() + self.floor).pow(self.alpha).numpy()
        alive = (row_id // self.worlds >= self.seen - self.rows).numpy()
        _update(self.tree, self._place(row_id)[alive], p[alive])
        self.highest = max(self.highest, float(p.max()))

    def _place(self, row_id: Tensor) -> np.ndarray:
        place: np.ndarray = (row_id % (self.rows * self.worlds)).numpy()
        return place

    def state_dict(self) -> dict:
        leaves = self.tree[self._half : self._half + self.rows * self.worlds].copy()
        return {"leaves": torch.from_numpy(leaves), "highest": self.highest, "seen": self.seen}

    def load_state_dict(self, state: dict) -> None:
        self.tree[self._half : self._half + self.rows * self.worlds] = state["leaves"].numpy()
        for first in (self._half >> k for k in range(1, self._half.bit_length())):  # level by level up to the root
            self.tree[first : 2 * first] = (
                self.tree[2 * first : 4 * first : 2] + self.tree[2 * first + 1 : 4 * first : 2]
            )
        self.highest, self.seen = state["highest"], state["seen"]
