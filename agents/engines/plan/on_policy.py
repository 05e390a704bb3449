"""PPO and REINFORCE for fused engines (see recipe.py): they learn from a rollout, in a new order for every epoch."""

import math
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from stride.agents.engines.plan.layout import FlatLayout, LayoutBuilder, linears, padded
from stride.agents.engines.plan.numbers import NORMALIZE, Live, Stat
from stride.agents.engines.plan.pictures import (
    add_convolutions,
    linear_behind,
    picture_floats,
    picture_of,
    why_not_seen,
)
from stride.agents.engines.plan.recipe import (
    NetShape,
    RolloutRecipe,
    main_observation,
    note_broken,
    or_infinite,
    why_not_configured,
    why_not_read,
)
from stride.agents.experience.nouns import Rollout, Tree
from stride.agents.networks.actor_critic import ActorCritic
from stride.agents.networks.encoders import RunningNorm
from stride.agents.networks.heads import Categorical, Gaussian
from stride.agents.networks.popart import unscaled
from stride.agents.networks.recurrent import MinGRUActorCritic, Recurrence
from stride.agents.ppo import PPO
from stride.agents.reinforce import REINFORCE
from stride.config.schema import Config, PolicyGradientConfig, PPOConfig, REINFORCEConfig, RolloutConfig


class OnPolicy(RolloutRecipe):
    """The common part of both recipes; each algorithm adds its switches, settings and metrics."""

    agent: PPO | REINFORCE
    config: type[Config]
    """the algorithm's config class; derived classes are refused, since they may mean something else"""

    def __init__(self, agent: PPO | REINFORCE, switches: dict[str, int], metrics: dict[str, str]) -> None:
        super().__init__(agent)
        config, policy = agent.config, agent.policy
        self.agent, self.normals = agent, isinstance(policy.head, Gaussian)
        layout, actions = lay_out(policy), policy.head.linear.out_features
        image = picture_of(policy.encoder)
        features = policy.encoder.size if image is None else picture_floats(image)
        self.shape = NetShape(
            layout,
            policy.encoder,
            features=features,
            actions=actions,
            inputs=features,
            outputs=actions + 1,
            batch=config.minibatch_size,
            flops=layout.flops(*range(len(layout.nets))),
            passes=3,
        )
        self.switches = {
            "gaussian": self.normals,
            "masked": policy.masked,
            "epochs": config.n_epochs,
            **switches,
        }
        self._metrics = common_metrics(policy) | metrics

    @classmethod
    def why_not(cls, config: Config, policy: nn.Module, obs: Tree) -> str | None:
        if refusal := why_not_configured(config):
            return refusal
        if type(config) is not cls.config:
            return f"it does not support {config.algo_id}"
        if isinstance(config, PolicyGradientConfig) and config.has_blocks:
            return "it does not support actor and critic"
        if type(policy) is not (MinGRUActorCritic if config.policy == "mingru" else ActorCritic):
            return f"it does not support policy: {config.policy}"
        if isinstance(config, RolloutConfig) and config.accumulate > 1:
            return "it does not support accumulate"
        assert isinstance(policy, ActorCritic)
        if not isinstance(policy.head, Categorical | Gaussian):
            return "an action is more than one choice"
        image = picture_of(policy.encoder)
        if image is not None and policy.cut == "worlds":
            return f"it does not support pictures with policy: {config.policy}"
        if image is not None:
            return why_not_seen(config, image, main_observation(obs))
        return why_not_read(policy.encoder, obs)

    def before_learning(self, live: Live) -> None:
        settings = self.agent.live
        self._coefficients = settings.ent_coef, settings.vf_coef  # for `report`: schedules may change them
        live.gamma = settings.gamma
        live.entropy, live.value = self._coefficients
        live.max_norm = or_infinite(settings.max_grad_norm)

    def reward(self, rollout: Rollout) -> Tensor:
        """Return the rewards [T, N], scaled if the config says so."""
        row = rollout.row
        if self.agent.config.normalize_reward:
            return self.agent.reward_scale(row.reward, row.terminated | row.truncated, self.agent.shard)
        return row.reward

    def report(self, stats: Stat, updates: int) -> None:
        agent, made = self.agent, int(stats.updates)
        ent_coef, vf_coef = self._coefficients
        stats.total_loss = stats.policy_loss - ent_coef * stats.entropy + vf_coef * stats.value_loss
        # kernels count the update that exceeded target_kl; later ones are skipped, too; the metric is their share
        stats.stopped = (stats.stopped + updates - made) * made / updates
        # from the deviation over all rows to the unbiased one that torch reports
        rows = self.rows * agent.shard.count
        stats.weight_std *= math.sqrt(rows / max(rows - 1, 1))
        stats.explained *= made  # means of the rollout, not sums over updates: `add_sums` divides by `made`
        stats.weight_mean *= made
        stats.weight_std *= made
        stats.return_mean *= made
        sums = np.array([getattr(stats, field) for field in self._metrics.values()])
        agent.metrics.add_sums(tuple(self._metrics), sums, made)
        note_broken(agent, stats)

    def after_learning(self, rollout: Rollout) -> None:
        encoder = self.agent.policy.encoder
        if isinstance(encoder.leaf[0], RunningNorm):
            encoder.learn(rollout.row.obs, self.agent.shard)
        self.agent.metrics.add(self.agent.policy.head.describe())


class PPORecipe(OnPolicy):
    """PPO: clipped surrogate, optional clipped critic loss, target_kl, learning rates that follow the KL."""

    agent: PPO
    config = PPOConfig

    def __init__(self, agent: PPO) -> None:
        switches = {
            "reinforce": False,
            "whole_episode": False,
            "normalize": NORMALIZE[agent.config.normalize_advantages],
        }
        metrics = {
            "train/policy/approx_kl": "kl",
            "train/policy/clip_fraction": "clipped",
            "train/policy/kl_stopped": "stopped",
            "train/advantage/mean": "weight_mean",
            "train/advantage/std": "weight_std",
        }
        super().__init__(agent, switches, metrics)

    def before_learning(self, live: Live) -> None:
        super().before_learning(live)
        settings = self.agent.live
        live.gae_lambda, live.clip = settings.gae_lambda, settings.clip_range
        live.value_clip = or_infinite(settings.clip_range_vf)
        live.kl_limit = 1.5 * or_infinite(settings.target_kl)

    def report(self, stats: Stat, updates: int) -> None:
        super().report(stats, updates)
        self.agent.follow(torch.tensor(stats.kl / max(stats.updates, 1.0)))


class REINFORCERecipe(OnPolicy):
    """REINFORCE: Monte Carlo returns, with or without a critic."""

    config = REINFORCEConfig

    def __init__(self, agent: REINFORCE) -> None:
        switches = {
            "reinforce": True,
            "whole_episode": agent.config.returns_type == "mc:episode",
            "normalize": NORMALIZE[agent.config.normalize_returns],
        }
        super().__init__(agent, switches, {"train/return/mean": "return_mean"})


def common_metrics(policy: ActorCritic) -> dict[str, str]:
    """Return the metrics that both algorithms report, with the field of Stat for each."""
    metrics = {
        "train/loss/policy": "policy_loss",
        "train/loss/total": "total_loss",
        "train/policy/entropy": "entropy",
        "train/grad_norm/total": "norm_total",
    }
    metrics |= {f"train/grad_norm/{part}": f"norm_{part}" for part in policy.parts}
    if policy.critic is not None:
        metrics |= {"train/loss/value": "value_loss", "train/value/explained_variance": "explained"}
    return metrics


def lay_out(policy: ActorCritic) -> FlatLayout:
    """Lay out a policy: the actor's net, then the critic's, or one shared net whose last output is the value.

    A net that reads pictures is shared: convolutions, trunk, one head. Layers of minGRU follow the hidden layers.
    """
    build, actor = LayoutBuilder(), policy.head.linear
    critic = None if policy.critic is None else unscaled(policy.critic[1])
    segments: list[tuple[int, int, int]] = []  # first, last, part (see Segment)
    value_net, value_row = -1, 0
    image, (shared, cells) = picture_of(policy.encoder), layers_of(policy.trunk)
    if image is not None:
        add_convolutions(build, image)
        shared = [linear_behind(image), *shared]
    if shared or cells:
        _, weight, bias = build.add(shared, [actor] if critic is None else [actor, critic], cells=cells)
        # the shared head is one matrix; the actor's and critic's rows are own segments, as their norms are reported
        actions, inner = actor.out_features, padded(actor.in_features)
        middle, end = weight + actions * inner, weight + (actions + 1) * inner
        segments += [(0, weight, 2), (weight, middle, 0), (bias, bias + actions, 0)]
        if critic is not None:
            segments += [(middle, end, 1), (bias + actions, bias + actions + 1, 1)]
            value_net, value_row = 0, actions
    else:
        layers, cells = layers_of(policy.actor[0])
        build.add(layers, [actor], cells=cells)
        segments.append((0, build.size, 0))
        if policy.critic is not None and critic is not None:
            layers, critic_cells = layers_of(policy.critic[0])
            begin = build.add(layers, [critic], cells=critic_cells).begin
            segments.append((begin, build.size, 1))
            value_net = 1
    log_std = build.size
    if isinstance(policy.head, Gaussian):
        segments.append(build.add_vector(policy.head.log_std))
    return build.layout(
        segments, build.size, len(build.tensors), log_std=log_std, value_net=value_net, value_row=value_row,
        cells=len(cells),
    )  # fmt: skip


def layers_of(torso: nn.Module) -> tuple[list[nn.Linear], list[nn.Linear]]:
    """Return the hidden layers of a torso, and the layers of minGRU behind them."""
    if isinstance(torso, Recurrence):
        return linears(torso.layers), linears(cast(nn.Module, torso.cell.layers))
    return linears(torso), []
