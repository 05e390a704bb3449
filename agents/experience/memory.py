"""A ring of rows shared by every family: one table, three views. It knows shapes by example, not by declaration."""

import torch
from torch import Tensor

from agents.experience.nouns import (
    Act,
    Final,
    Rollout,
    Row,
    Sequences,
    Transitions,
    Tree,
    copy_into,
    expand,
    leaves,
    tree_map,
    where,
)
from envs_fast.vec_env import Step
from utils.counter_rng import SAMPLE, Key, uniforms


def slots_for(steps: int, time_limit: int | None) -> int:
    """How many final observations one world can leave in `steps` steps: few where a time limit is declared."""
    return steps if time_limit is None else min(steps, steps // time_limit + 2)


class Memory:
    """Time-major [rows, N, ...]. Each world owns `slots` places for final observations: every step writes the current
    place, and the place advances only when an episode is cut. No branch, no sync, and V(final) costs S x N, not T x N.

    `keep_terminal` also keeps the observations after a termination (world models learn from them). `replayed` says
    that rows outlive an iteration, so a checkpoint must hold them.
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
    ) -> None:
        self.rows, self.slots, self.keep_terminal, self.replayed = rows, slots, keep_terminal, replayed
        self.num_envs = len(example.reward)
        self.table: Row = tree_map(lambda x: x.new_zeros(rows, *x.shape), example)
        self.final: Final = tree_map(lambda x: x.new_zeros(slots, *x.shape), Final(example.obs, carry))
        self.slot = torch.zeros_like(example.slot)
        self.written = self.drawn = 0
        self.overflowed = torch.zeros((), dtype=torch.bool, device=self.slot.device)
        self._seed, self._rank = seed, rank
        self._worlds = torch.arange(self.num_envs, device=self.slot.device)
        self._columns, self._final_columns = leaves(self.table), leaves(self.final)

    def __len__(self) -> int:
        return min(self.written, self.rows) * self.num_envs

    def write(self, obs: Tree, is_first: Tensor, act: Act, step: Step) -> None:
        row = Row(obs, is_first, act.action, step.reward, step.terminated, step.truncated, self.slot, act.extras)
        head = self.written % self.rows
        torch._foreach_copy_([column[head] for column in self._columns], leaves(row))
        # before the slot advances: it is this row's slot that gets this row's final observation
        for column, leaf in zip(self._final_columns, leaves(Final(step.final_obs, act.carry)), strict=True):
            column[self.slot, self._worlds] = leaf
        self.slot.add_(step.truncated | step.terminated if self.keep_terminal else step.truncated)
        self.slot.remainder_(self.slots)
        self.written += 1

    def rollout(self, start: Tree, next: Final) -> Rollout:
        """The on-policy view: the table itself, whose rows must all belong to this iteration."""
        if self.slots < self.rows:  # as many cuts as slots: the rows after the last one have used the first slot again
            self.overflowed |= (self.table.truncated.sum(0) >= self.slots).any()
        return Rollout(self.table, start, next, self.final)

    def transitions(self, count: int, steps: int, gamma: float) -> Transitions:
        """`count` n-step transitions drawn uniformly; n, gamma and the two kinds of end are spent here."""
        row, world = self._draw(count, steps + 1)
        first = self._at(self.table, row, world)
        reward, discount = torch.zeros_like(first.reward), torch.ones_like(first.reward)
        live, cut, end, slot = torch.ones_like(first.terminated), torch.zeros_like(first.terminated), row, first.slot
        for k in range(steps):
            at = self._at(self.table._replace(obs=(), extras=()), row + k, world)
            reward = reward + discount * at.reward * live
            discount = torch.where(live, discount * gamma * ~at.terminated, discount)
            cut, slot = cut | (live & at.truncated), torch.where(live, at.slot, slot)
            end = torch.where(live, row + k + 1, end)
            live = live & ~(at.terminated | at.truncated)
        next_obs = where(cut, self._final_obs(slot, world), self._at(self.table.obs, end, world))
        return Transitions(first.obs, first.action, reward, discount, next_obs, row * self.num_envs + world)

    def sequences(self, count: int, length: int) -> Sequences:
        """`count` stretches of `length` arrivals.

        Draws length + 1 rows each and opens every ended row into (row, final observation), so that the reward of an
        action stands beside the observation it led to, and `terminated` beside the observation that was the end.
        """
        start, world = self._draw(count, length + 1)
        span = torch.arange(length + 1, device=start.device)[:, None]
        worlds = world.expand(length + 1, count)
        table = self._at(self.table, start + span, worlds)
        ended = table.terminated | table.truncated
        place = span + ended.cumsum(0) - ended.long()  # where each row comes to stand once finals are put in
        out = span.expand(-1, count).contiguous()
        source = (torch.searchsorted(place.T.contiguous(), out.T.contiguous(), right=True) - 1).T
        is_final = out != place.gather(0, source)  # this place is the end of the row before it
        rows: Row = tree_map(lambda x: x.gather(0, expand(source, x).expand_as(x)), table)
        obs = where(is_final, self._final_obs(rows.slot, worlds), rows.obs)
        is_first = rows.is_first & ~is_final

        def led_here(x: Tensor) -> Tensor:
            before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
            return before.masked_fill(expand(is_first, x), 0)

        row_id = torch.where(is_final, -1, (start + source) * self.num_envs + world)
        return Sequences(
            obs=tree_map(lambda x: x[1:], obs),
            action=led_here(rows.action)[1:],
            reward=led_here(rows.reward)[1:],
            is_first=is_first[1:],
            terminated=(rows.terminated & is_final)[1:],
            extras=tree_map(lambda x: x[0], rows.extras),
            row_id=row_id[1:],
        )

    def write_back(self, row_id: Tensor, extras: Tree) -> None:
        """Refresh what the policy stored, unless the ring has moved on or the place was a final observation."""
        keep = (row_id >= 0) & (row_id // self.num_envs >= self.written - self.rows)
        flat = row_id[keep] % (self.rows * self.num_envs)
        for column, leaf in zip(leaves(self.table.extras), leaves(extras), strict=True):
            column.flatten(0, 1)[flat] = leaf[keep]

    def _draw(self, count: int, span: int) -> tuple[Tensor, Tensor]:
        """(absolute row, world) such that `span` rows from there on exist and none crosses the write head."""
        high, low, place = uniforms(Key(self._seed, SAMPLE, self._rank, self.drawn), (3, count), self.slot.device)
        self.drawn += 1
        oldest, choices = max(0, self.written - self.rows), min(self.written, self.rows) - span + 1
        if choices < 1:
            raise ValueError(f"{span} rows in a row were asked for, {min(self.written, self.rows)} are remembered")
        fine = high.double() + low.double() * 2.0**-24  # 24 bits would draw a million rows unevenly
        return oldest + (fine * choices).long(), (place * self.num_envs).long()

    def _at(self, tree: Tree, row: Tensor, world: Tensor) -> Tree:
        flat = (row % self.rows) * self.num_envs + world
        return tree_map(lambda x: x.flatten(0, 1)[flat], tree)

    def _final_obs(self, slot: Tensor, world: Tensor) -> Tree:
        return tree_map(lambda x: x[slot, world], self.final.obs)

    def state_dict(self) -> dict:
        state: dict = {"slot": self.slot.clone(), "written": self.written, "drawn": self.drawn}
        if self.replayed:
            state["rows"] = [x.clone() for x in self._columns + self._final_columns]
        return state

    def load_state_dict(self, state: dict) -> None:
        if self.replayed:
            copy_into(self._columns + self._final_columns, state["rows"])
        self.slot.copy_(state["slot"])
        self.written, self.drawn = state["written"], state["drawn"]
