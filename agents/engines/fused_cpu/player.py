"""Playing an agent's compiled worlds in kernels: what Collector.collect does, with its draws and into its memory."""

from typing import Any

import numba
import numpy as np
import torch
from numba import types

from agents.engines.fused_cpu import rollout
from agents.engines.fused_cpu.bound import Bound
from agents.engines.fused_cpu.calls import ROOM, address_of
from agents.engines.fused_cpu.frame import At
from envs_fast.world import NUMBA, Told
from utils.counter_rng import normal


class Player:
    """Views of the memory, the collector and the worlds; owns only what is told of finished episodes."""

    def __init__(self, agent: Any, bound: Bound, normals: bool) -> None:
        """`normals`: the policy draws with normal numbers, not with uniform ones."""
        self._bound, self._collector, self._memory, self._normals = bound, agent.collector, agent.memory, normals
        self._envs, self._window = agent.collector.envs, agent.collector.window
        bound.frame[At.DRAW] = agent.policy.draws
        table, next_obs = agent.memory.table, self._collector.obs.numpy()[None]
        fresh, final_obs = self._collector.is_first.view(torch.uint8).numpy(), agent.memory.final.obs.numpy()
        self._others = (next_obs, final_obs, np.zeros_like(next_obs), agent.memory.slot.numpy(), fresh)
        self._ring = self._window.ring.numpy()
        flags = (x.view(torch.uint8).numpy() for x in (table.terminated, table.truncated, table.is_first))
        self._table = (table.obs.numpy(), table.action.numpy(), table.reward.numpy(), *flags, table.slot.numpy())
        self._room, self._laid = np.zeros(ROOM // 8, np.int64), (-1, -1, -1)
        self._advance = 0
        self._lay_out(0, 1)
        self._advance = address_of(self._envs.world.kernels[NUMBA].advance, *advance_types(self._game))
        self._play = address_of(rollout.play, types.CPointer(numba.typeof(self._game)), types.int64)
        self._laid = (-1, -1, -1)

    def play(self, steps: int) -> None:
        noise = self._collector.noise(steps)
        draws = normal(noise) if self._normals else noise
        first, rows = 0, self._memory.rows
        while first < steps:  # where the ring ends, the rest goes on at its beginning
            head = self._memory.written % rows
            count = min(steps - first, rows - head)
            self._bound.frame[At.DRAWS] = draws[first:].data_ptr()
            self.play_on(head, count)
            first += count

    def play_on(self, head: int, steps: int) -> None:
        """So many steps into the rows of the table from `head` on."""
        if self._laid != (head, steps, self._envs.seed):
            self._lay_out(head, steps)
        gone = self._memory.table.truncated[head : head + steps].clone()
        self._bound.run(self._play, self._room.ctypes.data, steps, self._bound.steps_per_call)
        self._memory.count_written(steps, gone)
        lost, cut, ring = self._game[3][3], self._game[3][4], self._ring
        self._window.count.fill_(rollout.note_episodes(lost, cut, *self._told, ring, int(self._window.count)))

    def _lay_out(self, head: int, steps: int) -> None:
        """Leave for the kernel what it plays on; the arrays stay where they are until another place is due."""
        table = tuple(x[head : head + steps] for x in self._table)
        if steps != self._laid[1]:
            self._told = tuple(np.zeros((steps, self._memory.num_envs), np.float32) for _ in range(2))
        frame = self._bound.address
        self._game = (frame, self._advance, self._envs.simulation, table, self._others, self._told)
        rollout.leave(self._room.ctypes.data, self._game)
        self._laid = (head, steps, self._envs.seed)


def advance_types(game: Any) -> list[Any]:
    """Of the arguments that `rollout.play` hands to the worlds' kernel, a step at a time."""
    _, _, simulation, (_, action, reward, lost, cut, _, _), (next_obs, _, ended, _, _), ours = game
    told = Told(next_obs, reward[:1], lost[:1], cut[:1], ended, *(x[:1] for x in ours))
    return [numba.typeof(x) for x in (simulation, 0, 0, action[:1], told)]
