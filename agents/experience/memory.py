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
        final = Final(example.obs, carry)
        self._row_bytes = bytes_of(example)
        self._final_bytes = bytes_of(final)
        if replayed:
            check_fits(self.bytes, rows * self.num_envs, storage, device=device)
        self.table = allocate(example, rows, storage)
        self._set_slots(slots, final)
        self.slot = torch.zeros_like(example.slot)
        self.written = self.drawn = 0
        self.overflowed = torch.zeros((), dtype=torch.bool, device=device)
        self.grown = False  # whether there are more slots than the declared time limit asks for
        self.growth_unreported = False
        self.priorities: Priorities | DevicePriorities | None = None
        self.saved: SavedRows | None = None
        self._cuts = torch.zeros(2, self.num_envs, dtype=torch.int64, device=device)  # of the stored rows: now, at most
        self._seed = seed
        self._rank = rank
        self._worlds = torch.arange(self.num_envs, device=device)
        self._columns = leaves(self.table)
        guarded = leaves((self.table.obs, self.table.action, self.table.reward))
        # NumPy views [rows, ..] of what may become non-finite: to prepare a check must not cost more than the check
        self.guarded = [x.flatten(1).numpy() for x in guarded if x.is_floating_point() and device.type == "cpu"]
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

    def __str__(self) -> str:
        return f"replay memory: {self.rows * self.num_envs:,} env steps, {readable_size(self.bytes)} in {self.storage}"

    def prioritise(self, alpha: float, steps: int) -> None:
        """Draw `transitions` of `steps` steps by priority from now on; errors are handed to `priorities`."""
        device = self.slot.device
        make = Priorities if device.type == "cpu" else DevicePriorities
        self.priorities = make(self.rows, self.num_envs, steps, self.frames - 1, alpha, device)

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
        last = step.final_obs
        if self.frames > 1:
            obs = newest_frame(obs, self.frames)
            last = newest_frame(last, self.frames)
        row = Row(obs, is_first, act.action, step.reward, step.terminated, step.truncated, self.slot, act.extras)
        head = self.written % self.rows
        cut = self.cut(row)
        limited = self.slots < self.rows  # else there is a slot for every row
        if self.replayed and limited:  # a slot may be used again once its row is gone, not before
            self._cuts[0].add_(cut).sub_(self._cut_at(head).long())
            torch.maximum(self._cuts[0], self._cuts[1], out=self._cuts[1])
        row_views = self._row_views[head] if self._row_views else [column[head] for column in self._columns]
        torch._foreach_copy_(row_views, leaves(row))
        # before the slot advances: it is this row's slot that gets this row's final observation
        uncut = known_none(cut)
        if self.replayed or not uncut:  # of a rollout's slots nobody reads those that no cut filled
            final = Final(last, act.carry if leaves(self.final.carry) else ())
            for column, value in zip(self._final_columns, leaves(final), strict=True):
                column[self.slot, self._worlds] = value
        if limited and cut.device.type == "cpu" and not uncut and self._full(head):
            self._grow()
        self.slot.add_(cut)
        self.slot.remainder_(self.slots)
        self.written += 1

    def count_written(self, steps: int, old_cuts: Tensor) -> None:
        """Count rows that an engine wrote into the table itself; `old_cuts` [steps, N]: the cuts they replaced."""
        if self.replayed and self.slots < self.rows:
            head = self.written % self.rows
            new_cuts = self.table.truncated[head : head + steps]
            count_cuts(new_cuts.numpy(), old_cuts.numpy(), self._cuts.numpy())
        self.written += steps

    def cut(self, row: Row) -> Tensor:
        """Which entries of rows left a final observation, bool."""
        return row.truncated | row.terminated if self.keep_terminal else row.truncated

    def _cut_at(self, index: int | slice) -> Tensor:
        truncated = self.table.truncated[index]
        return truncated | self.table.terminated[index] if self.keep_terminal else truncated

    def _full(self, head: int) -> bool:
        """Whether every slot of a world holds what may still be asked for: of rows stored, or of this rollout."""
        cuts = self._cuts[0].max() if self.replayed else most_cuts(self._cut_at(slice(head + 1)))
        return bool(cuts >= self.slots)

    def _grow(self) -> None:
        """Double the slots. Final observations keep their order, from slot 0 on, and the rows' slots are renumbered.

        UserError where there is no memory for them.
        """
        before = self.slots
        oldest = self.slot + 1  # after the slot just written comes the one written longest ago
        key, count = ("buffer_size", self.rows * self.num_envs) if self.replayed else ("n_steps", self.rows)
        slots = min(self.rows, 2 * before)
        check_fits(slots * self._final_bytes, count, self.storage, key)
        order = (oldest + torch.arange(before, device=oldest.device)[:, None]) % before
        finals = [column[order, self._worlds] for column in self._final_columns]
        self.table.slot.sub_(oldest).remainder_(before)
        self.slot.fill_(before - 1)
        if not (self.grown or self.keep_terminal):  # no limit says how often worlds terminate
            self.growth_unreported = True
        self.grown = True
        self._set_slots(slots, tree_map(lambda x: x[0], self.final))
        copy_into([column[:before] for column in self._final_columns], finals)

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
        row = torch.arange(self.written - steps, self.written, device=self.slot.device)[:, None]
        return self._reader.obs(row.expand(-1, self.num_envs), self._worlds.expand(steps, -1))

    def ready(self, span: int) -> bool:
        """Whether there are `span` consecutive rows."""
        return self._choices(span) > 0

    def draws(self, number: int, size: int, steps: int, gamma: float, beta: float = 0.0) -> Iterator[Transitions]:
        """`number` batches of `size` transitions, as many whole batches in one piece as are gathered at once.

        By priority one after the other: what is learnt from each changes the priorities of the next.
        """
        for count in self.pieces(number, size):
            yield self.transitions(count * size, steps, gamma, beta)

    def pieces(self, number: int, size: int) -> Iterator[int]:
        """How many of `number` batches are drawn together, piece after piece."""
        row = max(1, (self.bytes // self.rows // self.num_envs) * 2 * self.frames)
        limit = 1 if self.priorities else max(1, GATHERED // (size * row))
        for first in range(0, number, limit):
            yield min(limit, number - first)

    def transitions(self, count: int, steps: int, gamma: float, beta: float = 0.0) -> Transitions:
        """`count` n-step transitions, uniformly or by priority; n, gamma and the two kinds of end are used up here.

        Drawn with replacement, as copies. None crosses the write head; where an episode ends on the way fewer than
        `steps` rewards are summed. Each call takes the next table of draws, so the number of calls is part of a run.
        ValueError where fewer than `steps` + 1 rows are stored (`ready` says so).
        """
        self.check_slots()
        drawn = self._draw_by_priority(count, steps, beta) if self.priorities else self._draw(count, steps + 1)
        return self._reader.n_step(*drawn, steps, gamma)

    def check_slots(self) -> None:
        """Notes on the device whether a final observation was overwritten that may still be drawn."""
        self.overflowed |= (self._cuts[1] >= self.slots).any()

    def sequences(self, count: int, length: int) -> Sequences:
        """`count` stretches of `length` arrivals.

        Draws length + 1 rows each and opens every ended row into (row, final observation), so that the reward of an
        action stands beside the observation it led to, and `terminated` beside the observation that was the end.
        """
        self.check_slots()
        drawn = self._draw(count, length + 1)
        return self._reader.sequences(drawn.row, drawn.world, length)

    def _choices(self, span: int) -> int:
        """How many rows `span` rows can start from: none crosses the write head, none reaches back beyond it."""
        return self.filled - span + 1 - self._frames_lost()

    def _frames_lost(self) -> int:
        """The oldest rows whose stacks are incomplete, because the frames before them were overwritten."""
        return self.frames - 1 if self.written > self.rows else 0

    def _check_ready(self, span: int) -> None:
        if not self.ready(span):
            raise ValueError(f"{span} consecutive rows were asked for, {self.filled} are stored")

    def _draw(self, count: int, span: int) -> DrawnRows:
        """Rows from which `span` rows exist, none of which crosses the write head; each with the same chance."""
        self._check_ready(span)
        fraction, world = self._uniforms(count)
        row = self.oldest + self._frames_lost() + (fraction * self._choices(span)).long()
        return DrawnRows(row, (world * self.num_envs).long(), torch.ones_like(world))

    def _draw_by_priority(self, count: int, steps: int, beta: float) -> DrawnRows:
        priorities = self.priorities
        assert priorities and priorities.steps == steps
        self._check_ready(steps + 1)
        priorities.follow(self.written)
        row_id = priorities.draw(self._uniforms(count)[0])
        return DrawnRows(row_id // self.num_envs, row_id % self.num_envs, priorities.weights(row_id, beta))

    def _uniforms(self, count: int) -> tuple[Tensor, Tensor]:
        """Uniforms in double precision, because 24 bits would draw a million rows unevenly, and plain ones."""
        high, low, other = self.next_uniforms(count)
        return high.double() + low.double() * 2.0**-24, other

    def next_uniforms(self, count: int) -> Tensor:
        """The table [3, count] of the next draw."""
        table = uniforms(Key(self._seed, SAMPLE, self._rank, self.drawn), (3, count), self.slot.device)
        self.drawn += 1
        return table

    def _filled_columns(self, tree: Tree) -> list[Tensor]:
        return [column[: self.filled] for column in leaves(tree)]

    def state_dict(self) -> dict:
        state: dict = {"slot": self.slot.clone(), "written": self.written, "drawn": self.drawn}
        if self.grown:
            state["slots"] = self.slots
        if self.replayed:
            state["cuts"] = self._cuts.clone()
            state["extras"] = [x.clone() for x in self._filled_columns(self.table.extras)]
            if self.saved:
                state["segments"] = self.saved.save(self)
            else:
                state["rows"] = [x.clone() for x in self._filled_columns(self.table._replace(extras=()))]
                state["finals"] = [x.clone() for x in self._final_columns]
        if self.priorities:
            self.priorities.follow(self.written)
            state["priorities"] = self.priorities.state_dict()
        return state

    def columns_written(self) -> list[Tensor]:
        """Columns of the rows written, and of the final observations they left (zero elsewhere), to be compared."""
        row = tree_map(lambda x: x[: self.filled], self.table)
        cut = self.cut(row)
        finals = (x[row.slot, self._worlds] for x in self._final_columns)
        return [*leaves(row), *(torch.where(expand(cut, x), x, 0) for x in finals)]

    def load_state_dict(self, state: dict) -> None:
        slots = state.get("slots", self.slots)
        if slots > self.slots:
            self.grown = True
            self._set_slots(slots, tree_map(lambda x: x[0], self.final))
        self.slot.copy_(state["slot"])
        self.written = state["written"]
        self.drawn = state["drawn"]
        if self.replayed:
            self._cuts.copy_(state["cuts"])
            copy_into(self._filled_columns(self.table.extras), state["extras"])
            if "segments" in state:
                assert self.saved, "whoever resumes says in which folder the segments are"
                self.saved.load(self, state["segments"])
            else:
                copy_into(self._filled_columns(self.table._replace(extras=())), state["rows"])
                copy_into(self._final_columns, state["finals"])
        if self.priorities:
            self.priorities.load_state_dict(state["priorities"])


def set_flag(flag: Tensor, value: Tensor | bool) -> None:
    """flag |= value in place, without a wait where `value` is on a device, without an operation where it is known."""
    if isinstance(value, Tensor):
        flag.logical_or_(value)
    elif value:
        flag.fill_(True)
