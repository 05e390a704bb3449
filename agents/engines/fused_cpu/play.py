"""Collecting by compiled kernels, or by the collector where the kernels know the updates only."""

from typing import Any

import numba
import numpy as np
import torch
from numba import types

from stride.agents.engines.fused_cpu.bind import Binding, Bound
from stride.agents.engines.fused_cpu.kernels import rollout
from stride.agents.engines.fused_cpu.kernels.calls import ROOM, address_of
from stride.agents.engines.fused_cpu.kernels.rollout import BetweenSteps, Game, RolloutTable
from stride.agents.experience.nouns import leaves
from stride.agents.sockets import Learner
from stride.envs_fast import world
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.world import NUMBA, StepResults
from stride.utils.counter_rng import normal


class FusedPlay:
    """Compiled worlds and the policy in one kernel, all steps in one call."""

    name = "fused_cpu"

    def __init__(self, binding: Binding[Any]) -> None:
        self._binding = binding
        self._worlds: CompiledWorlds | None = None

    def collect(self, learner: Learner, steps: int) -> None:
        bound = self._binding.get(learner)
        bound.attach(learner.optimizer)
        if not bound.recipe.before_play(bound.live):
            learner.collector.collect(steps, learner.memory)
            return
        bound.begin()
        if self._worlds is None or self._worlds.bound is not bound:
            self._worlds = CompiledWorlds(learner, bound)
        self._worlds.play(steps)


class AttachedPlay:
    """The collector, on parameters in the kernels' memory: how torch rounds depends on how they are stored."""

    name = "eager"

    def __init__(self, binding: Binding[Any]) -> None:
        self._binding = binding

    def collect(self, learner: Learner, steps: int) -> None:
        self._binding.get(learner).attach(learner.optimizer)
        learner.collector.collect(steps, learner.memory)


class CompiledWorlds:
    """Collector.collect in one kernel, with the collector's draws and into its memory; holds views of both."""

    def __init__(self, learner: Learner, bound: Bound) -> None:
        collector, memory = learner.collector, learner.memory
        assert isinstance(collector.envs, NumbaEnv)
        self.bound, self._collector, self._memory, self._envs = bound, collector, memory, collector.envs
        bound.frame.fill(draw=learner.policy.draws, has_log_prob=True)
        table = memory.table
        (next_obs,), (final_obs,), (obs,) = leaves(collector.obs), leaves(memory.final.obs), leaves(table.obs)
        self._state = BetweenSteps(
            next_obs.numpy()[None],
            final_obs.numpy(),
            np.zeros((1, *next_obs.shape), next_obs.numpy().dtype),
            memory.slot.numpy(),
            as_bytes(collector.is_first),
        )
        self._table = RolloutTable(
            obs.numpy(),
            table.action.numpy(),
            table.reward.numpy(),
            as_bytes(table.terminated),
            as_bytes(table.truncated),
            as_bytes(table.is_first),
            table.slot.numpy(),
        )
        self._room = np.zeros(ROOM // 8, np.int64)
        self._episode_return, self._episode_length = np.zeros((2, 0, 0), np.float32)
        ended = np.zeros((1, memory.num_envs), np.float32)
        results = self._table.reward, self._table.terminated, self._table.truncated
        step = StepResults(self._state.next_obs, *results, self._state.ended_obs, ended, ended)
        self._advance = advance_address(collector.envs, self._table.action, step)
        self._game = self._game_at(0, 1)
        self._play = address_of(rollout.play, types.CPointer(numba.typeof(self._game)), types.int64)
        self._leave = world.bind(rollout.leave, 0, self._game)
        self._left: tuple[int, int, int | None] = (-1, -1, None)  # first row, steps and seed of the game in the room

    def play(self, steps: int) -> None:
        """So many steps in every world, written to the memory."""
        noise = self._collector.noise(steps)
        draws = normal(noise) if self.bound.recipe.normals else noise
        carry = self.bound.carry
        if carry:
            carry.fetch(self._collector.carry)
        first, rows = 0, self._memory.rows
        while first < steps:  # where the ring ends, the rest goes on at its beginning
            head = self._memory.written % rows
            count = min(steps - first, rows - head)
            self.bound.frame.fill(draws=draws[first:].contiguous())
            self.play_on(head, count)
            first += count
        if carry:
            carry.give(self._collector.carry)

    def play_on(self, head: int, steps: int) -> None:
        """So many steps into the rows of the table from `head` on."""
        game_key = head, steps, self._envs.seed
        if self._left != game_key:
            self._game = self._game_at(head, steps)
            self._leave(self._room.ctypes.data, self._game)
            self._left = game_key
        overwritten = self._memory.table.truncated[head : head + steps].clone()
        bound, window = self.bound, self._collector.window
        bound.frame.check(rollout.play, bound.unread)
        bound.play(self._play, self._room.ctypes.data, steps)
        self._memory.count_written(steps, overwritten)
        table, game = self._game.table, self._game
        if self._collector.shard.count > 1:
            flags = torch.from_numpy(table.terminated | table.truncated).bool()
            results = torch.from_numpy(game.episode_return), torch.from_numpy(game.episode_length)
            window.add(*self._collector.shard.gather_worlds(flags, *results))
            return
        ended = rollout.note_episodes(
            table.terminated, table.truncated, game.episode_return, game.episode_length, window.ring.numpy(),
            int(window.count),
        )  # fmt: skip
        window.count.fill_(ended)

    def _game_at(self, head: int, steps: int) -> Game:
        """The game for rows of the table from `head` on."""
        table = RolloutTable(*(column[head : head + steps] for column in self._table))
        if len(self._episode_return) != steps:
            self._episode_return, self._episode_length = np.zeros((2, steps, self._memory.num_envs), np.float32)
        ended = self._episode_return, self._episode_length
        return Game(self.bound.frame.address, self._advance, self._envs.simulation, table, self._state, *ended)


def as_bytes(flags: torch.Tensor) -> np.ndarray:
    """The memory of a tensor of bool, as uint8."""
    return flags.view(torch.uint8).numpy()


def advance_address(envs: NumbaEnv, action: np.ndarray, step: StepResults) -> int:
    """The address of the worlds' kernel, compiled for arrays like these, whatever their number of steps."""
    advance: Any = envs.world.kernels[NUMBA].advance
    return address_of(advance, *(numba.typeof(x) for x in (envs.simulation, 0, 0, action, step)))
