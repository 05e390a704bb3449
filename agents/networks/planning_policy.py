"""Acting by a search: sequences of actions are imagined, the best kept, others drawn like them, the first action done.

The cross-entropy method over a world model's prior, anew at every step, as in PlaNet (Hafner et al. 2019).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from stride.agents.experience.nouns import Act, Explanation, Tree
from stride.agents.networks.dreamer_policy import Carry, ModelPolicy
from stride.agents.networks.heads import sample_categorical
from stride.agents.networks.normed import initialize
from stride.agents.networks.world_model import State
from stride.config.schema import PlaNetConfig
from stride.envs_fast.vec_env import Obs, VecEnv
from stride.utils.counter_rng import EXPLORE, Key, normal, uniforms

UNIFORM = 0.1  # share of every choice that stays uniform however well the others did
LEAST_STD = 0.05  # added to the deviation of the best numbers, for the same reason


class Plan(NamedTuple):
    """What N worlds mean to do at the next H instants; A numbers, or choices with all their options side by side."""

    centre: Tensor
    """[H, N, A] chances, or means"""
    spread: Tensor
    """[H, N, A] deviations of numbers"""
    promised: Tensor
    """[N] what the best sequences bring"""


class PlanningPolicy(ModelPolicy):
    """A world model, nothing else is learnt; `epsilon` of the actions are random while it learns."""

    def __init__(self, config: PlaNetConfig, envs: VecEnv) -> None:
        super().__init__(config, envs)
        self.plan, self.epsilon = config, 0.0
        imagined = config.rounds * config.horizon * config.candidates
        self.searched = imagined * (self.sizes.stoch + self.actions.draws)
        # whether any action, which, the state, and the search
        self.split = (1, self.actions.draws, self.sizes.stoch, self.searched)
        self.draws = sum(self.split)
        paid = self.model.reward[-1]
        assert isinstance(paid, torch.nn.Linear)
        initialize(self, torch.Generator().manual_seed(config.seed), silent=(paid,))

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        whether, which, of_state, of_search = noise.split(self.split, -1)
        state = self.recognise(obs, carry, is_first, None if greedy else of_state)
        action = self.actions.any(which)
        if greedy or not self.at_random:
            best = self.chosen(self.search(state, of_search).centre[0])
            wild = (whether if best.dim() > 1 else whether[:, 0]) < self.epsilon
            action = best if greedy else torch.where(wild, action, best)
        return Act(action, carry=Carry(*state, self.actions(action)))

    def chosen(self, centre: Tensor) -> Tensor:
        """The likeliest action [N, ..] of one instant."""
        if not self.actions.options:
            return centre
        choice = torch.stack([part.argmax(-1) for part in centre.split(self.actions.options, -1)], -1)
        return choice if self.actions.several else choice[:, 0]

    def search(self, start: State, noise: Tensor) -> Plan:
        """From uniforms [N, searched]."""
        plan, actions, n = self.plan, self.actions, len(noise)
        h, k = plan.horizon, plan.candidates
        noise = noise.view(n, plan.rounds, h, k, -1).movedim(0, 2)  # rounds, steps, worlds, candidates
        centre = noise.new_zeros(h, n, actions.size)
        if actions.options:
            centre = centre + torch.cat([centre.new_full((count,), 1 / count) for count in actions.options])
        spread, promised = torch.ones_like(centre), centre.new_zeros(n)
        for u in noise:
            of_action, of_state = u.split((actions.draws, self.sizes.stoch), -1)
            tried = self._drawn(centre, spread, of_action)  # [H, N, K, A]
            worth = self._worth(start, tried, of_state)
            best, elites = worth.topk(plan.elites, 1)
            promised = best.mean(1)
            kept = tried.gather(2, elites[None, :, :, None].expand(h, n, plan.elites, actions.size))
            centre, spread = kept.mean(2), kept.std(2, unbiased=False) + LEAST_STD
            if actions.options:
                even = torch.cat([centre.new_full((count,), 1 / count) for count in actions.options])
                centre = torch.lerp(centre, even, UNIFORM)
        return Plan(centre, spread, promised)

    def _drawn(self, centre: Tensor, spread: Tensor, u: Tensor) -> Tensor:
        """Encoded actions [H, N, K, A] from uniforms [H, N, K, draws]."""
        if not self.actions.options:
            return (centre[:, :, None] + spread[:, :, None] * normal(u)).clamp(-1, 1)
        shape = (*u.shape[:-1], -1)
        parts = [part.log()[:, :, None].expand(*shape) for part in centre.split(self.actions.options, -1)]
        drawn = [sample_categorical(part, u[..., i, None]) for i, part in enumerate(parts)]
        return self.actions(torch.stack(drawn, -1) if self.actions.several else drawn[0])

    def _worth(self, start: State, actions: Tensor, u: Tensor) -> Tensor:
        """What sequences [H, N, K, A] bring [N, K], as far as they are likely to go on."""
        model, (_, n, k, _) = self.model, actions.shape
        state = State(*(part.repeat_interleave(k, 0) for part in start))
        total, weight = u.new_zeros(n * k), u.new_ones(n * k)
        for action, guess in zip(actions.flatten(1, 2), u.flatten(1, 2), strict=True):
            state = model.rssm.imagine(state, action, guess)
            reward, goes_on = model.expect(state.features)
            total = total + weight * reward
            weight = weight * self.plan.gamma * goes_on
        return total.view(n, k)

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        """What a search finds at the likeliest state, its draws the same each time; the value is what it promises.

        Whoever acts draws others: where several actions are as good it may do another one.
        """
        state = self.recognise(obs, carry, is_first, None)
        noise = uniforms(Key(self.plan.seed, EXPLORE), (1, self.searched), is_first.device)
        plan = self.search(state, noise.expand(len(is_first), -1))
        centre, spread = plan.centre[0], plan.spread[0]
        if self.actions.options:
            told, entropy = {"probability": centre}, torch.special.entr(centre).sum(-1)
        else:
            told = {"mean": centre, "std": spread}
            entropy = (spread * (2 * torch.pi * torch.e) ** 0.5).log().sum(-1)
        return Explanation(self.seen(obs), told, entropy, plan.promised, state)
