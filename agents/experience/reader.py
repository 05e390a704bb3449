"""Rows of a ring by their absolute number and world: observations from frames, n-step transitions, sequences.

Nothing is written here. Which rows are asked for, and whether they are still there, is for memory.py to say.
"""

import torch
from torch import Tensor

from stride.agents.experience.frames import stack_frames
from stride.agents.experience.nouns import Final, Row, Sequences, Transitions, Tree, expand, tree_map, where


class RowReader:
    """Refers to a memory's rows and final observations through views in which one index finds a row of a world."""

    def __init__(self, table: Row, final: Final, frames: int) -> None:
        self.rows, self.num_envs = table.reward.shape
        self.frames = frames
        self.flat = tree_map(lambda x: x.flatten(0, 1), table)
        self.flat_final = tree_map(lambda x: x.flatten(0, 1), final)

    def n_step(self, row: Tensor, world: Tensor, weight: Tensor, steps: int, gamma: float) -> Transitions:
        """Transitions of up to `steps` steps from these rows; n, gamma and the two kinds of end are spent here."""
        span = row + torch.arange(steps, device=row.device)[:, None]
        flat = self.place(span, world)
        reward, terminated, truncated = (
            _rows(x, flat) for x in (self.flat.reward, self.flat.terminated, self.flat.truncated)
        )
        ended = terminated | truncated
        live = ended.cumsum(0) - ended.long() == 0  # no end before this row
        power = gamma ** torch.arange(steps + 1, device=row.device)
        taken = live.sum(0)
        last = row + taken - 1
        cut = (truncated & live).any(0)
        discount = power[taken] * ~(terminated & live).any(0)
        slot = self.flat.slot[self.place(last, world)]
        next_obs = where(cut, self.final_obs(last, world, slot), self.obs(last + 1, world))
        return Transitions(
            obs=self.obs(row, world),
            action=_rows(self.flat.action, flat[0]),
            reward=(reward * live * power[:-1, None]).sum(0),
            discount=discount,
            next_obs=next_obs,
            row_id=row * self.num_envs + world,
            weight=weight,
        )

    def sequences(self, start: Tensor, world: Tensor, length: int) -> Sequences:
        """`length` arrivals after each of these rows, as Memory.sequences describes them."""
        count = len(start)
        span = torch.arange(length + 1, device=start.device)[:, None]
        worlds = world.expand(length + 1, count)
        flat = self.place(start + span, worlds)
        table = tree_map(lambda x: _rows(x, flat), self.flat._replace(obs={}))
        ended = table.terminated | table.truncated
        place = span + ended.cumsum(0) - ended.long()  # where each row comes to stand once finals are put in
        out = span.expand(-1, count).contiguous()
        source = (torch.searchsorted(place.T.contiguous(), out.T.contiguous(), right=True) - 1).T
        is_final = out != place.gather(0, source)  # this place is the end of the row before it
        rows = tree_map(lambda x: x.gather(0, expand(source, x).expand_as(x)), table)
        at = start + source
        obs = where(is_final, self.final_obs(at, worlds, rows.slot), self.obs(at, worlds))
        is_first = rows.is_first & ~is_final

        def led_here(x: Tensor) -> Tensor:
            before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
            return before.masked_fill(expand(is_first, x), 0)

        row_id = torch.where(is_final, -1, at * self.num_envs + world)
        return Sequences(
            obs=tree_map(lambda x: x[1:], obs),
            action=led_here(rows.action)[1:],
            reward=led_here(rows.reward)[1:],
            is_first=is_first[1:],
            terminated=(rows.terminated & is_final)[1:],
            extras=tree_map(lambda x: x[0], rows.extras),
            row_id=row_id[1:],
        )

    def place(self, row: Tensor, world: Tensor) -> Tensor:
        return row % self.rows * self.num_envs + world

    def obs(self, row: Tensor, world: Tensor) -> Tree:
        flat = self._stack(row, world)
        obs = tree_map(lambda x: _rows(x, flat), self.flat.obs)
        return obs if self.frames == 1 else stack_frames(obs, row.dim())

    def _stack(self, row: Tensor, world: Tensor) -> Tensor:
        """Places of the frames an observation shows, [frames, ...] from the oldest on; [...] where it is one frame."""
        flat = [self.place(row, world)]
        for _ in range(self.frames - 1):
            row = row - (~_rows(self.flat.is_first, flat[-1])).long()
            flat.append(self.place(row, world))
        return flat[0] if self.frames == 1 else torch.stack(flat[::-1])

    def final_obs(self, row: Tensor, world: Tensor, slot: Tensor) -> Tree:
        """The final observation of the row's episode, where the row is its last; any other one elsewhere."""
        flat = slot * self.num_envs + world
        obs = tree_map(lambda x: _rows(x, flat), self.flat_final.obs)
        if self.frames == 1:
            return obs
        before = self._stack(row, world)[1:]
        whole = tree_map(lambda x, y: torch.cat([_rows(x, before), y[None]]), self.flat.obs, obs)
        return stack_frames(whole, row.dim())


def _rows(column: Tensor, flat: Tensor) -> Tensor:
    """column[flat] for any shape of places; index_select is the fastest way there is."""
    if flat.dim() == 1:
        return column.index_select(0, flat)
    return column.index_select(0, flat.reshape(-1)).view(*flat.shape, *column.shape[1:])
