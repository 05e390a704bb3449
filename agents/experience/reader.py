"""Read rows of a memory by absolute number and world: stacked frames, n-step transitions, sequences.

memory.py chooses the rows, and ensures that they are still stored. Nothing is written here.

A memory may store only the newest frame of each observation; stacks are built again when rows are read. A stack is that
of FrameStack in envs_gym: the newest frames along the first axis, with an episode's first frame repeated.
"""

import torch
from torch import Tensor

from stride.agents.experience.nouns import Final, Row, Sequences, Transitions, Tree, expand, tree_map, where
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import MASK


class RowReader:
    """Reads a memory's rows and final observations through views [rows * N, ...]: one index is one row of a world."""

    def __init__(self, table: Row, final: Final, frames: int) -> None:
        self.rows, self.num_envs = table.reward.shape
        self.frames = frames
        self.flat = tree_map(lambda x: x.flatten(0, 1), table)
        self.flat_final = tree_map(lambda x: x.flatten(0, 1), final)

    def n_step(self, row: Tensor, world: Tensor, weight: Tensor, steps: int, gamma: float | Tensor) -> Transitions:
        """Return transitions of up to `steps` steps from these rows, [B] each; they end at an episode's end.

        `row`: absolute numbers; `weight`: importance weights to return; `gamma`: one number, or one for each row [B].
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
        """Return the `length` entries after each of the rows `start` [B] (see Memory.sequences)."""
        row_offsets = torch.arange(length + 1, device=start.device)[:, None]
        worlds = world.expand(length + 1, -1)
        flat_index = self.index(start + row_offsets, worlds)
        row_table = tree_map(lambda x: _rows(x, flat_index), self.flat._replace(obs={}))
        ended_flags = row_table.terminated | row_table.truncated
        # The final observation of an ended row is inserted behind it and moves all later rows by one: with
        # ended = [0, 1, 0] the rows 0, 1, 2 become entries 0, 1, 3, and entry 2 is the final observation of row 1.
        position = row_offsets + ended_flags.cumsum(0) - ended_flags.long()
        entry_numbers = row_offsets.expand(-1, len(start)).contiguous()
        source_rows = (torch.searchsorted(position.T.contiguous(), entry_numbers.T.contiguous(), right=True) - 1).T
        is_final = entry_numbers != position.gather(0, source_rows)
        rows = tree_map(lambda x: x.gather(0, expand(source_rows, x).expand_as(x)), row_table)
        row_numbers = start + source_rows
        entry_obs = where(is_final, self.final_obs(row_numbers, worlds, rows.slot), self.obs(row_numbers, worlds))
        is_first = rows.is_first & ~is_final

        def previous_values(x: Tensor) -> Tensor:
            previous = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
            return previous.masked_fill(expand(is_first, x), 0)

        entries = Sequences(
            obs=entry_obs,
            action=previous_values(rows.action),
            reward=previous_values(rows.reward),
            is_first=is_first,
            terminated=rows.terminated & is_final,
            extras=(),
            row_id=torch.where(is_final, -1, row_numbers * self.num_envs + world),
        )
        return tree_map(lambda x: x[1:], entries)._replace(extras=tree_map(lambda x: x[0], rows.extras))

    def index(self, row: Tensor, world: Tensor) -> Tensor:
        """Return the indices of rows of worlds in the flat views."""
        return row % self.rows * self.num_envs + world

    def obs(self, row: Tensor, world: Tensor) -> Tree:
        """Return the observations of rows of worlds, frames stacked."""
        stack_index = self._stack(row, world)
        frames_read = tree_map(lambda x: _rows(x, stack_index), self.flat.obs)
        return frames_read if self.frames == 1 else stack_frames(frames_read, row.dim())

    def _stack(self, row: Tensor, world: Tensor) -> Tensor:
        """Return the indices of an observation's frames, [frames, ...], oldest first; [...] for a single frame."""
        frame_indices = [self.index(row, world)]
        for _ in range(self.frames - 1):
            row = row - (~_rows(self.flat.is_first, frame_indices[-1])).long()
            frame_indices.append(self.index(row, world))
        return frame_indices[0] if self.frames == 1 else torch.stack(frame_indices[::-1])

    def final_obs(self, row: Tensor, world: Tensor, slot: Tensor) -> Tree:
        """Return final observations of episodes whose last rows these are; of other rows the values mean nothing."""
        final_index = slot * self.num_envs + world
        newest_obs = tree_map(lambda x: _rows(x, final_index), self.flat_final.obs)
        if self.frames == 1:
            return newest_obs
        earlier = self._stack(row, world)[1:]
        stacks = tree_map(lambda x, newest: torch.cat([_rows(x, earlier), newest[None]]), self.flat.obs, newest_obs)
        return stack_frames(stacks, row.dim())


def _rows(column: Tensor, index: Tensor) -> Tensor:
    """Return column[index] for indices of any shape; index_select is faster than indexing."""
    if index.dim() == 1:
        return column.index_select(0, index)
    return column.index_select(0, index.reshape(-1)).view(*index.shape, *column.shape[1:])


def newest_frame(obs: Obs, frames: int) -> Tree:
    """Return the newest of `frames` frames: tensors [N, frames * c, ...] become [N, c, ...]; masks are not stacked."""
    if frames == 1:
        return obs
    if isinstance(obs, dict):
        return {tensor_name: x if tensor_name == MASK else newest_frame(x, frames) for tensor_name, x in obs.items()}
    frame_size = obs.shape[1] // frames
    return obs[:, -frame_size:]


def stack_frames(obs: Obs, lead: int) -> Tree:
    """Return tensors [frames, *lead, c, ...], oldest first, as stacks [*lead, frames * c, ...]; of masks the newest.

    `lead`: the number of leading dimensions.
    """
    if isinstance(obs, dict):
        return {tensor_name: x[-1] if tensor_name == MASK else stack_frames(x, lead) for tensor_name, x in obs.items()}
    return obs.movedim(0, lead).flatten(lead, lead + 1)
