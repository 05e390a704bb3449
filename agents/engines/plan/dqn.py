"""DQN to a fused engine."""

import numpy as np
from gymnasium import spaces
from torch import Tensor, nn

from stride.agents.dqn import DQN, LOGGED
from stride.agents.engines.plan.layout import Builder, Layout, linears
from stride.agents.engines.plan.numbers import Live, Stat
from stride.agents.engines.plan.off_policy import add_sums
from stride.agents.engines.plan.recipe import (
    Shape,
    note_broken,
    or_infinite,
    why_not_configured,
    why_not_read,
    why_not_seen,
)
from stride.agents.experience.nouns import Tree
from stride.agents.networks.q_network import QNetwork, QPolicy
from stride.config.schema import Config, DQNConfig


class DQNRecipe:
    """Nets: the values of actions, then their target. Draws: uniforms, whether to explore and where to."""

    normals = False

    def __init__(self, agent: DQN) -> None:
        self.agent, config, network = agent, agent.config, agent.policy.network
        layout, actions, features = lay_out(network, agent.target), network.actions, network.encoder.size
        flops, passes = layout.flops(0), 5 if config.double_q else 4
        sizes = (actions, features, actions + 1, config.batch_size)
        self.shape = Shape(layout, network.encoder, *sizes, flops=flops, passes=passes)
        self.switches = {
            "DOUBLE": config.double_q,
            "DUELING": config.dueling,
            "TELL_EVERY": LOGGED,
            "SPAN": config.n_step,
            "MOVING": 1,
        }

    @classmethod
    def why_not(cls, config: Config, policy: nn.Module, obs: Tree) -> str | None:
        if refusal := why_not_configured(config):
            return refusal
        assert isinstance(config, DQNConfig) and isinstance(policy, QPolicy)
        if config.prioritised:
            return "it does not know prioritised"
        if config.quantiles:
            return "it does not know quantiles"
        if policy.masked:
            return "it does not know action masks"
        return why_not_read(policy.network.encoder, obs)

    @staticmethod
    def why_not_played(policy: nn.Module, space: spaces.Space) -> str | None:
        return why_not_seen(space)

    def before_play(self, live: np.ndarray) -> bool:
        live[Live.EPSILON_GREEDY] = self.agent.policy.epsilon
        return True

    def before_learning(self, live: np.ndarray) -> None:
        live[Live.MAX_NORM] = or_infinite(self.agent.live.max_grad_norm)
        live[Live.ENTROPY] = 0.0
        live[Live.HUBER] = or_infinite(self.agent.config.huber)

    def renew_statistics(self) -> None:
        self.agent.renew_statistics()

    def noise(self, updates: int) -> Tensor | None:
        """No update draws anything."""

    def tell(self, stats: np.ndarray, updates: int) -> None:
        told = stats.tolist()
        add_sums(self.agent, {"train/loss/q": told[Stat.EVERY_LOSS] / updates}, 1)
        sums = {
            "train/value/q": told[Stat.Q],
            "train/value/target": told[Stat.TARGET],
            "train/value/td_error": told[Stat.ERROR],
            "train/grad_norm/total": told[Stat.NORM_TOTAL],
        }
        add_sums(self.agent, sums, int(told[Stat.UPDATES]))
        note_broken(self.agent, told[Stat.BROKEN] > 0, told[Stat.LOST] > 0)


def lay_out(network: QNetwork, target: QNetwork) -> Layout:
    """The network and its target, which moves before the updates and not with each of them."""
    build = Builder()
    begins = []
    for net in (network, target):
        heads = [net.advantage] if net.state_value is None else [net.advantage, net.state_value]
        begins.append(build.add(linears(net.torso), heads).begin)
    return build.layout([(0, begins[1], 0)], begins[1], len(build.places) // 2)
