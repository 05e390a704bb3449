"""A ring of rows shared by every family: one table, three views. It knows shapes by example, not by declaration.

What is written, drawn and checkpointed is here; how drawn rows become transitions and sequences is in reader.py.
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

GATHERED = 64 << 20  # bytes of rows that `draws` gathers at once


def slots_for(steps: int, time_limit: int | None) -> int:
    """The most final observations one world can leave in `steps` steps: few where a time limit is declared.

    One episode that was under way may be cut, then one per `time_limit` steps; and one slot is always being written.
    A world may truncate earlier than it declares: then the memory adds slots.
    """
    return steps if time_limit is None else min(steps, steps // time_limit + 2)


class DrawnRows(NamedTuple):
    """The rows of a draw, [B] each."""

    row: Tensor
    """absolute number, int64: 0 is the first row ever written"""
    world: Tensor
    weight: Tensor  # importance weight, 1 for uniform draws


class Memory:
    """Time-major [rows, N, ...]. Each world owns `slots` slots for final observations: every step writes the current
    slot, and the slot advances only when an episode is cut. No branch, no sync, and V(final) costs S x N, not T x N.

    `keep_terminal` also keeps the observations after a termination (world models learn from them). `replayed` says
    that rows outlive an iteration, so a checkpoint must hold them. `frames` > 1: observations are stacks of as many
    frames, of which the newest is kept and from which the views are put together. `carry` is what the policy remembers,
    by example; () where final observations are not valued, and so kept without it.
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
        example = example._replace(obs=tree_map(Tensor.contiguous, obs) if replayed else obs)  # as files hold them
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
        self.grown = False  # whether there are more slots than the declared time limit asks for
        self.growth_unreported = False
        self.priorities: Priorities | DevicePriorities | None = None
        self.gammas: Tensor | None = None  # [rows]: of the iteration that collected each; None: all rows have the same
        self.saved: SavedRows | None = None
        self._cuts = torch.zeros(2, self.num_envs, dtype=torch.int64, device=device)  # of the stored rows: now, at most
        self._seed = seed
        self._rank = rank
        self._worlds = torch.arange(self.num_envs, device=device)
        self._columns = leaves(self.table)
        float_columns = leaves((self.table.obs, self.table.action, self.table.reward))
        # NumPy views [rows, ..] of what may become non-finite: to prepare a check must not cost more than the check
        self.guarded = [x.flatten(1).numpy() for x in float_columns if x.is_floating_point() and device.type == "cpu"]
        # a short table's rows, unbound at once: to index eight columns takes 7 us a step
        self._row_views = [] if replayed else [*zip(*(column.unbind() for column in self._columns), strict=True)]

    @property
    def bytes(self) -> int:
        """The size of rows and final observations."""
        return self.rows * self._row_bytes + self.slots * self._final_bytes

    @property
    def filled(self) -> int:
        """Rows that are stored."""
        return min(self.written, self.rows)

    @property
    def oldest(self) -> int:
        """The absolute number of the oldest row that is stored."""
        return self.written - self.filled

    def __len__(self) -> int:
        return self.filled * self.num_envs

    def mean_reward(self, most: int) -> float:
        """The mean reward of the newest rows, of at most so many."""
        newest = torch.arange(max(self.oldest, self.written - most), self.written, device=self.slot.device)
        return float(self.table.reward[newest % self.rows].mean())

    def __str__(self) -> str:
        return f"replay memory: {self.rows * self.num_envs:,} env steps, {readable_size(self.bytes)} in {self.storage}"

    def prioritise(self, alpha: float, steps: int) -> None:
        """Draw `transitions` of `steps` steps by priority from now on; errors are handed to `priorities`."""
        device = self.slot.device
        make = Priorities if device.type == "cpu" else DevicePriorities
        self.priorities = make(self.rows, self.num_envs, steps, self.frames - 1, alpha, device)

    def keep_gammas(self, gamma: float) -> None:
        """Each row has a gamma of its own from now on; rows of an older checkpoint without them have this one."""
        self.gammas = torch.full((self.rows,), gamma, device=self.slot.device)

    def set_gamma(self, steps: int, gamma: float) -> None:
        """The gamma of the last `steps` rows, which all were collected in this iteration."""
        assert self.gammas is not None
        self.gammas[torch.arange(self.written - steps, self.written, device=self.slot.device) % self.rows] = gamma

    def save_in(self, folder: Path) -> None:
        """Checkpoints name segments in this folder from now on, instead of holding the rows themselves."""
        self.saved = SavedRows(folder)

    def segment_names(self) -> list[str]:
        """The files that the last `state_dict` named."""
        return [segment["file"] for segment in self.saved.segments] if self.saved else []

    def write(self, obs: Obs, is_first: Tensor, act: Act, step: Step) -> None:
        """Copy one row of all worlds to the write head, and the step's final observations to the slots it names.

        In a full ring the oldest row goes. Costs no wait for the device. Where the worlds step on the CPU a cut that
        leaves no slot free adds more slots; elsewhere, and where an engine writes, worlds keep their time limit,
        and `rollout` and `check_slots` note whether a slot was used again too early.
        """
        final_obs = step.final_obs
        if self.frames > 1:
            obs = newest_frame(obs, self.frames)
            final_obs = newest_frame(final_obs, self.frames)
        new_row = Row(obs, is_first, act.action, step.reward, step.terminated, step.truncated, self.slot, act.extras)
        write_head = self.written % self.rows
        cut_flags = self.cut(new_row)
        limited = self.slots < self.rows  # else there is a slot for every row
        if self.replayed and limited:  # a slot may be used again once its row is gone, not before
            self._cuts[0].add_(cut_flags).sub_(self._cut_at(write_head).long())
            torch.maximum(self._cuts[0], self._cuts[1], out=self._cuts[1])
        row_views = self._row_views[write_head] if self._row_views else [column[write_head] for column in self._columns]
        torch._foreach_copy_(row_views, leaves(new_row))
        # before the slot advances: it is this row's slot that gets this row's final observation
        nothing_cut = known_none(cut_flags)
        if self.replayed or not nothing_cut:  # of a rollout's slots nobody reads those that no cut filled
            final_values = Final(final_obs, act.carry if leaves(self.final.carry) else ())
            for column, final_value in zip(self._final_columns, leaves(final_values), strict=True):
                column[self.slot, self._worlds] = final_value
        if limited and cut_flags.device.type == "cpu" and not nothing_cut and self._full(write_head):
            self._grow()
        self.slot.add_(cut_flags)
        self.slot.remainder_(self.slots)
        self.written += 1

    def count_written(self, steps: int, old_cuts: Tensor) -> None:
        """Count rows that an engine wrote into the table itself; `old_cuts` [steps, N]: the cuts they replaced."""
        if self.replayed and self.slots < self.rows:
            write_head = self.written % self.rows
            new_cuts = self.table.truncated[write_head : write_head + steps]
            count_cuts(new_cuts.numpy(), old_cuts.numpy(), self._cuts.numpy())
        self.written += steps

    def cut(self, row: Row) -> Tensor:
        """Which entries of rows left a final observation, bool."""
        return row.truncated | row.terminated if self.keep_terminal else row.truncated

    def _cut_at(self, index: int | slice) -> Tensor:
        was_truncated = self.table.truncated[index]
        return was_truncated | self.table.terminated[index] if self.keep_terminal else was_truncated

    def _full(self, head: int) -> bool:
        """Whether every slot of a world holds what may still be asked for: of rows stored, or of this rollout."""
        cut_count = self._cuts[0].max() if self.replayed else most_cuts(self._cut_at(slice(head + 1)))
        return bool(cut_count >= self.slots)

    def _grow(self) -> None:
        """Double the slots. Final observations keep their order, from slot 0 on, and the rows' slots are renumbered.

        UserError where there is no memory for them.
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
        if not (self.grown or self.keep_terminal):  # no limit says how often worlds terminate
            self.growth_unreported = True
        self.grown = True
        self._set_slots(new_slots, tree_map(lambda x: x[0], self.final))
        copy_into([final_column[:old_slots] for final_column in self._final_columns], stored_finals)

    def _set_slots(self, slots: int, example: Final) -> None:
        """Allocate empty slots."""
        self.slots = slots
        self.final = allocate(example, slots, self.storage)
        self._final_columns = leaves(self.final)
        self._reader = RowReader(self.table, self.final, self.frames)

    def rollout(self, start: Tree, next: Final) -> Rollout:
        """The on-policy view: the table itself, whose rows must all belong to this iteration.

        `start` is the carry before the first row, `next` the instant after the last. Nothing is copied: it is valid
        until the next step is collected. More cuts than slots raise the flag `overflowed`, not an error.
        """
        if self.slots < self.rows:  # as many cuts as slots: the rows after the last one have used the first slot again
            set_flag(self.overflowed, most_cuts(self.table.truncated) >= self.slots)
        return Rollout(self.table, start, next, self.final)

    def recent(self, steps: int) -> Tree:
        """The observations [steps, N, ...] of the rows written last."""
        row_numbers = torch.arange(self.written - steps, self.written, device=self.slot.device)[:, None]
        return self._reader.obs(row_numbers.expand(-1, self.num_envs), self._worlds.expand(steps, -1))

    def ready(self, span: int) -> bool:
        """Whether there are `span` consecutive rows."""
        return self._choices(span) > 0

    def draws(self, number: int, size: int, steps: int, gamma: float, beta: float = 0.0) -> Iterator[Transitions]:
        """`number` batches of `size` transitions, as many whole batches in one piece as are gathered at once.

        By priority one after the other: what is learnt from each changes the priorities of the next.
        """
        for batch_count in self.pieces(number, size):
            yield self.transitions(batch_count * size, steps, gamma, beta)

    def pieces(self, number: int, size: int) -> Iterator[int]:
        """How many of `number` batches are drawn together, piece after piece."""
        row_bytes = max(1, (self.bytes // self.rows // self.num_envs) * 2 * self.frames)
        most_batches = 1 if self.priorities else max(1, GATHERED // (size * row_bytes))
        for first_batch in range(0, number, most_batches):
            yield min(most_batches, number - first_batch)

    def transitions(self, count: int, steps: int, gamma: float, beta: float = 0.0) -> Transitions:
        """`count` n-step transitions, uniformly or by priority; n, gamma and the two kinds of end are used up here.

        Drawn with replacement, as copies. None crosses the write head; where an episode ends on the way fewer than
        `steps` rewards are summed. Each call takes the next table of draws, so the number of calls is part of a run.
        Where rows have gammas of their own, a transition has that of its first row, and `gamma` does not count.
        ValueError where fewer than `steps` + 1 rows are stored (`ready` says so).
        """
        self.check_slots()
        drawn_rows = self._draw_by_priority(count, steps, beta) if self.priorities else self._draw(count, steps + 1)
        row_gammas = gamma if self.gammas is None else self.gammas[drawn_rows.row % self.rows]
        return self._reader.n_step(*drawn_rows, steps, row_gammas)

    def check_slots(self) -> None:
        """Notes on the device whether a final observation was overwritten that may still be drawn."""
        self.overflowed |= (self._cuts[1] >= self.slots).any()

    def sequences(self, count: int, length: int) -> Sequences:
        """`count` stretches of `length` arrivals.

        Draws length + 1 rows each and opens every ended row into (row, final observation), so that the reward of an
        action stands beside the observation it led to, and `terminated` beside the observation that was the end.
        """
        self.check_slots()
        drawn_rows = self._draw(count, length + 1)
        return self._reader.sequences(drawn_rows.row, drawn_rows.world, length)

    def _choices(self, span: int) -> int:
        """How many rows `span` rows can start from: none crosses the write head, none reaches back beyond it."""
        return self.filled - span + 1 - self._frames_lost()

    def _frames_lost(self) -> int:
        """The oldest rows whose stacks are incomplete, because the frames before them were overwritten."""
        return self.frames - 1 if self.written > self.rows else 0

    def _check_ready(self, span: int) -> None:
        if not self.ready(span):
            raise ValueError(f"{span} consecutive rows were requested, but {self.filled} are stored")

    def _draw(self, count: int, span: int) -> DrawnRows:
        """Rows from which `span` rows exist, none of which crosses the write head; each with the same chance."""
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
        """Uniforms in double precision, because 24 bits would draw a million rows unevenly, and plain ones."""
        high_bits, low_bits, second_uniforms = self.next_uniforms(count)
        return high_bits.double() + low_bits.double() * 2.0**-24, second_uniforms

    def next_uniforms(self, count: int) -> Tensor:
        """The table [3, count] of the next draw."""
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
        """Columns of the rows written, and of the final observations they left (zero elsewhere), to be compared."""
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
    """flag |= value in place, without a wait where `value` is on a device, without an operation where it is known."""
    if isinstance(value, Tensor):
        flag.logical_or_(value)
    elif value:
        flag.fill_(True)
