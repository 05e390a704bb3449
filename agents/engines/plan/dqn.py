"""DQN for fused engines (see recipe.py)."""

from torch import nn

from stride.agents.dqn import DQN, LOG_EVERY
from stride.agents.engines.plan.layout import FlatLayout, LayoutBuilder
from stride.agents.engines.plan.numbers import Live, Stat
from stride.agents.engines.plan.pictures import add_net, floats_read, picture_of, why_not_seen
from stride.agents.engines.plan.recipe import (
    NetShape,
    ReplayRecipe,
    main_observation,
    note_broken,
    or_infinite,
    why_not_configured,
    why_not_read,
    why_not_scaled,
)
from stride.agents.experience.nouns import Tree
from stride.agents.networks.q_network import QNetwork, QPolicy
from stride.config.schema import Config, DQNConfig


class DQNRecipe(ReplayRecipe):
    """Nets: the action values, then their target. Acting draws uniforms: whether to explore, and which action."""

    agent: DQN
    normals = False

    def __init__(self, agent: DQN) -> None:
        config, network = agent.config, agent.policy.network
        features = floats_read(network.encoder)
        self.agent, layout = agent, lay_out(network, agent.target)
        self.shape = NetShape(
            layout,
            network.encoder,
            features=features,
            actions=network.actions,
            inputs=features,
            outputs=network.actions + 1,
            batch=config.batch_size,
            flops=layout.flops(0),
            passes=5 if config.double_q else 4,
        )
        self.switches = {
            "double": config.double_q,
            "dueling": config.dueling,
            "report_every": LOG_EVERY,
            "span": config.n_step,
            "moving": 1,
        }

    @classmethod
    def why_not(cls, config: Config, policy: nn.Module, obs: Tree) -> str | None:
        if refusal := why_not_configured(config) or why_not_scaled(config):
            return refusal
        assert isinstance(config, DQNConfig) and isinstance(policy, QPolicy)
        if config.prioritised:
            return "it does not support prioritised"
        if config.quantiles:
            return "it does not support quantiles"
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
        live.max_norm = or_infinite(self.agent.live.max_grad_norm)
        live.entropy = 0.0
        live.huber = or_infinite(self.agent.live.huber)

    def report(self, stats: Stat, updates: int) -> None:
        self.add_sums({"train/loss/q": stats.every_loss / updates}, 1)
        sums = {
            "train/value/q": stats.q,
            "train/value/target": stats.target,
            "train/value/td_error": stats.error,
            "train/grad_norm/total": stats.norm_total,
        }
        self.add_sums(sums, stats.updates)
        note_broken(self.agent, stats)


def lay_out(network: QNetwork, target: QNetwork) -> FlatLayout:
    """Lay out the network, then its target, which is moved before an iteration's updates, not in each of them."""
    build = LayoutBuilder()
    for net in (network, target):
        begin = build.size
        add_net(build, net, [net.advantage] if net.state_value is None else [net.advantage, net.state_value])
    return build.layout([(0, begin, 0)], begin, len(build.tensors) // 2)
