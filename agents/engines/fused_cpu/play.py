"""The Play sockets of the fused CPU engine: environments played by a compiled kernel, or by the ordinary collector."""

from typing import Any

import numba
import numpy as np
import torch
from numba import types

from stride.agents.engines.fused_cpu.bind import Binding, Bound
from stride.agents.engines.fused_cpu.kernels import rollout
from stride.agents.engines.fused_cpu.kernels.calls import ARGUMENT_BYTES, address_of
from stride.agents.engines.fused_cpu.kernels.rollout import BetweenSteps, Game, RolloutTable
from stride.agents.experience.nouns import leaves
from stride.agents.sockets import Learner
from stride.envs_fast import world
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.world import NUMBA, StepResults
from stride.utils.counter_rng import normal


class FusedPlay:
    """Plays compiled environments and the policy in one kernel, all steps in one call or a few."""

    name = "fused_cpu"

    def __init__(self, binding: Binding[Any]) -> None:
        self._binding = binding
        self._worlds: CompiledWorlds | None = None

    def collect(self, learner: Learner, steps: int) -> None:
        bound = self._binding.get(learner)
        bound.attach(learner.optimizer)
        if not bound.recipe.before_play(bound.live):  # such as the random actions of the first steps
            learner.collector.collect(steps, learner.memory)
            return
        bound.begin()
        if self._worlds is None or self._worlds.bound is not bound:
            self._worlds = CompiledWorlds(learner, bound)
        self._worlds.play(steps)


class AttachedPlay:
    """The ordinary collector, after parameters have been moved to the kernels' memory.

    They are moved before the first step already, because torch's rounding depends on how a tensor is stored.
    """

    name = "eager"

    def __init__(self, binding: Binding[Any]) -> None:
        self._binding = binding

    def collect(self, learner: Learner, steps: int) -> None:
        self._binding.get(learner).attach(learner.optimizer)
        learner.collector.collect(steps, learner.memory)


class CompiledWorlds:
    """Does what Collector.collect does, in one kernel: the same random draws, the same rows in the agent's memory.

    It holds NumPy views of the tensors of collector and memory, so the kernel writes straight into them.
    """

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
        self._arguments = np.zeros(ARGUMENT_BYTES // 8, np.int64)  # holds the Game, where every thread reads it
        self._episode_return, self._episode_length = np.zeros((2, 0, 0), np.float32)
        ended = np.zeros((1, memory.num_envs), np.float32)
        results = self._table.reward, self._table.terminated, self._table.truncated
        step = StepResults(self._state.next_obs, *results, self._state.ended_obs, ended, ended)
        self._advance = advance_address(collector.envs, self._table.action, step)
        self._game = self._game_at(0, 1)
        self._play = address_of(rollout.play, types.CPointer(numba.typeof(self._game)), types.int64)
        self._store = world.bind(rollout.leave, 0, self._game)
        self._stored_key: tuple[int, int, int | None] = (-1, -1, None)  # first row, steps and seed of the stored Game

    def play(self, steps: int) -> None:
        """Play `steps` steps in every world and write them to the memory."""
        noise = self._collector.noise(steps)
        draws = normal(noise) if self.bound.recipe.normals else noise
        carry = self.bound.carry
        if carry:
            carry.fetch(self._collector.carry)
        first, rows = 0, self._memory.rows
        while first < steps:  # the memory is a ring of rows: what does not fit before its end goes to its beginning
            head = self._memory.written % rows
            count = min(steps - first, rows - head)
            self.bound.frame.fill(draws=draws[first:].contiguous())
            self.play_on(head, count)
            first += count
        if carry:
            carry.give(self._collector.carry)

    def play_on(self, head: int, steps: int) -> None:
        """Play `steps` steps and write them to the rows [head, head + steps) of the table."""
        game_key = head, steps, self._envs.seed
        if self._stored_key != game_key:
            self._game = self._game_at(head, steps)
            self._store(self._arguments.ctypes.data, self._game)
            self._stored_key = game_key
        overwritten = self._memory.table.truncated[head : head + steps].clone()
        bound, window = self.bound, self._collector.window
        bound.frame.check(rollout.play, bound.unread)
        bound.play(self._play, self._arguments.ctypes.data, steps)
        self._memory.count_written(steps, overwritten)
        table, game = self._game.table, self._game
        if self._collector.shard.count > 1:
            has_ended = torch.from_numpy(table.terminated | table.truncated).bool()
            results = torch.from_numpy(game.episode_return), torch.from_numpy(game.episode_length)
            window.add(*self._collector.shard.gather_worlds(has_ended, *results))
            return
        episodes = rollout.note_episodes(
            table.terminated, table.truncated, game.episode_return, game.episode_length, window.ring.numpy(),
            int(window.count),
        )  # fmt: skip
        window.count.fill_(episodes)

    def _game_at(self, head: int, steps: int) -> Game:
        """Return the kernel's arguments for the rows [head, head + steps) of the table."""
        table = RolloutTable(*(column[head : head + steps] for column in self._table))
        if len(self._episode_return) != steps:
            self._episode_return, self._episode_length = np.zeros((2, steps, self._memory.num_envs), np.float32)
        results = self._episode_return, self._episode_length
        return Game(self.bound.frame.address, self._advance, self._envs.simulation, table, self._state, *results)


def as_bytes(flags: torch.Tensor) -> np.ndarray:
    """Return the memory of a bool tensor as a uint8 array; both share it."""
    return flags.view(torch.uint8).numpy()


def advance_address(envs: NumbaEnv, action: np.ndarray, step: StepResults) -> int:
    """Return the address of the environment's step kernel, compiled for arrays of these types and dimensions."""
    advance: Any = envs.world.kernels[NUMBA].advance
    return address_of(advance, *(numba.typeof(x) for x in (envs.simulation, 0, 0, action, step)))
