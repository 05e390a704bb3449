"""The memory of every algorithm: a ring of rows, read as a rollout, as n-step transitions or as sequences.

Writing, drawing and checkpoints are here; reader.py makes transitions and sequences of drawn rows.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from stride.agents.experience.cuts import count_cuts, most_cuts
from stride.agents.experience.nouns import (
    Act,
    Final,
    Rollout,
    Row,
    Sequences,
    Transitions,
    Tree,
    copy_into,
    expand,
    known_none,
    leaves,
    tree_map,
)
from stride.agents.experience.priorities import DevicePriorities, Priorities
from stride.agents.experience.reader import RowReader, newest_frame
from stride.agents.experience.segments import SavedRows
from stride.agents.experience.storage import allocate, bytes_of, check_fits, readable_size
from stride.envs_fast.vec_env import Obs, Step
from stride.utils.counter_rng import SAMPLE, Key, uniforms

GATHER_BYTES = 64 << 20  # of the rows that `draws` copies at once


def slots_for(steps: int, time_limit: int | None) -> int:
    """Return how many slots for final observations a world needs for `steps` steps; `time_limit` None: unknown.

    With a time limit at most steps // time_limit + 1 episodes are truncated, and one more slot is always being written.
    A world may truncate earlier than it declares: then the memory adds slots.
    """
    return steps if time_limit is None else min(steps, steps // time_limit + 2)


class DrawnRows(NamedTuple):
    """The rows of a draw, [B] each."""

    row: Tensor
    """int64, counted from the first row ever written, 0; in the table it is at row % rows"""
    world: Tensor
    weight: Tensor  # importance weight, 1 for uniform draws


class Memory:
    """A ring of `rows` rows of N worlds, [rows, N, ...], and `slots` slots per world for final observations.

    Every step writes the current slot, which advances only at a cut (truncation): no branch, no wait, few values of V.
    `example`: a row that shows shapes and types. `carry`: likewise, () if final observations are stored without one.
    `keep_terminal`: terminations leave final observations, too (for world models). `replayed`: rows outlive an
    iteration, so checkpoints hold them. `frames` > 1: observations are stacks of so many frames; the newest is stored.
    """

    def __init__(
        self,
        example: Row,
        carry: Tree,
        rows: int,
        slots: int,
        seed: int,
        rank: int = 0,
        keep_terminal: bool = False,
        replayed: bool = True,
        storage: str = "ram",
        frames: int = 1,
    ) -> None:
        self.rows = rows
        self.slots = slots
        self.keep_terminal = keep_terminal
        self.replayed = replayed
        self.storage = storage
        self.frames = frames
        self.num_envs = len(example.reward)
        device = example.reward.device
        obs = newest_frame(example.obs, frames)
        example = example._replace(obs=tree_map(Tensor.contiguous, obs) if replayed else obs)  # the order in files
        example_final = Final(example.obs, carry)
        self._row_bytes = bytes_of(example)
        self._final_bytes = bytes_of(example_final)
        if replayed:
            check_fits(self.bytes, rows * self.num_envs, storage, device=device)
        self.table = allocate(example, rows, storage)
        self._set_slots(slots, example_final)
        self.slot = torch.zeros_like(example.slot)
        self.written = self.drawn = 0
        self.overflowed = torch.zeros((), dtype=torch.bool, device=device)
        self.grown = False  # slots were added beyond what the declared time limit needs
        self.growth_unreported = False
        self.priorities: Priorities | DevicePriorities | None = None
        self.gammas: Tensor | None = None  # [rows]: gamma when a row was collected; None: no own gammas
        self.saved: SavedRows | None = None
        self._cuts = torch.zeros(2, self.num_envs, dtype=torch.int64, device=device)  # of stored rows: now, maximum
        self._seed = seed
        self._rank = rank
        self._worlds = torch.arange(self.num_envs, device=device)
        self._columns = leaves(self.table)
        float_columns = leaves((self.table.obs, self.table.action, self.table.reward))
        # NumPy views [rows, ..] for finite_guard.py, made once: to make them costs more than the check itself
        self.guarded = [x.flatten(1).numpy() for x in float_columns if x.is_floating_point() and device.type == "cpu"]
        # views of each row of a rollout, made once: to index eight columns takes 7 us a step
        self._row_views = [] if replayed else [*zip(*(column.unbind() for column in self._columns), strict=True)]

    @property
    def bytes(self) -> int:
        """Size of all rows and final observations."""
        return self.rows * self._row_bytes + self.slots * self._final_bytes

    @property
    def filled(self) -> int:
        """Number of rows that are stored."""
        return min(self.written, self.rows)

    @property
    def oldest(self) -> int:
        """Absolute number of the oldest stored row."""
        return self.written - self.filled

    def __len__(self) -> int:
        return self.filled * self.num_envs

    def mean_reward(self, most: int) -> float:
        """Return the mean reward of the newest rows, at most `most` of them."""
        newest = torch.arange(max(self.oldest, self.written - most), self.written, device=self.slot.device)
        return float(self.table.reward[newest % self.rows].mean())

    def __str__(self) -> str:
        return f"replay memory: {self.rows * self.num_envs:,} env steps, {readable_size(self.bytes)} in {self.storage}"

    def prioritise(self, alpha: float, steps: int) -> None:
        """Draw transitions of `steps` steps by priority from now on; the agent passes their errors to `priorities`."""
        device = self.slot.device
        make = Priorities if device.type == "cpu" else DevicePriorities
        self.priorities = make(self.rows, self.num_envs, steps, self.frames - 1, alpha, device)

    def keep_gammas(self, gamma: float) -> None:
        """Store a gamma with each row from now on; rows of a checkpoint without gammas get this one."""
        self.gammas = torch.full((self.rows,), gamma, device=self.slot.device)

    def set_gamma(self, steps: int, gamma: float) -> None:
        """Set the gamma of the last `steps` rows, all collected in this iteration."""
        assert self.gammas is not None
        self.gammas[torch.arange(self.written - steps, self.written, device=self.slot.device) % self.rows] = gamma

    def save_in(self, folder: Path) -> None:
        """Write rows to files of this folder (segments.py) at each checkpoint, which then holds only their names."""
        self.saved = SavedRows(folder)

    def segment_names(self) -> list[str]:
        """Return the names of the files that the last `state_dict` refers to."""
        return [segment["file"] for segment in self.saved.segments] if self.saved else []

    def write(self, obs: Obs, is_first: Tensor, act: Act, step: Step) -> None:
        """Copy one row of all worlds to the write head, and the step's final observations to the current slots.

        A full ring loses its oldest row. Does not wait for the device. On the CPU a cut that leaves no slot free adds
        slots. On a GPU, and where an engine writes, the time limit must hold: `rollout` and `check_slots` set the flag
        `overflowed` if a slot was used again too early.
        """
        final_obs = step.final_obs
        if self.frames > 1:
            obs = newest_frame(obs, self.frames)
            final_obs = newest_frame(final_obs, self.frames)
        new_row = Row(obs, is_first, act.action, step.reward, step.terminated, step.truncated, self.slot, act.extras)
        write_head = self.written % self.rows
        cut_flags = self.cut(new_row)
        limited = self.slots < self.rows  # otherwise every row has a slot
        if self.replayed and limited:  # count cuts: a slot may be reused only when its row is overwritten
            self._cuts[0].add_(cut_flags).sub_(self._cut_at(write_head).long())
            torch.maximum(self._cuts[0], self._cuts[1], out=self._cuts[1])
        row_views = self._row_views[write_head] if self._row_views else [column[write_head] for column in self._columns]
        torch._foreach_copy_(row_views, leaves(new_row))
        # before the slot advances: it is this row's slot that gets this row's final observation
        nothing_cut = known_none(cut_flags)
        if self.replayed or not nothing_cut:  # in a rollout only slots of cuts are read
            final_values = Final(final_obs, act.carry if leaves(self.final.carry) else ())
            for column, final_value in zip(self._final_columns, leaves(final_values), strict=True):
                column[self.slot, self._worlds] = final_value
        if limited and cut_flags.device.type == "cpu" and not nothing_cut and self._full(write_head):
            self._grow()
        self.slot.add_(cut_flags)
        self.slot.remainder_(self.slots)
        self.written += 1

    def count_written(self, steps: int, old_cuts: Tensor) -> None:
        """Count rows that an engine wrote into the table itself; `old_cuts` bool [steps, N]: of overwritten rows."""
        if self.replayed and self.slots < self.rows:
            write_head = self.written % self.rows
            new_cuts = self.table.truncated[write_head : write_head + steps]
            count_cuts(new_cuts.numpy(), old_cuts.numpy(), self._cuts.numpy())
        self.written += steps

    def cut(self, row: Row) -> Tensor:
        """Return which entries of `row` left a final observation, bool."""
        return row.truncated | row.terminated if self.keep_terminal else row.truncated

    def _cut_at(self, index: int | slice) -> Tensor:
        was_truncated = self.table.truncated[index]
        return was_truncated | self.table.terminated[index] if self.keep_terminal else was_truncated

    def _full(self, head: int) -> bool:
        """Whether every slot of some world holds a final observation of a stored row, or of this rollout."""
        cut_count = self._cuts[0].max() if self.replayed else most_cuts(self._cut_at(slice(head + 1)))
        return bool(cut_count >= self.slots)

    def _grow(self) -> None:
        """Double the slots. Final observations move to slots 0, 1, ... in their order; the rows' slots are renumbered.

        Raises UserError if they do not fit into memory.
        """
        old_slots = self.slots
        oldest_slot = self.slot + 1  # after the slot just written comes the one written longest ago
        key, count = ("buffer_size", self.rows * self.num_envs) if self.replayed else ("n_steps", self.rows)
        new_slots = min(self.rows, 2 * old_slots)
        check_fits(new_slots * self._final_bytes, count, self.storage, key)
        slot_order = (oldest_slot + torch.arange(old_slots, device=oldest_slot.device)[:, None]) % old_slots
        stored_finals = [final_column[slot_order, self._worlds] for final_column in self._final_columns]
        self.table.slot.sub_(oldest_slot).remainder_(old_slots)
        self.slot.fill_(old_slots - 1)
        if not (self.grown or self.keep_terminal):  # terminations are unlimited, so growth is normal
            self.growth_unreported = True
        self.grown = True
        self._set_slots(new_slots, tree_map(lambda x: x[0], self.final))
        copy_into([final_column[:old_slots] for final_column in self._final_columns], stored_finals)

    def _set_slots(self, slots: int, example: Final) -> None:
        """Allocate empty slots; `example`: one slot of all worlds."""
        self.slots = slots
        self.final = allocate(example, slots, self.storage)
        self._final_columns = leaves(self.final)
        self._reader = RowReader(self.table, self.final, self.frames)

    def rollout(self, start: Tree, next: Final) -> Rollout:
        """Return the rollout that an on-policy algorithm learns from: the table itself, all rows of this iteration.

        `start` is the carry before the first row, `next` the observations after the last. Nothing is copied: the result
        is valid until the next step is collected. More cuts than slots set the flag `overflowed` and raise no error.
        """
        if self.slots < self.rows:  # after as many cuts as slots the next rows write the first slot again
            set_flag(self.overflowed, most_cuts(self.table.truncated) >= self.slots)
        return Rollout(self.table, start, next, self.final)

    def recent(self, steps: int) -> Tree:
        """Return the observations [steps, N, ...] of the newest rows."""
        row_numbers = torch.arange(self.written - steps, self.written, device=self.slot.device)[:, None]
        return self._reader.obs(row_numbers.expand(-1, self.num_envs), self._worlds.expand(steps, -1))

    def ready(self, span: int) -> bool:
        """Whether `span` consecutive rows can be drawn."""
        return self._choices(span) > 0

    def draws(self, number: int, size: int, steps: int, gamma: float, beta: float = 0.0) -> Iterator[Transitions]:
        """Yield `number` batches of `size` transitions, several batches in one piece of up to GATHER_BYTES.

        By priority one batch at a time, because learning from each changes the priorities for the next.
        """
        for batch_count in self.pieces(number, size):
            yield self.transitions(batch_count * size, steps, gamma, beta)

    def pieces(self, number: int, size: int) -> Iterator[int]:
        """Yield how many of `number` batches are drawn together, piece by piece."""
        row_bytes = max(1, (self.bytes // self.rows // self.num_envs) * 2 * self.frames)
        most_batches = 1 if self.priorities else max(1, GATHER_BYTES // (size * row_bytes))
        for first_batch in range(0, number, most_batches):
            yield min(most_batches, number - first_batch)

    def transitions(self, count: int, steps: int, gamma: float, beta: float = 0.0) -> Transitions:
        """Draw `count` n-step transitions (n = `steps`), uniformly or by priority, with replacement, as copies.

        No transition crosses the write head. If an episode ends before `steps` steps, fewer rewards are summed. Each
        call takes the next table of random numbers, so results depend on the number of calls. If rows have their own
        gammas, that of a transition's first row replaces `gamma`. `beta`: exponent of importance weights.
        Raises ValueError if fewer than `steps` + 1 rows are stored (see `ready`).
        """
        self.check_slots()
        drawn_rows = self._draw_by_priority(count, steps, beta) if self.priorities else self._draw(count, steps + 1)
        row_gammas = gamma if self.gammas is None else self.gammas[drawn_rows.row % self.rows]
        return self._reader.n_step(*drawn_rows, steps, row_gammas)

    def check_slots(self) -> None:
        """Set the flag `overflowed` if a final observation that may still be drawn was overwritten; no wait."""
        self.overflowed |= (self._cuts[1] >= self.slots).any()

    def sequences(self, count: int, length: int) -> Sequences:
        """Draw `count` sequences of `length` observations, each with the action and reward that led to it.

        Reads length + 1 rows each. An ended row becomes two entries, (row, final observation), so that a reward is
        beside the observation it led to, and `terminated` beside the observation that was the end.
        """
        self.check_slots()
        drawn_rows = self._draw(count, length + 1)
        return self._reader.sequences(drawn_rows.row, drawn_rows.world, length)

    def _choices(self, span: int) -> int:
        """Return from how many rows a stretch of `span` rows can start, whose frames are all stored."""
        return self.filled - span + 1 - self._frames_lost()

    def _frames_lost(self) -> int:
        """Return how many of the oldest rows have incomplete stacks, because earlier frames were overwritten."""
        return self.frames - 1 if self.written > self.rows else 0

    def _check_ready(self, span: int) -> None:
        if not self.ready(span):
            raise ValueError(f"{span} consecutive rows were requested, but {self.filled} are stored")

    def _draw(self, count: int, span: int) -> DrawnRows:
        """Draw `count` rows with equal chance, each the first of `span` rows that do not cross the write head."""
        self._check_ready(span)
        fraction, world_fraction = self._uniforms(count)
        row_numbers = self.oldest + self._frames_lost() + (fraction * self._choices(span)).long()
        return DrawnRows(row_numbers, (world_fraction * self.num_envs).long(), torch.ones_like(world_fraction))

    def _draw_by_priority(self, count: int, steps: int, beta: float) -> DrawnRows:
        priorities = self.priorities
        assert priorities and priorities.steps == steps
        self._check_ready(steps + 1)
        priorities.follow(self.written)
        row_id = priorities.draw(self._uniforms(count)[0])
        return DrawnRows(row_id // self.num_envs, row_id % self.num_envs, priorities.weights(row_id, beta))

    def _uniforms(self, count: int) -> tuple[Tensor, Tensor]:
        """Return uniforms [count] for rows (48 bits, as 24 draw a million rows unevenly) and for worlds (24 bits)."""
        high_bits, low_bits, second_uniforms = self.next_uniforms(count)
        return high_bits.double() + low_bits.double() * 2.0**-24, second_uniforms

    def next_uniforms(self, count: int) -> Tensor:
        """Return the uniforms [3, count] of the next draw: two for the row, one for the world."""
        uniform_table = uniforms(Key(self._seed, SAMPLE, self._rank, self.drawn), (3, count), self.slot.device)
        self.drawn += 1
        return uniform_table

    def _filled_columns(self, tree: Tree) -> list[Tensor]:
        return [tree_column[: self.filled] for tree_column in leaves(tree)]

    def state_dict(self) -> dict:
        memory_state: dict = {"slot": self.slot.clone(), "written": self.written, "drawn": self.drawn}
        if self.grown:
            memory_state["slots"] = self.slots
        if self.replayed:
            memory_state["cuts"] = self._cuts.clone()
            memory_state["extras"] = [x.clone() for x in self._filled_columns(self.table.extras)]
            if self.saved:
                memory_state["segments"] = self.saved.save(self)
            else:
                memory_state["rows"] = [x.clone() for x in self._filled_columns(self.table._replace(extras=()))]
                memory_state["finals"] = [x.clone() for x in self._final_columns]
        if self.gammas is not None:
            memory_state["gammas"] = self.gammas[: self.filled].clone()
        if self.priorities:
            self.priorities.follow(self.written)
            memory_state["priorities"] = self.priorities.state_dict()
        return memory_state

    def columns_written(self) -> list[Tensor]:
        """Return columns of all stored rows, and of the final observations they left (0 elsewhere), for comparisons."""
        written_rows = tree_map(lambda x: x[: self.filled], self.table)
        cut_flags = self.cut(written_rows)
        final_columns = (x[written_rows.slot, self._worlds] for x in self._final_columns)
        return [*leaves(written_rows), *(torch.where(expand(cut_flags, x), x, 0) for x in final_columns)]

    def load_state_dict(self, state: dict) -> None:
        saved_slots = state.get("slots", self.slots)
        if saved_slots > self.slots:
            self.grown = True
            self._set_slots(saved_slots, tree_map(lambda x: x[0], self.final))
        self.slot.copy_(state["slot"])
        self.written = state["written"]
        self.drawn = state["drawn"]
        if self.replayed:
            self._cuts.copy_(state["cuts"])
            copy_into(self._filled_columns(self.table.extras), state["extras"])
            if "segments" in state:
                assert self.saved, "give the folder of the segments to resume"
                self.saved.load(self, state["segments"])
            else:
                copy_into(self._filled_columns(self.table._replace(extras=())), state["rows"])
                copy_into(self._final_columns, state["finals"])
        if self.gammas is not None and "gammas" in state:
            self.gammas[: self.filled] = state["gammas"]
        if self.priorities:
            self.priorities.load_state_dict(state["priorities"])


def set_flag(flag: Tensor, value: Tensor | bool) -> None:
    """Do flag |= value in place: on the device for a tensor, without a wait; a plain False costs no operation."""
    if isinstance(value, Tensor):
        flag.logical_or_(value)
    elif value:
        flag.fill_(True)
