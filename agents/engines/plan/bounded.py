"""What the recipes of SAC, TD3 and TQC share: an actor of bounded actions, and critics of state and action."""

from gymnasium import spaces
from torch import nn

from stride.agents.engines.plan.layout import FlatLayout, LayoutBuilder, linears
from stride.agents.engines.plan.numbers import Live, Stat
from stride.agents.engines.plan.recipe import (
    NetShape,
    ReplayRecipe,
    note_broken,
    or_infinite,
    why_not_configured,
    why_not_read,
    why_not_scaled,
)
from stride.agents.experience.nouns import Tree
from stride.agents.networks.squashed import BoundedPolicy, Critics
from stride.agents.off_policy import BoundedAgent
from stride.config.schema import BoundedConfig, Config, TD3Config

# config keys whose defaults alone kernels support
DEFAULT_ONLY = ("norm", "blocks", "weight_projection", "joint_batch", "bins", "actor", "critic", "normalize_reward")


class BoundedRecipe(ReplayRecipe):
    """Nets: an actor, its critics, their targets. Acting and updates draw normal numbers."""

    agent: BoundedAgent
    normals = True

    def __init__(self, agent: BoundedAgent, layout: FlatLayout, passes: int) -> None:
        policy = agent.policy
        self.agent = agent
        self.shape = NetShape(
            layout,
            policy.encoder,
            features=policy.encoder.size,
            actions=policy.actions,
            inputs=policy.encoder.size + policy.actions,
            outputs=policy.outputs * policy.actions,
            batch=agent.config.batch_size,
            flops=layout.flops(0),
            passes=passes,
        )
        self.switches = {"report_every": 1, "span": agent.config.n_step, "critics": len(agent.critics.networks)}

    @classmethod
    def why_not(cls, config: Config, policy: nn.Module, obs: Tree) -> str | None:
        assert isinstance(config, BoundedConfig) and isinstance(policy, BoundedPolicy)
        if config.prioritised:
            return "it does not support prioritised"
        if refusal := why_not_plain(config):
            return refusal
        return why_not_configured(config) or why_not_scaled(config) or why_not_read(policy.encoder, obs)

    @staticmethod
    def why_not_played(policy: nn.Module, space: spaces.Space) -> str | None:
        assert isinstance(policy, BoundedPolicy)
        refusal = ReplayRecipe.why_not_played(policy, space)
        if policy.correlation:
            refusal = refusal or "it does not support noise_correlation"
        return refusal or ("it does not support noise_hold" if policy.hold > 1 else None)

    def before_play(self, live: Live) -> bool:
        return not self.agent.policy.at_random

    def before_learning(self, live: Live) -> None:
        live.max_norm = or_infinite(self.agent.live.max_grad_norm)
        live.entropy = 0.0
        live.tau = self.agent.live.tau

    def report(self, stats: Stat, updates: int) -> None:
        sums = {
            "train/loss/q": stats.value_loss,
            "train/value/q": stats.q,
            "train/value/target": stats.target,
            "train/grad_norm/total": stats.norm_total,
        }
        self.add_sums(sums, stats.updates)
        note_broken(self.agent, stats)


def why_not_plain(config: BoundedConfig) -> str | None:
    """Return the first setting that gives networks or losses other than the kernels'; None if all are defaults."""
    defaults = vars(type(config)())
    keys = DEFAULT_ONLY if isinstance(config, TD3Config) else (*DEFAULT_ONLY, "actor_every")
    changed = [name for name in keys if vars(config)[name] != defaults[name]]
    return f"it does not support {changed[0]}" if changed else None


def add_actor(build: LayoutBuilder, policy: BoundedPolicy) -> None:
    """Add the policy's hidden layers and head."""
    build.add(linears(policy.torso), [policy.head])


def add_critics(build: LayoutBuilder, critics: Critics) -> None:
    """Add a net for each critic."""
    for critic in critics.networks:
        assert isinstance(critic.layers, nn.Module)
        *hidden, head = linears(critic.layers)
        build.add(hidden, [head])
