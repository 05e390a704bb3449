"""SAC to a fused engine."""

from gymnasium import spaces
from torch import Tensor, nn

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
from stride.agents.networks.squashed import Critics, SquashedPolicy
from stride.agents.sac import SAC
from stride.config.schema import Config, SACConfig
from stride.utils.counter_rng import normal

# keys that kernels know by their defaults alone
EAGER = ("norm", "blocks", "weight_projection", "joint_batch", "bins", "actor", "critic", "actor_every",
         "normalize_reward")  # fmt: skip


class SACRecipe(ReplayRecipe):
    """Nets: the actor, two critics, their targets. Draws: normal numbers, of acting and of updates."""

    agent: SAC
    normals = True

    def __init__(self, agent: SAC) -> None:
        self.agent, policy = agent, agent.policy
        layout = lay_out(policy, agent.critics, agent.target, agent.log_alpha)
        self.shape = NetShape(
            layout,
            policy.encoder,
            features=policy.encoder.size,
            actions=policy.actions,
            inputs=policy.encoder.size + policy.actions,
            outputs=2 * policy.actions,
            batch=agent.config.batch_size,
            flops=layout.flops(0),
            passes=16,
        )
        self.switches = {
            "learnt_alpha": layout.log_alpha >= 0,
            "report_every": 1,
            "span": agent.config.n_step,
            "moving": len(layout.nets),
        }

    @classmethod
    def why_not(cls, config: Config, policy: nn.Module, obs: Tree) -> str | None:
        assert isinstance(config, SACConfig) and isinstance(policy, SquashedPolicy)
        if config.prioritised:
            return "it does not support prioritised"
        if refusal := why_not_plain(config):
            return refusal
        return why_not_configured(config) or why_not_scaled(config) or why_not_read(policy.encoder, obs)

    @staticmethod
    def why_not_played(policy: nn.Module, space: spaces.Space) -> str | None:
        assert isinstance(policy, SquashedPolicy)
        refusal = ReplayRecipe.why_not_played(policy, space)
        if policy.correlation:
            refusal = refusal or "it does not support noise_correlation"
        return refusal or ("it does not support noise_hold" if policy.hold > 1 else None)

    def before_play(self, live: Live) -> bool:
        return not self.agent.policy.at_random

    def before_learning(self, live: Live) -> None:
        settings = self.agent.live
        live.max_norm = or_infinite(settings.max_grad_norm)
        live.entropy = 0.0 if settings.ent_coef is None else settings.ent_coef
        live.tau = settings.tau
        live.target_entropy = self.agent.target_entropy

    def noise(self, updates: int) -> Tensor | None:
        """Standard normals [updates, 2, B, A] for the actions that updates draw anew."""
        return normal(self.agent.update_noise(updates))

    def report(self, stats: Stat, updates: int) -> None:
        sums = {
            "train/loss/policy": stats.policy_loss,
            "train/loss/q": stats.value_loss,
            "train/value/q": stats.q,
            "train/value/target": stats.target,
            "train/policy/entropy": stats.entropy,
            "train/policy/alpha": stats.alpha,
            "train/grad_norm/total": stats.norm_total,
        }
        self.add_sums(sums, stats.updates)
        note_broken(self.agent, stats)


def why_not_plain(config: SACConfig) -> str | None:
    """The first key by which networks or losses are others than the kernels'; None where all have their defaults."""
    usual = vars(SACConfig())
    changed = [name for name in EAGER if vars(config)[name] != usual[name]]
    return f"it does not support {changed[0]}" if changed else None


def lay_out(policy: SquashedPolicy, critics: Critics, target: Critics, log_alpha: nn.Parameter) -> FlatLayout:
    """The actor, its critics, the temperature where it is learnt, and the critics' targets."""
    build = LayoutBuilder()
    build.add(linears(policy.torso), [policy.head])
    begin = build.size
    _add_critics(build, critics)
    end = build.size
    segments = [(0, begin, 0), (begin, end, 1)]
    log_alpha_at = -1
    if log_alpha.requires_grad:
        log_alpha_at = end
        segments.append(build.add_vector(log_alpha))
    size, learnt = build.size, len(build.tensors)
    _add_critics(build, target)
    return build.layout(segments, size, learnt, log_alpha=log_alpha_at, follows=size - begin)


def _add_critics(build: LayoutBuilder, critics: Critics) -> None:
    for critic in critics.networks:
        assert isinstance(critic.layers, nn.Module)
        *hidden, head = linears(critic.layers)
        build.add(hidden, [head])
