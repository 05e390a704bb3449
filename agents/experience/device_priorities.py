"""Priorities where the rows lie on a device: the same tree, the same sums, the same draws, and no wait.

What a kernel does leaf by leaf is done for all at once here; a sum is made of the same two parts in either form, so
that both draw the same rows.
"""

import torch
from torch import Tensor


class DevicePriorities:
    """What `Priorities` is on the CPU; sums are made anew before a draw, level by level."""

    def __init__(
        self, rows: int, worlds: int, steps: int, reach: int, alpha: float, device: torch.device, floor: float = 1e-6
    ) -> None:
        """`steps` rows must follow one that is drawn, `reach` rows before it must not be overwritten yet."""
        self.rows, self.worlds, self.steps, self.reach = rows, worlds, steps, reach
        self.alpha, self.floor, self.seen = alpha, floor, 0
        self.highest = torch.ones((), dtype=torch.float64, device=device)
        self._half = 1 << (rows * worlds - 1).bit_length() if rows * worlds > 1 else 2
        self.tree = torch.zeros(2 * self._half, dtype=torch.float64, device=device)
        self._table = self.tree[self._half : self._half + rows * worlds].view(rows, worlds)

    def follow(self, written: int) -> None:
        """Catch up with a memory of `written` rows: rows that are whole are opened, overwritten ones are gone."""
        for row in range(max(self.seen, written - self.rows), written):
            oldest = max(0, row + 1 - self.rows)
            reach = self.reach if oldest else 0
            self._table[row % self.rows].zero_()
            if row - self.steps >= oldest + reach:
                self._table[(row - self.steps) % self.rows] = self.highest
            for k in range(reach):
                self._table[(oldest + k) % self.rows].zero_()
        self.seen = max(self.seen, written)

    def draw(self, uniforms: Tensor) -> Tensor:
        """float64 [B] in [0, 1) -> row ids (row * worlds + world) [B], each as often as its priority says."""
        self._add_up()
        node, target = torch.ones(len(uniforms), dtype=torch.int64, device=uniforms.device), uniforms * self.tree[1]
        for _ in range(self._half.bit_length() - 1):
            node = 2 * node
            left = self.tree[node]
            right = (target >= left) & (self.tree[node + 1] > 0)
            target, node = torch.where(right, target - left, target), node + right
        place = node - self._half
        row, oldest = place // self.worlds, max(0, self.seen - self.rows)
        return (oldest + (row - oldest) % self.rows) * self.worlds + place % self.worlds

    def _add_up(self) -> None:
        for first in (self._half >> k for k in range(1, self._half.bit_length())):
            below = self.tree[2 * first : 4 * first]
            torch.add(below[::2], below[1::2], out=self.tree[first : 2 * first])

    def weights(self, row_id: Tensor, beta: float) -> Tensor:
        """(p / smallest p of the batch)^-beta, float32 [B], at most 1: what makes up for frequent draws."""
        p = self.tree[self._half + self._place(row_id)]
        return (p / p.min()).pow(-beta).float()

    def update(self, row_id: Tensor, error: Tensor) -> None:
        """What the rows were worth learning from; rows overwritten since they were drawn stay as they are."""
        p = (error.double().abs() + self.floor).pow(self.alpha)
        leaf = self._half + self._place(row_id)
        alive = (row_id // self.worlds >= self.seen - self.rows) & (self.tree[leaf] > 0)
        # a row that was drawn twice gets the later error, as if one came after the other: all its writers write that
        last = ((leaf == leaf[:, None]) & alive).long().cumsum(1).argmax(1)
        told = alive[last] & (leaf[last] == leaf)
        self.tree[leaf] = torch.where(told, p[last], self.tree[leaf])
        most = p.max()
        self.highest.copy_(torch.where(most > self.highest, most, self.highest))  # not for an error that is none

    def _place(self, row_id: Tensor) -> Tensor:
        return row_id % (self.rows * self.worlds)

    def state_dict(self) -> dict:
        """As `Priorities` writes it."""
        return {"leaves": self._table.flatten().cpu(), "highest": float(self.highest.cpu()), "seen": self.seen}

    def load_state_dict(self, state: dict) -> None:
        self._table.copy_(state["leaves"].view_as(self._table))
        self.highest.fill_(state["highest"])
        self.seen = state["seen"]
