"""A rollout buffer for a training loop of one's own: rows of N worlds, and their advantages by GAE."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from stride.agents.experience.memory import Memory, slots_for
from stride.agents.experience.nouns import Act, Final, Row, Tree, tree_map
from stride.agents.returns import gae, next_values
from stride.envs_fast.vec_env import Obs, Step
from stride.utils.user_error import UserError

Value = Callable[[Obs], Tensor]  # observations [B, ...] -> values [B]


class Advantages(NamedTuple):
    """Results of `RolloutBuffer.advantages`, [T, N] each."""

    advantage: Tensor
    target: Tensor
    """advantage + value: the target of the critic"""
    value: Tensor
    """of each row's observation, before the update"""


class RolloutBuffer:
    """`n_steps` rows of N worlds, time-major [T, N, ...], each column a tensor of its own (SoA).

    `begin` and `add` copy what they are given and return the observation to act upon next. A full buffer is `rows`;
    the next `add` begins the next rollout. `time_limit`, as `envs.time_limit` says it, spares memory for final
    observations. An end by time is worth the value of its final observation, a termination nothing.
    """

    def __init__(self, n_steps: int, time_limit: int | None = None) -> None:
        if isinstance(n_steps, bool) or not isinstance(n_steps, int) or n_steps < 1:
            raise UserError(f"n_steps must be a whole number of at least 1, got {n_steps!r}")
        self.n_steps = n_steps
        self._time_limit = time_limit
        self._memory: Memory | None = None  # made by the first row, which shows the shapes
        self._obs: Obs = {}
        self._begun = False
        self._is_first = torch.zeros(0, dtype=torch.bool)

    def begin(self, obs: Obs) -> Obs:
        """Start with the result of `envs.reset`; earlier rows are dropped."""
        self._memory = None
        self._begun = True
        self._obs = tree_map(torch.clone, obs)
        first_tensor: Tensor = next(iter(obs.values())) if isinstance(obs, dict) else obs
        self._is_first = torch.ones(len(first_tensor), dtype=torch.bool, device=first_tensor.device)
        return self._obs

    def add(self, action: Tensor, step: Step, **extras: Tensor) -> Obs:
        """Store the action [N, ...] that led to `step`; `extras`, such as log_prob=..., are stored beside it."""
        if not self._begun:
            raise UserError("call begin(envs.reset(seed)) before the first add")
        if self._memory is None:
            slot = torch.zeros(len(step.reward), dtype=torch.int64, device=step.reward.device)
            row = Row(self._obs, self._is_first, action, step.reward, step.terminated, step.truncated, slot, extras)
            slots = slots_for(self.n_steps, self._time_limit)
            self._memory = Memory(row, (), self.n_steps, slots, seed=0, replayed=False)
        if extras.keys() != self._memory.table.extras.keys():
            raise UserError(f"every row must have {', '.join(self._memory.table.extras) or 'no extras'}")
        self._memory.write(self._obs, self._is_first, Act(action, extras), step)
        self._obs = tree_map(torch.clone, step.obs)
        self._is_first = step.terminated | step.truncated
        return self._obs

    @property
    def full(self) -> bool:
        """Whether a rollout is complete."""
        return self._memory is not None and self._memory.written > 0 and self._memory.written % self.n_steps == 0

    @property
    def rows(self) -> Row:
        """The rollout [T, N, ...]: obs, is_first, action, reward, terminated, truncated, extras; until the next add."""
        return self._full().table

    @torch.no_grad()
    def advantages(self, value: Value, gamma: float = 0.99, gae_lambda: float = 0.95) -> Advantages:
        """Advantages by GAE and the targets of the critic; `value` maps observations [B, ...] to one number each."""
        memory = self._full()
        rollout = memory.rollout((), Final(self._obs, ()))
        rows = rollout.row
        v_t = value(tree_map(lambda x: x.flatten(0, 1), rows.obs)).reshape(rows.reward.shape)
        v_final = None
        if rows.truncated.any():
            v_final = value(tree_map(lambda x: x.flatten(0, 1), rollout.final.obs)).reshape(memory.slots, -1)
        v_tp1 = next_values(v_t, value(rollout.next.obs).reshape(-1), v_final, rows.truncated, rows.slot)
        advantage = gae(rows.reward, rows.terminated, rows.truncated, v_t, v_tp1, gamma, gae_lambda)
        return Advantages(advantage, advantage + v_t, v_t)

    def minibatches(self, size: int, columns: Tree, generator: torch.Generator | None = None) -> list[Tree]:
        """`columns` [T, N, ...], a tensor, tuple or dict of them, in shuffled pieces [size, ...], the last one shorter.

        `generator`: of torch, for an order that repeats.
        """
        reward = self.rows.reward
        order = torch.randperm(reward.numel(), generator=generator, device=reward.device)
        return [tree_map(lambda x, rows=rows: x.flatten(0, 1)[rows], columns) for rows in order.split(size)]

    def _full(self) -> Memory:
        if not self.full or self._memory is None:
            stored = 0 if self._memory is None else self._memory.written % self.n_steps
            raise UserError(f"the rollout is not complete: {stored} of {self.n_steps} rows are stored")
        return self._memory
