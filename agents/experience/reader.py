"""Rows of a ring by their absolute number and world: observations from frames, n-step transitions, sequences.

Nothing is written here. Which rows are asked for, and whether they are still stored, is decided in memory.py.

A memory may keep the newest frame of each observation only; stacks are joined again when they are read. A stack is
what FrameStack of envs_gym shows: the newest frames along the first axis, an episode's first one repeated.
"""

import torch
from torch import Tensor

from stride.agents.experience.nouns import Final, Row, Sequences, Transitions, Tree, expand, tree_map, where
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import MASK


class RowReader:
    """Refers to a memory's rows and final observations through views in which one index names a row of a world."""

    def __init__(self, table: Row, final: Final, frames: int) -> None:
        self.rows, self.num_envs = table.reward.shape
        self.frames = frames
        self.flat = tree_map(lambda x: x.flatten(0, 1), table)
        self.flat_final = tree_map(lambda x: x.flatten(0, 1), final)

    def n_step(self, row: Tensor, world: Tensor, weight: Tensor, steps: int, gamma: float | Tensor) -> Transitions:
        """Transitions of up to `steps` steps from these rows; n, gamma and the two kinds of end are used up here.

        `gamma` is one number, or [B], one for each of them.
        """
        flat_rows = self.flat
        row_numbers = row + torch.arange(steps, device=row.device)[:, None]
        flat_index = self.index(row_numbers, world)
        row_rewards = _rows(flat_rows.reward, flat_index)
        terminated = _rows(flat_rows.terminated, flat_index)
        truncated = _rows(flat_rows.truncated, flat_index)
        ended_flags = terminated | truncated
        before_end = ended_flags.cumsum(0) - ended_flags.long() == 0  # no end before this row
        gamma_powers = gamma ** torch.arange(steps + 1, device=row.device)[:, None]
        step_count = before_end.sum(0)
        last_power = gamma_powers.expand(-1, len(row)).gather(0, step_count[None])[0]
        last_row = row + step_count - 1
        was_cut = (truncated & before_end).any(0)
        final_slot = flat_rows.slot[self.index(last_row, world)]
        return Transitions(
            obs=self.obs(row, world),
            action=_rows(flat_rows.action, flat_index[0]),
            reward=(row_rewards * before_end * gamma_powers[:-1]).sum(0),
            discount=last_power * ~(terminated & before_end).any(0),
            next_obs=where(was_cut, self.final_obs(last_row, world, final_slot), self.obs(last_row + 1, world)),
            row_id=row * self.num_envs + world,
            weight=weight,
        )

    def sequences(self, start: Tensor, world: Tensor, length: int) -> Sequences:
        """`length` arrivals after each of these rows, as Memory.sequences describes them."""
        row_offsets = torch.arange(length + 1, device=start.device)[:, None]
        worlds = world.expand(length + 1, -1)
        flat_index = self.index(start + row_offsets, worlds)
        row_table = tree_map(lambda x: _rows(x, flat_index), self.flat._replace(obs={}))
        ended_flags = row_table.terminated | row_table.truncated
        # the final observation of an ended row is inserted behind it and moves all later rows on by one:
        # with ended = [0, 1, 0] the rows 0, 1, 2 come to 0, 1, 3, and entry 2 is the final observation of row 1
        position = row_offsets + ended_flags.cumsum(0) - ended_flags.long()
        entry_numbers = row_offsets.expand(-1, len(start)).contiguous()
        source_rows = (torch.searchsorted(position.T.contiguous(), entry_numbers.T.contiguous(), right=True) - 1).T
        is_final = entry_numbers != position.gather(0, source_rows)
        rows = tree_map(lambda x: x.gather(0, expand(source_rows, x).expand_as(x)), row_table)
        row_numbers = start + source_rows
        arrival_obs = where(is_final, self.final_obs(row_numbers, worlds, rows.slot), self.obs(row_numbers, worlds))
        is_first = rows.is_first & ~is_final

        def led_here(x: Tensor) -> Tensor:
            previous = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
            return previous.masked_fill(expand(is_first, x), 0)

        arrivals = Sequences(
            obs=arrival_obs,
            action=led_here(rows.action),
            reward=led_here(rows.reward),
            is_first=is_first,
            terminated=rows.terminated & is_final,
            extras=(),
            row_id=torch.where(is_final, -1, row_numbers * self.num_envs + world),
        )
        return tree_map(lambda x: x[1:], arrivals)._replace(extras=tree_map(lambda x: x[0], rows.extras))

    def index(self, row: Tensor, world: Tensor) -> Tensor:
        """Where rows of worlds are stored in the flat views."""
        return row % self.rows * self.num_envs + world

    def obs(self, row: Tensor, world: Tensor) -> Tree:
        stack_index = self._stack(row, world)
        frames_read = tree_map(lambda x: _rows(x, stack_index), self.flat.obs)
        return frames_read if self.frames == 1 else stack_frames(frames_read, row.dim())

    def _stack(self, row: Tensor, world: Tensor) -> Tensor:
        """Indices of the frames an observation shows, [frames, ...] from the oldest on; [...] where it is one frame."""
        frame_indices = [self.index(row, world)]
        for _ in range(self.frames - 1):
            row = row - (~_rows(self.flat.is_first, frame_indices[-1])).long()
            frame_indices.append(self.index(row, world))
        return frame_indices[0] if self.frames == 1 else torch.stack(frame_indices[::-1])

    def final_obs(self, row: Tensor, world: Tensor, slot: Tensor) -> Tree:
        """The final observation of the row's episode, where the row is its last; any other one elsewhere."""
        final_index = slot * self.num_envs + world
        newest_obs = tree_map(lambda x: _rows(x, final_index), self.flat_final.obs)
        if self.frames == 1:
            return newest_obs
        earlier = self._stack(row, world)[1:]
        stacks = tree_map(lambda x, newest: torch.cat([_rows(x, earlier), newest[None]]), self.flat.obs, newest_obs)
        return stack_frames(stacks, row.dim())


def _rows(column: Tensor, index: Tensor) -> Tensor:
    """column[index] for any shape of indices; index_select is the fastest way there is."""
    if index.dim() == 1:
        return column.index_select(0, index)
    return column.index_select(0, index.reshape(-1)).view(*index.shape, *column.shape[1:])


def newest_frame(obs: Obs, frames: int) -> Tree:
    """The last of `frames` frames in every tensor [N, frames * c, ...]: [N, c, ...]; a mask is not stacked."""
    if frames == 1:
        return obs
    if isinstance(obs, dict):
        return {tensor_name: x if tensor_name == MASK else newest_frame(x, frames) for tensor_name, x in obs.items()}
    frame_size = obs.shape[1] // frames
    return obs[:, -frame_size:]


def stack_frames(obs: Obs, lead: int) -> Tree:
    """Tensors [frames, *lead, c, ...], oldest first, as stacks [*lead, frames * c, ...]; of a mask the newest."""
    if isinstance(obs, dict):
        return {tensor_name: x[-1] if tensor_name == MASK else stack_frames(x, lead) for tensor_name, x in obs.items()}
    return obs.movedim(0, lead).flatten(lead, lead + 1)
