"""Playing an agent's compiled worlds in kernels: what Collector.collect does, with its draws and into its memory."""

from typing import Any

import numba
import numpy as np
import torch

from agents.engines.fused_cpu import rollout
from agents.engines.fused_cpu.binding import Binding
from agents.engines.fused_cpu.calls import address_of
from agents.engines.fused_cpu.frame import At
from agents.networks.heads import Gaussian
from utils.counter_rng import normal


class Player:
    """Views of the memory, the collector and the worlds; owns only what is told of finished episodes."""

    def __init__(self, agent: Any, bound: Binding) -> None:
        self._bound, self._collector, self._memory = bound, agent.collector, agent.memory
        self._envs, self._window = agent.collector.envs, agent.collector.window
        self._gaussian = isinstance(agent.policy.head, Gaussian)
        table = agent.memory.table
        next_obs = self._collector.obs.numpy()[None]
        fresh, slot = self._collector.is_first.view(torch.uint8).numpy(), agent.memory.slot.numpy()
        flags = [x.view(torch.uint8).numpy() for x in (table.terminated, table.truncated, table.is_first)]
        action, reward = table.action.numpy(), table.reward.numpy()
        told = [np.zeros(reward.shape, np.float32) for _ in range(2)]
        ended = np.zeros_like(next_obs)
        places = (table.obs.numpy(), next_obs, agent.memory.final.obs.numpy(), ended)
        self._arrays = (*places, action, reward, *flags, table.slot.numpy(), slot, fresh, *told)
        self._episodes = (flags[0], flags[1], *told, self._window.ring.numpy())
        one = (action[:1], next_obs, reward[:1], flags[0][:1], flags[1][:1], ended, told[0][:1], told[1][:1])
        kinds = (numba.typeof(x) for x in (*self._envs.arguments(), *one))
        self._advance = address_of(self._envs.world.advance, *kinds)

    def play(self, steps: int) -> None:
        noise = self._collector.noise(steps)
        draws = (normal(noise) if self._gaussian else noise).numpy()
        worlds = self._envs.arguments()
        bound, count, threads = self._bound, self._memory.num_envs, int(self._bound.frame[At.THREADS])

        def job(thread: int) -> None:
            lo, hi = thread * count // threads, (thread + 1) * count // threads
            for begin in range(0, steps, bound.steps_per_call):
                end = min(begin + bound.steps_per_call, steps)
                rollout.play(
                    bound.address, thread, begin, end, self._advance, worlds[:4], lo, hi, worlds[6:], draws,
                    *self._arrays,
                )  # fmt: skip

        bound.run(job)
        self._memory.written += steps
        self._window.count.fill_(rollout.note_episodes(*self._episodes, int(self._window.count)))
