"""Playing an agent's compiled worlds in kernels: what Collector.collect does, with its draws and into its memory."""

from typing import Any

import numba
import numpy as np
import torch
from numba import types

from agents.engines.fused_cpu.bind import Bound
from agents.engines.fused_cpu.frame import At
from agents.engines.fused_cpu.kernels import rollout
from agents.engines.fused_cpu.kernels.calls import ROOM, address_of
from agents.sockets import Learner
from envs_fast.numba_env import NumbaEnv
from utils.counter_rng import normal


class Game:
    """Views of the memory, the collector and the worlds; owns only what is told of finished episodes."""

    def __init__(self, agent: Learner, bound: Bound) -> None:
        self.bound, self._collector, self._memory = bound, agent.collector, agent.memory
        assert isinstance(agent.collector.envs, NumbaEnv)
        self._envs, self._window = agent.collector.envs, agent.collector.window
        bound.frame.table[At.DRAW] = agent.policy.draws
        table, next_obs = agent.memory.table, self._collector.obs.numpy()[None]
        fresh, final_obs = self._collector.is_first.view(torch.uint8).numpy(), agent.memory.final.obs.numpy()
        self._others = (next_obs, final_obs, np.zeros_like(next_obs), agent.memory.slot.numpy(), fresh)
        self._ring = self._window.ring.numpy()
        flags = (x.view(torch.uint8).numpy() for x in (table.terminated, table.truncated, table.is_first))
        self._table = (table.obs.numpy(), table.action.numpy(), table.reward.numpy(), *flags, table.slot.numpy())
        self._room = np.zeros(ROOM // 8, np.int64)
        self._laid: tuple[int, int, int | None] = (-1, -1, -1)
        self._advance = 0
        self._lay_out(0, 1)
        advance: Any = self._envs.world.advance
        self._advance = address_of(advance, *advance_types(self._game))
        self._play = address_of(rollout.play, types.CPointer(numba.typeof(self._game)), types.int64)
        self._laid = (-1, -1, -1)

    def play(self, steps: int) -> None:
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
        if self._laid != (head, steps, self._envs.seed):
            self._lay_out(head, steps)
        gone = self._memory.table.truncated[head : head + steps].clone()
        self.bound.frame.demand(rollout.play, self.bound.unread)
        self.bound.run(self._play, self._room.ctypes.data, steps, self.bound.steps_per_call)
        self._memory.take_in(steps, gone)
        lost, cut, ring = self._game[4][3], self._game[4][4], self._ring
        self._window.count.fill_(rollout.note_episodes(lost, cut, *self._told, ring, int(self._window.count)))

    def _lay_out(self, head: int, steps: int) -> None:
        """Leave for the kernel what it plays on; the arrays stay where they are until another place is due."""
        worlds = self._envs.arguments()
        table = tuple(x[head : head + steps] for x in self._table)
        if steps != self._laid[1]:
            self._told = tuple(np.zeros((steps, self._memory.num_envs), np.float32) for _ in range(2))
        frame = self.bound.frame.address
        self._game = (frame, self._advance, worlds[:4], worlds[6:], table, self._others, self._told)
        rollout.leave(self._room.ctypes.data, self._game)
        self._laid = (head, steps, self._envs.seed)


def advance_types(game: Any) -> list[Any]:
    """Of the arguments that `rollout.play` hands to the worlds' kernel, a step at a time."""
    _, _, worlds, rest, (_, action, reward, lost, cut, _, _), (next_obs, _, ended, _, _), told = game
    arrays = (action[:1], next_obs, reward[:1], lost[:1], cut[:1], ended, *(x[:1] for x in told))
    return [numba.typeof(x) for x in (*worlds, 0, 0, *rest, *arrays)]
