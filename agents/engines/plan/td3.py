"""TD3 for fused engines (see recipe.py), and DDPG, which is TD3 with other settings."""

from torch import Tensor

from stride.agents.engines.plan.bounded import BoundedRecipe, add_actor, add_critics
from stride.agents.engines.plan.layout import DELAYED, FOLLOWED, FlatLayout, LayoutBuilder
from stride.agents.engines.plan.numbers import Live, Stat
from stride.agents.td3 import TD3


class TD3Recipe(BoundedRecipe):
    """Nets: the actor, its critics, then their targets in the same order."""

    agent: TD3

    def __init__(self, agent: TD3) -> None:
        layout = lay_out(agent)
        # counts an update of the actor in each update, though some are delayed
        super().__init__(agent, layout, passes=6 + 4 * agent.config.n_critics)
        self.switches |= {"moving": len(layout.nets) // 2, "actor_every": agent.config.actor_every}

    def before_play(self, live: Live) -> bool:
        live.action_noise = float(self.agent.policy.noise_std)
        return super().before_play(live)

    def before_learning(self, live: Live) -> None:
        super().before_learning(live)
        live.target_noise = self.agent.live.target_noise
        live.target_noise_clip = self.agent.live.target_noise_clip

    def noise(self, updates: int) -> Tensor | None:
        """Draw standard normals [updates, B, A], the noise on the target actor's actions."""
        return self.agent.update_noise(updates)

    def report(self, stats: Stat, updates: int) -> None:
        # how many of these updates moved the actor: those whose number divides by actor_every
        made, actor_every = self.agent.progress["updates"], self.agent.config.actor_every
        moves = made // actor_every - (made - updates) // actor_every
        self.add_sums({"train/loss/policy": stats.policy_loss}, moves)
        super().report(stats, updates)


def lay_out(agent: TD3) -> FlatLayout:
    """Lay out the actor and its critics, then their targets in the same order."""
    build = LayoutBuilder()
    add_actor(build, agent.policy)
    begin, delayed = build.size, len(build.tensors)
    add_critics(build, agent.critics)
    size, learnt = build.size, len(build.tensors)
    add_actor(build, agent.target_policy)
    add_critics(build, agent.target)
    segments = [(0, begin, DELAYED), (begin, size, FOLLOWED)]
    return build.layout(segments, size, learnt, follows=size, delayed=delayed)
