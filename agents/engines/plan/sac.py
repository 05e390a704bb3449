"""SAC to a fused engine."""

import numpy as np
from gymnasium import spaces
from torch import Tensor, nn

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
from stride.agents.networks.squashed import Critics, SquashedPolicy
from stride.agents.sac import SAC
from stride.config.schema import Config
from stride.utils.counter_rng import normal


class SACRecipe:
    """Nets: the actor, two critics, their targets. Draws: normal numbers, of acting and of updates."""

    normals = True

    def __init__(self, agent: SAC) -> None:
        self.agent, config, policy = agent, agent.config, agent.policy
        layout = lay_out(policy, agent.critics, agent.target, agent.log_alpha)
        actions, features = policy.draws, policy.encoder.size
        sizes = (actions, features + actions, 2 * actions, config.batch_size)
        self.shape = Shape(layout, policy.encoder, *sizes, flops=layout.flops(0), passes=16)
        self.switches = {
            "LEARNT_ALPHA": layout.log_alpha >= 0,
            "TELL_EVERY": 1,
            "SPAN": 1,
            "MOVING": len(layout.nets),
        }

    @classmethod
    def why_not(cls, config: Config, policy: nn.Module, obs: Tree) -> str | None:
        assert isinstance(policy, SquashedPolicy)
        return why_not_configured(config) or why_not_read(policy.encoder, obs)

    @staticmethod
    def why_not_played(policy: nn.Module, space: spaces.Space) -> str | None:
        assert isinstance(policy, SquashedPolicy)
        return why_not_seen(space) or ("it does not know noise_correlation" if policy.correlation else None)

    def before_play(self, live: np.ndarray) -> bool:
        return not self.agent.policy.at_random

    def before_learning(self, live: np.ndarray) -> None:
        now = self.agent.live
        live[Live.MAX_NORM] = or_infinite(now.max_grad_norm)
        live[Live.ENTROPY] = 0.0 if now.ent_coef is None else now.ent_coef
        live[Live.TAU], live[Live.TARGET_ENTROPY] = self.agent.config.tau, self.agent.target_entropy

    def renew_statistics(self) -> None:
        self.agent.renew_statistics()

    def noise(self, updates: int) -> Tensor | None:
        """Standard normals [updates, 2, B, A] for the actions that updates draw anew."""
        return normal(self.agent.update_noise(updates))

    def tell(self, stats: np.ndarray, updates: int) -> None:
        told = stats.tolist()
        sums = {
            "train/loss/policy": told[Stat.POLICY_LOSS],
            "train/loss/q": told[Stat.VALUE_LOSS],
            "train/value/q": told[Stat.Q],
            "train/value/target": told[Stat.TARGET],
            "train/policy/entropy": told[Stat.ENTROPY],
            "train/policy/alpha": told[Stat.ALPHA],
            "train/grad_norm/total": told[Stat.NORM_TOTAL],
        }
        add_sums(self.agent, sums, int(told[Stat.UPDATES]))
        note_broken(self.agent, told[Stat.BROKEN] > 0, told[Stat.LOST] > 0)


def lay_out(policy: SquashedPolicy, critics: Critics, target: Critics, log_alpha: nn.Parameter) -> Layout:
    """The actor, its critics, the temperature where it is learnt, and the critics' targets."""
    build = Builder()
    build.add(linears(policy.torso), [policy.head])
    begin = build.size
    for critic in critics.networks:
        build.add(*_of_critic(critic))
    end = build.size
    segments = [(0, begin, 0), (begin, end, 1)]
    if log_alpha.requires_grad:
        segments.append(build.add_vector(log_alpha))
    size, learnt = build.size, len(build.places)
    for critic in target.networks:
        build.add(*_of_critic(critic))
    offset = end if log_alpha.requires_grad else -1
    return build.layout(segments, size, learnt, log_alpha=offset, follows=size - begin)


def _of_critic(critic: nn.Module) -> tuple[list[nn.Linear], list[nn.Linear]]:
    *hidden, head = (layer for layer in critic.layers.children() if isinstance(layer, nn.Linear))  # type: ignore[union-attr]
    return hidden, [head]
