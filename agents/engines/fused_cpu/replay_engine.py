"""`engine: fused_cpu` for DQN and SAC: the same agent, draws and memory; playing and updates in compiled kernels."""

import math
from time import perf_counter
from typing import Any

import numpy as np

from agents.dqn import DQN, TOLD
from agents.engines.eager import Eager
from agents.engines.fused_cpu.frame import SUMS, At, Setting, Sum, Told
from agents.engines.fused_cpu.player import Player
from agents.engines.fused_cpu.recipes import why_not_played
from agents.engines.fused_cpu.replay_binding import ReplayBinding
from agents.engines.fused_cpu.workers import usable_threads
from utils.counter_rng import normal


class FusedReplay:
    """Binds itself to an agent at its first call: by then the optimizer is there."""

    name = "fused_cpu"

    def __init__(self, threads: int = 1) -> None:
        self._threads = usable_threads(threads)
        self._agent: Any = None
        self._eager = Eager()
        self._bound: ReplayBinding
        self._player: Player | None

    def collect(self, agent: Any, steps: int) -> None:
        bound = self._bind(agent)
        random = not isinstance(agent, DQN) and agent.policy.at_random
        if bound is None or self._player is None or random:
            return self._eager.collect(agent, steps)
        if isinstance(agent, DQN):
            bound.settings[Setting.EPSILON_GREEDY] = agent.policy.epsilon
        bound.frame[At.THREADS] = min(bound.workers.threads, agent.memory.num_envs)
        bound.fetch()
        self._player.play(steps)

    def learn(self, agent: Any, updates: int) -> None:
        bound = self._bind(agent)
        if bound is None:
            return self._eager.learn(agent, updates)
        agent.renew_statistics()
        if not updates:
            return
        bound.look()
        self._set(agent)
        noise = None if isinstance(agent, DQN) else normal(agent.update_noise(updates))
        began, bound.frame[At.THREADS] = perf_counter(), bound.pace.choose()
        first = 0
        for count in bound.draws(agent.memory, updates, getattr(agent.config, "n_step", 1), agent.live.gamma):
            if noise is not None:
                bound.lend_noise(noise[first:])
            bound.stats[:] = 0.0
            bound.settings[Setting.MADE] = agent.progress["updates"]
            bound.learn(count)
            agent.progress["updates"] += count
            self._tell(agent, count)
            first += count
        bound.pace.took(int(bound.frame[At.THREADS]), (perf_counter() - began) / updates)
        bound.note_steps()

    def _bind(self, agent: Any) -> ReplayBinding | None:
        """None where several processes train: they average their gradients in torch."""
        if agent.world_size > 1:
            return None
        if agent is not self._agent:
            self._agent, self._bound = agent, ReplayBinding(agent, self._threads)
            alone = why_not_played(agent.policy, agent.collector.envs)
            self._player = None if alone else Player(agent, self._bound, normals=not isinstance(agent, DQN))
        self._bound.attach(agent.optimizer)
        return self._bound

    def _set(self, agent: Any) -> None:
        """The numbers that schedules move, and switches."""
        live, settings, frame = agent.live, self._bound.settings, self._bound.frame
        settings[Setting.LEARNING_RATE] = agent.optimizer.param_groups[0]["lr"]
        settings[Setting.MAX_NORM] = math.inf if live.max_grad_norm is None else live.max_grad_norm
        if isinstance(agent, DQN):
            frame[At.DOUBLE], frame[At.DUELING] = agent.config.double_q, agent.config.dueling
            frame[At.TELL_EVERY] = TOLD
            settings[Setting.ENTROPY] = 0.0
            settings[Setting.HUBER] = math.inf if agent.config.huber is None else agent.config.huber
        else:
            frame[At.TELL_EVERY] = 1
            settings[Setting.ENTROPY] = 0.0 if live.ent_coef is None else live.ent_coef
            settings[Setting.TAU], settings[Setting.TARGET_ENTROPY] = agent.config.tau, agent.target_entropy

    def _tell(self, agent: Any, updates: int) -> None:
        """The same names as the agent's own, as sums over the updates told of."""
        told = self._bound.stats.tolist()
        count = int(told[Told.UPDATES])
        sums = {"train/value/q": told[Sum.Q], "train/value/target": told[Sum.TARGET]}
        if isinstance(agent, DQN):
            _add(agent, {"train/loss/q": told[Told.EVERY_LOSS] / updates}, 1)
            sums["train/value/td_error"] = told[Sum.ERROR]
        else:
            sums = {"train/loss/policy": told[Sum.POLICY_LOSS], "train/loss/q": told[Sum.Q_LOSS], **sums}
            sums |= {"train/policy/entropy": told[Sum.ENTROPY], "train/policy/alpha": told[Told.ALPHA]}
        _add(agent, {**sums, "train/grad_norm/total": told[Told.NORM]}, count)
        if told[Told.BROKEN]:
            agent.broken.fill_(True)
            agent.lost.fill_(not math.isfinite(sum(told[:SUMS]) + told[Told.EVERY_LOSS]))


def _add(agent: Any, sums: dict[str, float], count: int) -> None:
    agent.metrics.add_sums(tuple(sums), np.array([*sums.values()]), count)
