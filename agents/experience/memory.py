"""A ring of rows shared by every family: one table, three views. It knows shapes by example, not by declaration.

What is written, drawn and checkpointed is here; how drawn rows become transitions and sequences is in reader.py.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from stride.agents.experience.cuts import count_cuts, most_cuts
from stride.agents.experience.device_priorities import DevicePriorities
from stride.agents.experience.frames import newest_frame
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
from stride.agents.experience.priorities import Priorities
from stride.agents.experience.reader import RowReader
from stride.agents.experience.saved_rows import SavedRows
from stride.agents.experience.storage import allocate, bytes_of, check_fits, readable_size
from stride.envs_fast.vec_env import Obs, Step
from stride.utils.counter_rng import SAMPLE, Key, uniforms

GATHERED = 64 << 20  # bytes of rows that `batches` gathers at once


def slots_for(steps: int, time_limit: int | None) -> int:
    """How many final observations one world can leave in `steps` steps: few where a time limit is declared.

    One episode that was under way may be cut, then one per `time_limit` steps; and one place is always being written.
    A world may truncate earlier than it declares: then the memory makes room.
    """
    return steps if time_limit is None else min(steps, steps // time_limit + 2)


class Memory:
    """Time-major [rows, N, ...]. Each world owns `slots` places for final observations: every step writes the current
    place, and the place advances only when an episode is cut. No branch, no sync, and V(final) costs S x N, not T x N.

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
        self.rows, self.slots, self.keep_terminal, self.replayed = rows, slots, keep_terminal, replayed
        self.num_envs, self.frames, self.storage = len(example.reward), frames, storage
        obs = newest_frame(example.obs, frames)
        example = example._replace(obs=tree_map(Tensor.contiguous, obs) if replayed else obs)  # as files hold them
        last = Final(example.obs, carry)
        self._row_bytes, self._final_bytes = bytes_of(example), bytes_of(last)
        if replayed:
            check_fits(self.bytes, rows * self.num_envs, storage, device=example.reward.device)
        self.table = allocate(example, rows, storage)
        self.final = allocate(last, slots, storage)
        self.slot = torch.zeros_like(example.slot)
        self.written = self.drawn = 0
        self.overflowed = torch.zeros((), dtype=torch.bool, device=self.slot.device)
        self.grown = self.untold = False  # more slots than the declared time limit asks for; nobody was told yet
        self.priorities: Priorities | DevicePriorities | None = None
        self.saved: SavedRows | None = None
        self._cuts = torch.zeros(2, self.num_envs, dtype=torch.int64, device=self.slot.device)  # remembered; most
        self._seed, self._rank = seed, rank
        self._worlds = torch.arange(self.num_envs, device=self.slot.device)
        self._columns, self._final_columns = leaves(self.table), leaves(self.final)
        looked_at = [*leaves(self.table.obs), *leaves(self.table.action), self.table.reward]
        # what may become non-finite, [rows, ..]: to look at it must not cost more than the look
        self.guarded = [x.flatten(1).numpy() for x in looked_at if x.is_floating_point() and x.device.type == "cpu"]
        # a short table's rows, unbound at once: to index eight columns takes 7 us a step
        self._row_views = [] if replayed else [*zip(*(column.unbind() for column in self._columns), strict=True)]
        self._reader = RowReader(self.table, self.final, frames)

    @property
    def bytes(self) -> int:
        """What rows and final observations take."""
        return self.rows * self._row_bytes + self.slots * self._final_bytes

    def __len__(self) -> int:
        return min(self.written, self.rows) * self.num_envs

    def __str__(self) -> str:
        return f"replay memory: {self.rows * self.num_envs:,} env steps, {readable_size(self.bytes)} in {self.storage}"

    def prioritise(self, alpha: float, steps: int) -> None:
        """From now on `transitions` of `steps` steps are drawn by priority; `priorities` is told the errors."""
        sizes = self.rows, self.num_envs, steps, self.frames - 1
        near = self.slot.device.type == "cpu"
        self.priorities = Priorities(*sizes, alpha) if near else DevicePriorities(*sizes, alpha, self.slot.device)

    def save_in(self, folder: Path) -> None:
        """Checkpoints name segments in this folder from now on, instead of holding the rows themselves."""
        self.saved = SavedRows(folder)

    def segment_names(self) -> list[str]:
        """The files that the last `state_dict` named."""
        return [segment["file"] for segment in self.saved.segments] if self.saved else []

    def write(self, obs: Obs, is_first: Tensor, act: Act, step: Step) -> None:
        """Copy one row of all worlds to the write head, and the step's final observations to the slots it names.

        In a full ring the oldest row goes. Costs no wait for the device. Where the worlds step on the CPU a cut that
        leaves no slot free makes room for more; elsewhere, and where an engine writes, worlds keep their time limit,
        and that a slot is used again too early is noted by `rollout` and `check_slots`.
        """
        last = step.final_obs
        if self.frames > 1:
            obs, last = newest_frame(obs, self.frames), newest_frame(last, self.frames)
        row = Row(obs, is_first, act.action, step.reward, step.terminated, step.truncated, self.slot, act.extras)
        head = self.written % self.rows
        cut = step.truncated | step.terminated if self.keep_terminal else step.truncated
        if self.replayed and self.slots < self.rows:  # a slot may be used again once its row is gone, not before
            self._cuts[0].add_(cut).sub_(self._cut_at(head).long())
            torch.maximum(self._cuts[0], self._cuts[1], out=self._cuts[1])
        here = self._row_views[head] if self._row_views else [column[head] for column in self._columns]
        torch._foreach_copy_(here, leaves(row))
        # before the slot advances: it is this row's slot that gets this row's final observation
        none = known_none(cut)
        if not none or self.replayed:  # of a rollout's slots nobody reads those that no cut filled
            final = Final(last, act.carry if leaves(self.final.carry) else ())
            for column, leaf in zip(self._final_columns, leaves(final), strict=True):
                column[self.slot, self._worlds] = leaf
        if self.slots < self.rows and cut.device.type == "cpu" and not none and self._full(head):
            self._grow()
        self.slot.add_(cut)
        self.slot.remainder_(self.slots)
        self.written += 1

    def count_written(self, steps: int, gone: Tensor) -> None:
        """Count rows that an engine wrote into the table itself; `gone` [steps, N]: which of those there were cut."""
        if self.replayed and self.slots < self.rows:
            head = self.written % self.rows
            fresh = self.table.truncated[head : head + steps]
            count_cuts(fresh.numpy(), gone.numpy(), self._cuts.numpy())
        self.written += steps

    def _cut_at(self, place: int | slice) -> Tensor:
        truncated = self.table.truncated[place]
        return truncated | self.table.terminated[place] if self.keep_terminal else truncated

    def _full(self, head: int) -> bool:
        """Whether every slot of a world holds what may still be asked for: of rows remembered, or of this rollout."""
        cuts = self._cuts[0].max() if self.replayed else most_cuts(self._cut_at(slice(head + 1)))
        return bool(cuts >= self.slots)

    def _grow(self) -> None:
        """Twice as many slots. What they hold keeps its order, from 0 on, and the rows' names of it follow.

        UserError where there is no memory for them.
        """
        before, oldest = self.slots, self.slot + 1  # behind the slot just written comes the one written longest ago
        key, count = ("buffer_size", self.rows * self.num_envs) if self.replayed else ("n_steps", self.rows)
        slots = min(self.rows, 2 * before)
        check_fits(slots * self._final_bytes, count, self.storage, key)
        kept = (oldest + torch.arange(before, device=oldest.device)[:, None]) % before
        finals = [column[kept, self._worlds] for column in self._final_columns]
        self.table.slot.sub_(oldest).remainder_(before)
        self.slot.fill_(before - 1)
        self.untold = self.untold or not (self.grown or self.keep_terminal)  # no limit says how often worlds terminate
        self._set_slots(slots)
        copy_into([column[:before] for column in self._final_columns], finals)

    def _set_slots(self, slots: int) -> None:
        """So many, empty ones."""
        self.slots, self.grown = slots, True
        self.final = allocate(tree_map(lambda x: x[0], self.final), slots, self.storage)
        self._final_columns = leaves(self.final)
        self._reader = RowReader(self.table, self.final, self.frames)

    def rollout(self, start: Tree, next: Final) -> Rollout:
        """The on-policy view: the table itself, whose rows must all belong to this iteration.

        `start` is the carry before the first row, `next` the instant behind the last. Nothing is copied: it is valid
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
        """Whether there are `span` rows in a row."""
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
        most = 1 if self.priorities else max(1, GATHERED // (size * row))
        for first in range(0, number, most):
            yield min(most, number - first)

    def transitions(self, count: int, steps: int, gamma: float, beta: float = 0.0) -> Transitions:
        """`count` n-step transitions, uniformly or by priority; n, gamma and the two kinds of end are spent here.

        Drawn with replacement, as copies. None crosses the write head; where an episode ends on the way fewer than
        `steps` rewards are summed. Each call takes the next table of draws, so the number of calls is part of a run.
        ValueError where fewer than `steps` + 1 rows are remembered (`ready` tells).
        """
        self.check_slots()
        row, world, weight = (
            self._draw_by_priority(count, steps, beta) if self.priorities else self._draw(count, steps + 1)
        )
        return self._reader.n_step(row, world, weight, steps, gamma)

    def check_slots(self) -> None:
        """Notes on the device whether a final observation was overwritten that may still be drawn."""
        self.overflowed |= (self._cuts[1] >= self.slots).any()

    def sequences(self, count: int, length: int) -> Sequences:
        """`count` stretches of `length` arrivals.

        Draws length + 1 rows each and opens every ended row into (row, final observation), so that the reward of an
        action stands beside the observation it led to, and `terminated` beside the observation that was the end.
        """
        self.check_slots()
        start, world, _ = self._draw(count, length + 1)
        return self._reader.sequences(start, world, length)

    def _choices(self, span: int) -> int:
        """How many rows `span` rows can start from: none crosses the write head, none reaches back beyond it."""
        lost = self.frames - 1 if self.written > self.rows else 0
        return min(self.written, self.rows) - span + 1 - lost

    def _check_ready(self, span: int) -> None:
        if not self.ready(span):
            raise ValueError(f"{span} rows in a row were asked for, {min(self.written, self.rows)} are remembered")

    def _draw(self, count: int, span: int) -> tuple[Tensor, Tensor, Tensor]:
        """(absolute row, world, weight 1) such that `span` rows from there on exist and none crosses the write head."""
        self._check_ready(span)
        first, world = self._uniforms(count)
        oldest = max(0, self.written - self.rows) + (self.frames - 1 if self.written > self.rows else 0)
        row = oldest + (first * self._choices(span)).long()
        return row, (world * self.num_envs).long(), torch.ones_like(world)

    def _draw_by_priority(self, count: int, steps: int, beta: float) -> tuple[Tensor, Tensor, Tensor]:
        assert self.priorities and self.priorities.steps == steps
        self._check_ready(steps + 1)
        self.priorities.follow(self.written)
        row_id = self.priorities.draw(self._uniforms(count)[0])
        return row_id // self.num_envs, row_id % self.num_envs, self.priorities.weights(row_id, beta)

    def _uniforms(self, count: int) -> tuple[Tensor, Tensor]:
        """Fine ones, because 24 bits would draw a million rows unevenly, and plain ones."""
        high, low, other = self.next_uniforms(count)
        return high.double() + low.double() * 2.0**-24, other

    def next_uniforms(self, count: int) -> Tensor:
        """The table [3, count] of the next draw."""
        table = uniforms(Key(self._seed, SAMPLE, self._rank, self.drawn), (3, count), self.slot.device)
        self.drawn += 1
        return table

    def state_dict(self) -> dict:
        state: dict = {"slot": self.slot.clone(), "written": self.written, "drawn": self.drawn}
        if self.grown:
            state["slots"] = self.slots
        if self.replayed:
            filled = min(self.written, self.rows)
            state |= {"cuts": self._cuts.clone(), "extras": [x[:filled].clone() for x in leaves(self.table.extras)]}
            if self.saved:
                state["segments"] = self.saved.save(self)
            else:
                state["rows"] = [x[:filled].clone() for x in leaves(self.table._replace(extras=()))]
                state["finals"] = [x.clone() for x in self._final_columns]
        if self.priorities:
            self.priorities.follow(self.written)
            state["priorities"] = self.priorities.state_dict()
        return state

    def columns_written(self) -> list[Tensor]:
        """Columns of the rows written, and of the final observations they left (zero elsewhere), to be compared."""
        filled = min(self.written, self.rows)
        row = tree_map(lambda x: x[:filled], self.table)
        cut = row.truncated | row.terminated if self.keep_terminal else row.truncated
        finals = (x[row.slot, self._worlds] for x in self._final_columns)
        return [*leaves(row), *(torch.where(expand(cut, x), x, 0) for x in finals)]

    def load_state_dict(self, state: dict) -> None:
        if state.get("slots", self.slots) > self.slots:
            self._set_slots(state["slots"])
        self.slot.copy_(state["slot"])
        self.written, self.drawn = state["written"], state["drawn"]
        if self.replayed:
            filled = min(self.written, self.rows)
            self._cuts.copy_(state["cuts"])
            copy_into([x[:filled] for x in leaves(self.table.extras)], state["extras"])
            if "segments" in state:
                assert self.saved, "whoever resumes says where the segments lie"
                self.saved.load(self, state["segments"])
            else:
                columns = leaves(self.table._replace(extras=()))
                copy_into([x[:filled] for x in columns], state["rows"])
                copy_into(self._final_columns, state["finals"])
        if self.priorities:
            self.priorities.load_state_dict(state["priorities"])


def set_flag(flag: Tensor, found: Tensor | bool) -> None:
    """flag |= found in place, without a wait where `found` lies on a device, without an operation where it is known."""
    if isinstance(found, Tensor):
        flag.logical_or_(found)
    elif found:
        flag.fill_(True)
