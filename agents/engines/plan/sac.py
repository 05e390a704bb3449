"""SAC for fused engines (see recipe.py)."""

from torch import Tensor, nn

from stride.agents.engines.plan.bounded import BoundedRecipe, add_actor, add_critics
from stride.agents.engines.plan.layout import FOLLOWED, FlatLayout, LayoutBuilder
from stride.agents.engines.plan.numbers import Live, Stat
from stride.agents.networks.squashed import Critics, SquashedPolicy
from stride.agents.sac import SAC
from stride.utils.counter_rng import normal


class SACRecipe(BoundedRecipe):
    """Nets: the actor, its critics, the critics' targets."""

    agent: SAC

    def __init__(self, agent: SAC) -> None:
        layout = lay_out(agent.policy, agent.critics, agent.target, agent.log_alpha)
        super().__init__(agent, layout, passes=4 + 6 * len(agent.critics.networks))
        self.switches |= {"learnt_alpha": layout.log_alpha >= 0, "moving": len(layout.nets)}

    def before_learning(self, live: Live) -> None:
        super().before_learning(live)
        settings = self.agent.live
        live.entropy = 0.0 if settings.ent_coef is None else settings.ent_coef
        live.target_entropy = self.agent.target_entropy

    def noise(self, updates: int) -> Tensor | None:
        """Draw standard normals [updates, 2, B, A]: updates draw actions for next_obs and for obs."""
        return normal(self.agent.update_noise(updates))

    def report(self, stats: Stat, updates: int) -> None:
        sums = {
            "train/loss/policy": stats.policy_loss,
            "train/policy/entropy": stats.entropy,
            "train/policy/alpha": stats.alpha,
        }
        self.add_sums(sums, stats.updates)
        super().report(stats, updates)


def lay_out(policy: SquashedPolicy, critics: Critics, target: Critics, log_alpha: nn.Parameter) -> FlatLayout:
    """Lay out the actor, its critics, the temperature if it is learnt, and the critics' targets."""
    build = LayoutBuilder()
    add_actor(build, policy)
    begin = build.size
    add_critics(build, critics)
    end = build.size
    segments = [(0, begin, 0), (begin, end, FOLLOWED)]
    log_alpha_at = -1
    if log_alpha.requires_grad:
        log_alpha_at = end
        segments.append(build.add_vector(log_alpha))
    size, learnt = build.size, len(build.tensors)
    add_critics(build, target)
    return build.layout(segments, size, learnt, log_alpha=log_alpha_at, follows=size - begin)
