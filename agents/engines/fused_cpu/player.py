"""Playing an agent's compiled worlds in kernels: what Collector.collect does, with its draws and into its memory."""

from typing import Any

import numba
import numpy as np
import torch

from agents.engines.fused_cpu import rollout
from agents.engines.fused_cpu.bound import Bound
from agents.engines.fused_cpu.calls import address_of
from agents.engines.fused_cpu.frame import At
from utils.counter_rng import normal


class Player:
    """Views of the memory, the collector and the worlds; owns only what is told of finished episodes."""

    def __init__(self, agent: Any, bound: Bound, normals: bool) -> None:
        """`normals`: the policy draws with normal numbers, not with uniform ones."""
        self._bound, self._collector, self._memory, self._normals = bound, agent.collector, agent.memory, normals
        self._envs, self._window = agent.collector.envs, agent.collector.window
        table = agent.memory.table
        self._next_obs = self._collector.obs.numpy()[None]
        self._ended = np.zeros_like(self._next_obs)
        self._final_obs, self._ring = agent.memory.final.obs.numpy(), self._window.ring.numpy()
        self._state = (agent.memory.slot.numpy(), self._collector.is_first.view(torch.uint8).numpy())
        flags = (x.view(torch.uint8).numpy() for x in (table.terminated, table.truncated, table.is_first))
        self._table = (table.obs.numpy(), table.action.numpy(), table.reward.numpy(), *flags, table.slot.numpy())
        told = self._take(1)
        one = (self._table[1][:1], self._next_obs, *(x[:1] for x in self._table[2:5]), self._ended, *told)
        kinds = (numba.typeof(x) for x in (*self._envs.arguments(), *one))
        self._advance = address_of(self._envs.world.advance, *kinds)

    def _take(self, steps: int) -> list[np.ndarray]:
        """Room for returns and lengths of the episodes that end in so many steps."""
        self._told = [np.zeros((steps, self._memory.num_envs), np.float32) for _ in range(2)]
        return self._told

    def play(self, steps: int) -> None:
        noise = self._collector.noise(steps)
        draws = (normal(noise) if self._normals else noise).numpy()
        first, rows = 0, self._memory.rows
        while first < steps:  # where the ring ends, the rest goes on at its beginning
            head = self._memory.written % rows
            count = min(steps - first, rows - head)
            self._play(draws[first : first + count], head)
            first += count

    def _play(self, draws: np.ndarray, head: int) -> None:
        """As many steps as there are draws, into the rows of the table from `head` on."""
        steps = len(draws)
        if len(self._told[0]) != steps:
            self._take(steps)
        obs, action, reward, lost, cut, fresh, slots = (x[head : head + steps] for x in self._table)
        gone = self._memory.table.truncated[head : head + steps].clone()
        arrays = (obs, self._next_obs, self._final_obs, self._ended, action, reward, lost, cut, fresh, slots)
        worlds = self._envs.arguments()
        bound, worlds_, threads = self._bound, self._memory.num_envs, int(self._bound.frame[At.THREADS])

        def job(thread: int) -> None:
            lo, hi = thread * worlds_ // threads, (thread + 1) * worlds_ // threads
            for begin in range(0, steps, bound.steps_per_call):
                end = min(begin + bound.steps_per_call, steps)
                rollout.play(
                    bound.address, thread, begin, end, self._advance, worlds[:4], lo, hi, worlds[6:], draws, *arrays,
                    *self._state, *self._told,
                )  # fmt: skip

        bound.run(job)
        self._memory.take_in(steps, gone)
        ended = rollout.note_episodes(lost, cut, *self._told, self._ring, int(self._window.count))
        self._window.count.fill_(ended)
