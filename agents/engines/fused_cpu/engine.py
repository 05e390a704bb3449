"""`engine: fused_cpu`: the same agent, config, draws and memory, with collecting and learning in compiled kernels.

What the kernels know is said in recipes.py, where they find their data in frame.py and binding.py.
"""

import math
from time import perf_counter
from typing import Any

from agents.engines.eager import Eager
from agents.engines.fused_cpu.binding import Binding
from agents.engines.fused_cpu.frame import At, Setting, Stat
from agents.engines.fused_cpu.player import Player
from agents.engines.fused_cpu.recipes import why_not_played
from agents.engines.fused_cpu.workers import usable_threads
from agents.experience.nouns import Rollout
from agents.networks.heads import Gaussian
from utils.counter_rng import SHUFFLE, counters


class FusedCPU:
    """Binds itself to an agent at its first call: by then the optimizer is there."""

    name = "fused_cpu"

    def __init__(self, threads: int = 1) -> None:
        self._threads = usable_threads(threads)
        self._agent: Any = None
        self._eager = Eager()
        self._began, self._ready = 0.0, False  # when the iteration began; whether it has been bound
        self._bound: Binding
        self._player: Player | None

    def collect(self, agent: Any, steps: int) -> None:
        bound = self._bind(agent)
        if bound is None or self._player is None:
            self._eager.collect(agent, steps)
        else:
            self._player.play(steps)
        if bound is not None:
            bound.frame[At.HAS_LOG_PROB] = self._player is not None

    def learn(self, agent: Any, work: Rollout) -> None:
        bound = self._bound if self._ready else self._bind(agent)
        if bound is None:
            return self._eager.learn(agent, work)
        self._ready = False
        if agent.poisoned:  # nothing is learnt from such rows, and the agent will say which
            return None
        row, reward = work.row, work.row.reward
        if agent.config.normalize_reward:
            reward = agent.reward_scale(reward, row.terminated | row.truncated)
        bound.frame[At.REWARD] = reward.data_ptr()
        self._set(agent)
        key = counters(agent.key(SHUFFLE, agent.progress["iterations"] * agent.config.n_epochs))
        bound.order_by(key)
        bound.learn(bound.updates)
        bound.pace.took(int(bound.frame[At.THREADS]), perf_counter() - self._began)
        bound.give()
        self._tell(agent)
        if bound.learns:
            agent.policy.encoder.learn(row.obs)
        agent.metrics.add(bound.head.describe())

    def _bind(self, agent: Any) -> Binding | None:
        """Begin an iteration; None where several processes train: they average their gradients in torch."""
        if agent.world_size > 1:
            return None
        if agent is not self._agent:
            self._agent, self._bound = agent, Binding(agent, self._threads)
            alone = why_not_played(agent.policy, agent.collector.envs)
            self._player = None if alone else Player(agent, self._bound, isinstance(agent.policy.head, Gaussian))
        self._began, self._ready = perf_counter(), True
        self._bound.frame[At.THREADS] = self._bound.pace.choose()
        self._bound.attach(agent.optimizer)
        self._bound.fetch()
        return self._bound

    def _set(self, agent: Any) -> None:
        """The numbers that schedules move, and statistics of 0."""
        live, settings = agent.live, self._bound.settings
        self._bound.stats[:] = 0.0
        settings[Setting.GAMMA] = live.gamma
        settings[Setting.LEARNING_RATE] = self._bound.group["lr"]
        settings[Setting.ENTROPY], settings[Setting.VALUE] = live.ent_coef, live.vf_coef
        settings[Setting.MAX_NORM] = _or_infinite(live.max_grad_norm)
        if not self._bound.recipe.reinforce:
            settings[Setting.LAMBDA], settings[Setting.CLIP] = live.gae_lambda, live.clip_range
            settings[Setting.VALUE_CLIP] = _or_infinite(live.clip_range_vf)
            settings[Setting.KL_LIMIT] = 1.5 * _or_infinite(live.target_kl)

    def _tell(self, agent: Any) -> None:
        """The same names as the agent's own, as sums over the updates made."""
        bound, live = self._bound, agent.live
        stats, done, due = bound.stats, int(bound.stats[Stat.UPDATES]), bound.updates
        loss, value, entropy = stats[Stat.POLICY_LOSS], stats[Stat.VALUE_LOSS], stats[Stat.ENTROPY]
        stats[Stat.TOTAL_LOSS] = loss - live.ent_coef * entropy + live.vf_coef * value
        stats[Stat.STOPPED] = (stats[Stat.STOPPED] + due - done) * done / due
        stats[Stat.WEIGHT_STD] *= math.sqrt(bound.rows / max(bound.rows - 1, 1))
        stats[Stat.EXPLAINED : Stat.TOTAL_LOSS] *= done  # of the rollout, so once for each update
        agent.metrics.add_sums(bound.told, stats[bound.told_from], done)
        agent.progress["updates"] += due
        if stats[Stat.BROKEN]:
            agent.broken.fill_(True)
        if stats[Stat.LOST]:
            agent.lost.fill_(True)


def _or_infinite(limit: float | None) -> float:
    return math.inf if limit is None else limit
