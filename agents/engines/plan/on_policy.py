"""What is the same of PPO and REINFORCE to a fused engine: a rollout, its rows in a new order for every epoch."""

import math

import numpy as np
from gymnasium import spaces
from torch import Tensor, nn

from stride.agents.engines.plan.layout import PARTS, Builder, Layout, linears, padded
from stride.agents.engines.plan.numbers import Live, Stat
from stride.agents.engines.plan.recipe import (
    Shape,
    note_broken,
    or_infinite,
    why_not_configured,
    why_not_read,
    why_not_seen,
)
from stride.agents.experience.nouns import Rollout, Tree
from stride.agents.networks.actor_critic import ActorCritic
from stride.agents.networks.encoders import RunningNorm
from stride.agents.networks.heads import Categorical, Gaussian
from stride.agents.ppo import PPO
from stride.agents.reinforce import REINFORCE
from stride.config.schema import Config, RolloutConfig
from stride.utils.counter_rng import SHUFFLE, counters


class OnPolicy:
    """The recipe, to which each algorithm adds its switches, its settings and its names."""

    config: type[Config]
    """of the algorithm: what is derived from it may mean something else"""

    def __init__(self, agent: PPO | REINFORCE, switches: dict[str, int], told: dict[str, Stat]) -> None:
        config, policy, memory = agent.config, agent.policy, agent.memory
        self.agent, self.normals = agent, isinstance(policy.head, Gaussian)
        layout, actions = lay_out(policy), policy.head.linear.out_features
        flops, features = layout.flops(*range(len(layout.nets))), policy.encoder.size
        sizes = (actions, features, actions + 1, config.minibatch_size)
        self.shape = Shape(layout, policy.encoder, *sizes, flops=flops, passes=3)
        self.switches = {
            "GAUSSIAN": self.normals,
            "MASKED": policy.masked,
            "EPOCHS": config.n_epochs,
            **switches,
        }
        self._learns = isinstance(policy.encoder.leaf[0], RunningNorm)
        self.rows = memory.rows * memory.num_envs
        self.updates = config.n_epochs * -(-self.rows // config.minibatch_size)
        names = told_by_all(policy) | told
        self._names, self._told_from = tuple(names), np.array([*names.values()], np.int64)

    @classmethod
    def why_not(cls, config: Config, policy: nn.Module, obs: Tree) -> str | None:
        if refusal := why_not_configured(config):
            return refusal
        if type(config) is not cls.config:
            return f"it does not know {config.algo_id}"
        if type(policy) is not ActorCritic:
            return f"it does not know policy: {config.policy}"
        if isinstance(config, RolloutConfig) and config.accumulate > 1:
            return "it does not know accumulate"
        if not isinstance(policy.head, Categorical | Gaussian):
            return "an action is more than one choice"
        return why_not_read(policy.encoder, obs)

    @staticmethod
    def why_not_played(policy: nn.Module, space: spaces.Space) -> str | None:
        return why_not_seen(space)

    def before_play(self, live: np.ndarray) -> bool:
        return True

    def before_learning(self, live: np.ndarray) -> None:
        now = self.agent.live
        self._coefficients = now.ent_coef, now.vf_coef  # which may have moved by the time all is told
        live[Live.GAMMA] = now.gamma
        live[Live.ENTROPY], live[Live.VALUE] = now.ent_coef, now.vf_coef
        live[Live.MAX_NORM] = or_infinite(now.max_grad_norm)

    def reward(self, rollout: Rollout) -> Tensor:
        """Scaled, as the agent itself would."""
        row = rollout.row
        if self.agent.config.normalize_reward:
            return self.agent.reward_scale(row.reward, row.terminated | row.truncated)
        return row.reward

    def order(self) -> tuple[int, ...]:
        """The words of the key that orders the rows of every epoch."""
        return counters(self.agent.key(SHUFFLE, self.agent.progress["iterations"] * self.agent.config.n_epochs))

    def tell(self, stats: np.ndarray, updates: int) -> None:
        agent, done = self.agent, int(stats[Stat.UPDATES])
        loss, value, entropy = stats[Stat.POLICY_LOSS], stats[Stat.VALUE_LOSS], stats[Stat.ENTROPY]
        of_entropy, of_value = self._coefficients
        stats[Stat.TOTAL_LOSS] = loss - of_entropy * entropy + of_value * value
        stats[Stat.STOPPED] = (stats[Stat.STOPPED] + updates - done) * done / updates
        stats[Stat.WEIGHT_STD] *= math.sqrt(self.rows / max(self.rows - 1, 1))
        stats[Stat.EXPLAINED : Stat.TOTAL_LOSS] *= done  # of the rollout, so once for each update
        agent.metrics.add_sums(self._names, stats[self._told_from], done)
        note_broken(agent, stats[Stat.BROKEN] > 0, stats[Stat.LOST] > 0)

    def after_learning(self, rollout: Rollout) -> None:
        """What the agent itself does when its updates are made."""
        if self._learns:
            self.agent.policy.encoder.learn(rollout.row.obs)
        self.agent.metrics.add(self.agent.policy.head.describe())


def told_by_all(policy: ActorCritic) -> dict[str, Stat]:
    """Which statistic each of the metrics is that both algorithms tell."""
    names = {
        "train/loss/policy": Stat.POLICY_LOSS,
        "train/loss/total": Stat.TOTAL_LOSS,
        "train/policy/entropy": Stat.ENTROPY,
        "train/grad_norm/total": Stat.NORM_TOTAL,
    }
    names |= {f"train/grad_norm/{part}": Stat(Stat.NORM_ACTOR + PARTS.index(part)) for part in policy.parts}
    if policy.critic is not None:
        names |= {"train/loss/value": Stat.VALUE_LOSS, "train/value/explained_variance": Stat.EXPLAINED}
    return names


def lay_out(policy: ActorCritic) -> Layout:
    """The flat form of an MLP policy: the actor's net, then the critic's, or one net whose last output is the value."""
    shared = isinstance(policy.trunk, nn.Sequential)
    torsos = [policy.trunk if shared else policy.actor[0]]
    heads = [[policy.head.linear]]
    if policy.critic is not None:
        value = policy.critic[1]
        assert isinstance(value, nn.Linear)
        if shared:
            heads[0].append(value)
        else:
            torsos.append(policy.critic[0])
            heads.append([value])
    build = Builder()
    segments: list[tuple[int, int, int]] = []
    actors, critic = policy.head.linear.out_features, policy.critic is not None
    for number, (torso, outputs) in enumerate(zip(torsos, heads, strict=True)):
        begin, weight, bias = build.add(linears(torso), outputs)
        if shared:  # one matrix is the head of both: its rows are parts of their own, since norms are told apart
            inner = padded(outputs[0].in_features)
            total = sum(linear.out_features for linear in outputs)
            segments += [(begin, weight, 2), (weight, weight + actors * inner, 0), (bias, bias + actors, 0)]
            if critic:
                segments += [(weight + actors * inner, weight + total * inner, 1), (bias + actors, bias + total, 1)]
        else:
            segments += [(begin, build.size, number)]
    log_std = build.size
    if isinstance(policy.head, Gaussian):
        segments.append(build.add_vector(policy.head.log_std))
    value_net = -1 if not critic else 0 if shared else 1
    value_row = actors if critic and shared else 0
    more = {"log_std": log_std, "value_net": value_net, "value_row": value_row}
    return build.layout(segments, build.size, len(build.places), **more)
