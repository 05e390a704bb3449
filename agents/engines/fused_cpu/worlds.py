"""Compiled worlds under way: what Collector.collect does, in one kernel, with its draws and into its memory."""

from typing import Any

import numba
import numpy as np
import torch
from numba import types

from stride.agents.engines.fused_cpu.bind import Bound
from stride.agents.engines.fused_cpu.frame import At
from stride.agents.engines.fused_cpu.kernels import rollout
from stride.agents.engines.fused_cpu.kernels.calls import ROOM, address_of
from stride.agents.engines.fused_cpu.kernels.rollout import Game, Instant, Table
from stride.agents.experience.nouns import leaves
from stride.agents.sockets import Learner
from stride.envs_fast import world
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.world import NUMBA, Told
from stride.utils.counter_rng import normal


class CompiledWorlds:
    """Views of the memory, the collector and the worlds; owns only what is told of finished episodes."""

    def __init__(self, learner: Learner, bound: Bound) -> None:
        self.bound, self._collector, self._memory = bound, learner.collector, learner.memory
        assert isinstance(learner.collector.envs, NumbaEnv)
        self._envs, self._window = learner.collector.envs, learner.collector.window
        bound.frame.table[At.DRAW] = learner.policy.draws
        table, final = learner.memory.table, learner.memory.final
        (now,), (last,), (rows,) = leaves(self._collector.obs), leaves(final.obs), leaves(table.obs)  # no dicts here
        next_obs, final_obs = now.numpy()[None], last.numpy()
        fresh = self._collector.is_first.view(torch.uint8).numpy()
        self._now = Instant(next_obs, final_obs, np.zeros_like(next_obs), learner.memory.slot.numpy(), fresh)
        self._ring = self._window.ring.numpy()
        lost, cut, first = (x.view(torch.uint8).numpy() for x in (table.terminated, table.truncated, table.is_first))
        obs, action, reward, slot = (x.numpy() for x in (rows, table.action, table.reward, table.slot))
        self._table = Table(obs, action, reward, lost, cut, first, slot)
        self._room = np.zeros(ROOM // 8, np.int64)
        self._ended = (np.zeros((0, 0), np.float32),) * 2
        self._game = self._game_at(0, 1, 0)
        advance: Any = self._envs.world.kernels[NUMBA].advance
        self._advance = address_of(advance, *advance_types(self._game))
        self._play = address_of(rollout.play, types.CPointer(numba.typeof(self._game)), types.int64)
        self._leave = world.bind(rollout.leave, 0, self._game)
        self._laid: tuple[int, int, int | None] = (-1, -1, -1)

    def play(self, steps: int) -> None:
        """So many steps in every world, written down in the memory."""
        noise = self._collector.noise(steps)
        draws = normal(noise) if self.bound.recipe.normals else noise
        first, rows = 0, self._memory.rows
        while first < steps:  # where the ring ends, the rest goes on at its beginning
            head = self._memory.written % rows
            count = min(steps - first, rows - head)
            self.bound.frame.point(At.DRAWS, draws[first:])
            self.play_on(head, count)
            first += count

    def play_on(self, head: int, steps: int) -> None:
        """So many steps into the rows of the table from `head` on."""
        if self._laid != (head, steps, self._envs.seed):  # what was left for the kernel holds until another is due
            self._game = self._game_at(head, steps, self._advance)
            self._leave(self._room.ctypes.data, self._game)
            self._laid = (head, steps, self._envs.seed)
        gone = self._memory.table.truncated[head : head + steps].clone()
        self.bound.frame.check(rollout.play, self.bound.unread)
        self.bound.run(self._play, self._room.ctypes.data, steps, self.bound.steps_per_call)
        self._memory.count_written(steps, gone)
        table, game = self._game.table, self._game
        told = (table.terminated, table.truncated, game.episode_return, game.episode_length, self._ring)
        self._window.count.fill_(rollout.note_episodes(*told, int(self._window.count)))

    def _game_at(self, head: int, steps: int, advance: int) -> Game:
        """What the kernel plays on, for rows of the table from `head` on."""
        table = Table(*(x[head : head + steps] for x in self._table))
        if len(self._ended[0]) != steps:
            shape = steps, self._memory.num_envs
            self._ended = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        return Game(self.bound.frame.address, advance, self._envs.simulation, table, self._now, *self._ended)


def advance_types(game: Game) -> list[types.Type]:
    """Of the arguments that `rollout.play` hands to the worlds' kernel, a step at a time."""
    table, now = game.table, game.now
    flags = (table.terminated[:1], table.truncated[:1])
    episode = (game.episode_return[:1], game.episode_length[:1])
    told = Told(now.next_obs, table.reward[:1], *flags, now.ended_obs, *episode)
    return [numba.typeof(x) for x in (game.simulation, 0, 0, table.action[:1], told)]
