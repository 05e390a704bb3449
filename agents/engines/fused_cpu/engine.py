"""`engine: fused_cpu`: the same agent, config, draws and memory, with collecting and learning in compiled kernels.

What the kernels know is said in recipes.py, where they find their data in frame.py and binding.py.
"""

import math
from time import perf_counter
from typing import Any

from agents.engines.eager import Eager
from agents.engines.fused_cpu import returns, update
from agents.engines.fused_cpu.binding import Binding
from agents.engines.fused_cpu.frame import At, Setting, Stat
from agents.engines.fused_cpu.layout import PARTS
from agents.engines.fused_cpu.player import Player
from agents.engines.fused_cpu.recipes import why_not_played
from agents.engines.fused_cpu.workers import usable_threads
from agents.experience.nouns import Rollout
from agents.networks.encoders import RunningNorm
from agents.networks.heads import Gaussian
from utils.counter_rng import SHUFFLE, counters


class FusedCPU:
    """Binds itself to an agent at its first call: by then the optimizer is there."""

    name = "fused_cpu"

    def __init__(self, threads: int = 1) -> None:
        self._threads = usable_threads(threads)
        self._agent: Any = None
        self._eager = Eager()
        self._began = 0.0
        self._bound: Binding
        self._player: Player | None

    def collect(self, agent: Any, steps: int) -> None:
        bound = self._bind(agent)
        if bound is not None:
            self._began, bound.frame[At.THREADS] = perf_counter(), bound.pace.choose()
        if bound is None or self._player is None:
            self._eager.collect(agent, steps)
        else:
            bound.fetch()
            self._player.play(steps)
        if bound is not None:
            bound.frame[At.HAS_LOG_PROB] = self._player is not None

    def learn(self, agent: Any, work: Rollout) -> None:
        bound = self._bind(agent)
        if bound is None:
            return self._eager.learn(agent, work)
        row, reward = work.row, work.row.reward
        if agent.config.normalize_reward:
            reward = agent.reward_scale(reward, row.terminated | row.truncated)
        bound.frame[At.REWARD] = reward.data_ptr()
        bound.fetch()
        self._set(agent)
        key = counters(agent.key(SHUFFLE, agent.progress["iterations"] * agent.config.n_epochs))
        bound.run(lambda thread: self._learn(thread, key))
        bound.pace.took(int(bound.frame[At.THREADS]), perf_counter() - self._began)
        bound.give()
        self._tell(agent)
        if isinstance(agent.policy.encoder.leaf[0], RunningNorm):
            agent.policy.encoder.learn(row.obs)
        agent.metrics.add(agent.policy.head.describe())

    def _learn(self, thread: int, key: tuple[int, ...]) -> None:
        bound = self._bound
        returns.judge(bound.address, thread, *key)
        for begin in range(0, bound.updates, bound.updates_per_call):
            update.update(bound.address, thread, begin, min(begin + bound.updates_per_call, bound.updates))

    def _bind(self, agent: Any) -> Binding | None:
        """None where several processes train: they average their gradients in torch."""
        if agent.world_size > 1:
            return None
        if agent is not self._agent:
            self._agent, self._bound = agent, Binding(agent, self._threads)
            alone = why_not_played(agent.policy, agent.collector.envs)
            self._player = None if alone else Player(agent, self._bound, isinstance(agent.policy.head, Gaussian))
        self._bound.attach(agent.optimizer)
        return self._bound

    def _set(self, agent: Any) -> None:
        """The numbers that schedules move, and statistics of 0."""
        live, settings = agent.live, self._bound.settings
        self._bound.stats[:] = 0.0
        settings[Setting.GAMMA] = live.gamma
        settings[Setting.LEARNING_RATE] = agent.optimizer.param_groups[0]["lr"]
        settings[Setting.ENTROPY], settings[Setting.VALUE] = live.ent_coef, live.vf_coef
        settings[Setting.MAX_NORM] = _or_infinite(live.max_grad_norm)
        if not self._bound.recipe.reinforce:
            settings[Setting.LAMBDA], settings[Setting.CLIP] = live.gae_lambda, live.clip_range
            settings[Setting.VALUE_CLIP] = _or_infinite(live.clip_range_vf)
            settings[Setting.KL_LIMIT] = 1.5 * _or_infinite(live.target_kl)

    def _tell(self, agent: Any) -> None:
        """The same names as the agent's own, as sums over the updates made."""
        bound, live, policy = self._bound, agent.live, agent.policy
        stats = bound.stats.tolist()
        done, critic = int(stats[Stat.UPDATES]), policy.critic is not None
        loss, value, entropy = stats[Stat.POLICY_LOSS], stats[Stat.VALUE_LOSS], stats[Stat.ENTROPY]
        total = loss - live.ent_coef * entropy + (live.vf_coef * value if critic else 0.0)
        sums = {"train/loss/policy": loss, "train/loss/total": total, "train/policy/entropy": entropy}
        for part in policy.parts:
            sums[f"train/grad_norm/{part}"] = stats[Stat.NORM_ACTOR + PARTS.index(part)]
        sums["train/grad_norm/total"] = stats[Stat.NORM_TOTAL]
        if critic:  # of the rollout, so once for each update
            sums["train/loss/value"] = value
            sums["train/value/explained_variance"] = done * stats[Stat.EXPLAINED]
        if bound.recipe.reinforce:
            sums["train/return/mean"] = done * stats[Stat.RETURN_MEAN]
        else:
            sums["train/policy/approx_kl"], sums["train/policy/clip_fraction"] = stats[Stat.KL], stats[Stat.CLIPPED]
            sums["train/policy/kl_stopped"] = (stats[Stat.STOPPED] + bound.updates - done) * done / bound.updates
            unbiased = math.sqrt(bound.rows / max(bound.rows - 1, 1))
            sums["train/advantage/mean"] = done * stats[Stat.WEIGHT_MEAN]
            sums["train/advantage/std"] = done * stats[Stat.WEIGHT_STD] * unbiased
        agent.metrics.add_sums(sums, done)
        agent.progress["updates"] += bound.updates
        if stats[Stat.BROKEN]:
            agent.broken.fill_(True)


def _or_infinite(limit: float | None) -> float:
    return math.inf if limit is None else limit
