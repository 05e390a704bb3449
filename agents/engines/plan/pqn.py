"""PQN for fused engines (see recipe.py): rollouts, lambda-returns of action values, one net with layer norms."""

import numpy as np
from torch import nn

from stride.agents.engines.plan.layout import FlatLayout, LayoutBuilder
from stride.agents.engines.plan.numbers import Live, Stat
from stride.agents.engines.plan.pictures import add_net, floats_read, picture_of, why_not_seen
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
from stride.agents.networks.popart import unscaled
from stride.agents.networks.q_network import QNetwork, QPolicy
from stride.agents.pqn import PQN
from stride.config.schema import Config, PQNConfig

METRICS = {  # the field of Stat for each metric
    "train/loss/q": "value_loss",
    "train/value/q": "q",
    "train/value/target": "target",
    "train/value/td_error": "error",
    "train/grad_norm/total": "norm_total",
}


class PQNRecipe(RolloutRecipe):
    """One net, the action values. Acting draws uniforms: whether to explore, and which action."""

    agent: PQN
    normals = False

    def __init__(self, agent: PQN) -> None:
        super().__init__(agent)
        network = agent.policy.network
        features = floats_read(network.encoder)
        self.agent, layout = agent, lay_out(network)
        self.shape = NetShape(
            layout,
            network.encoder,
            features=features,
            actions=network.actions,
            inputs=features,
            outputs=network.actions,
            batch=agent.config.minibatch_size,
            flops=layout.flops(0),
            passes=3,
        )
        # True: kernels need not compute log-probabilities, as PQN has none
        self.switches = {"epochs": agent.config.n_epochs, "has_log_prob": True}

    @classmethod
    def why_not(cls, config: Config, policy: nn.Module, obs: Tree) -> str | None:
        if refusal := why_not_configured(config):
            return refusal
        assert isinstance(config, PQNConfig) and isinstance(policy, QPolicy)
        if config.accumulate > 1:
            return "it does not support accumulate"
        if config.activation != "relu" and config.hidden_dims:
            return f"it does not support activation: {config.activation}"
        if policy.masked:
            return "it does not support action masks"
        image = picture_of(policy.network.encoder)
        if image is not None:
            return why_not_seen(config, image, main_observation(obs), has_critic=False)
        return why_not_read(policy.network.encoder, obs)

    def before_play(self, live: Live) -> bool:
        live.epsilon_greedy = float(self.agent.policy.epsilon)
        return True

    def before_learning(self, live: Live) -> None:
        settings = self.agent.live
        live.gamma, live.gae_lambda = settings.gamma, settings.return_lambda
        live.max_norm = or_infinite(settings.max_grad_norm)

    def report(self, stats: Stat, updates: int) -> None:
        # kernels know values in normalised units; metrics are in units of rewards
        mean, deviation = self.agent.value_scale.units()
        for field in ("q", "target"):
            setattr(stats, field, getattr(stats, field) * deviation + mean * stats.updates)
        stats.error *= deviation
        sums = np.array([getattr(stats, field) for field in METRICS.values()])
        self.agent.metrics.add_sums(tuple(METRICS), sums, int(stats.updates))
        note_broken(self.agent, stats)

    def after_learning(self, rollout: Rollout) -> None:
        self.agent.policy.network.encoder.learn(rollout.row.obs, self.agent.shard)


def lay_out(network: QNetwork) -> FlatLayout:
    """Lay out the network."""
    build = LayoutBuilder()
    add_net(build, network, [unscaled(network.advantage)])
    return build.layout([(0, build.size, 0)], build.size, len(build.tensors), value_net=0)
