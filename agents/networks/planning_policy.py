"""Acting by a search: sequences of actions are imagined, new ones drawn like the best, the first action is taken.

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

UNIFORM = 0.1  # fraction of every choice that stays uniform, however good single options are
LEAST_STD = 0.05  # added to the deviation of the best numbers, for the same reason


class ActionPlan(NamedTuple):
    """The planned actions of N worlds at the next H instants; A numbers, or choices with all options side by side."""

    centre: Tensor
    """[H, N, A] chances, or means"""
    spread: Tensor
    """[H, N, A] deviations of numbers"""
    expected: Tensor
    """[N] return of the best sequences"""


class PlanningPolicy(ModelPolicy):
    """A world model, nothing else is learnt; a fraction `epsilon` of the actions is random while it learns."""

    def __init__(self, config: PlaNetConfig, envs: VecEnv) -> None:
        super().__init__(config, envs)
        self.plan = config
        self.epsilon = 0.0
        imagined = config.rounds * config.horizon * config.candidates
        self.searched = imagined * (self.sizes.stoch + self.actions.draws)
        # uniforms that decide whether the action is random, which one, the state, and the search
        self.split = (1, self.actions.draws, self.sizes.stoch, self.searched)
        self.draws = sum(self.split)
        reward_layer = self.model.reward[-1]
        assert isinstance(reward_layer, torch.nn.Linear)
        initialize(self, torch.Generator().manual_seed(config.seed), silent=(reward_layer,))

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        explore_noise, action_noise, of_state, of_search = noise.split(self.split, -1)
        model_state = self.recognise(obs, carry, is_first, None if greedy else of_state)
        chosen_action = self.actions.any(action_noise)
        if greedy or not self.at_random:
            best_action = self.likeliest(self.search(model_state, of_search).centre[0])
            explores = (explore_noise if best_action.dim() > 1 else explore_noise[:, 0]) < self.epsilon
            chosen_action = best_action if greedy else torch.where(explores, chosen_action, best_action)
        return Act(chosen_action, carry=Carry(*model_state, self.actions(chosen_action)))

    def likeliest(self, centre: Tensor) -> Tensor:
        """The likeliest action [N, ..] of one instant."""
        if not self.actions.options:
            return centre
        option_index = torch.stack([chances.argmax(-1) for chances in centre.split(self.actions.options, -1)], -1)
        return option_index if self.actions.several else option_index[:, 0]

    def search(self, start: State, noise: Tensor) -> ActionPlan:
        """Plan by the cross-entropy method, from uniforms [N, searched]."""
        plan, actions = self.plan, self.actions
        n, h, k = len(noise), plan.horizon, plan.candidates
        noise = noise.view(n, plan.rounds, h, k, -1).movedim(0, 2)  # rounds, steps, worlds, candidates
        centre = noise.new_zeros(h, n, actions.size)
        if actions.options:
            even = torch.cat([centre.new_full((count,), 1 / count) for count in actions.options])
            centre = centre + even
        spread = torch.ones_like(centre)
        expected = centre.new_zeros(n)
        for u in noise:
            of_action, of_state = u.split((actions.draws, self.sizes.stoch), -1)
            candidates = self._candidates(centre, spread, of_action)  # [H, N, K, A]
            best_returns, elite_index = self._returns(start, candidates, of_state).topk(plan.elites, 1)
            expected = best_returns.mean(1)
            elites = candidates.gather(2, elite_index[None, :, :, None].expand(h, n, plan.elites, actions.size))
            centre = elites.mean(2)
            spread = elites.std(2, unbiased=False) + LEAST_STD
            if actions.options:
                centre = torch.lerp(centre, even, UNIFORM)
        return ActionPlan(centre, spread, expected)

    def _candidates(self, centre: Tensor, spread: Tensor, u: Tensor) -> Tensor:
        """Encoded actions [H, N, K, A] from uniforms [H, N, K, draws]."""
        if not self.actions.options:
            return (centre[:, :, None] + spread[:, :, None] * normal(u)).clamp(-1, 1)
        shape = (*u.shape[:-1], -1)
        log_probs = [chances.log()[:, :, None].expand(*shape) for chances in centre.split(self.actions.options, -1)]
        choices = [sample_categorical(p, u[..., i, None]) for i, p in enumerate(log_probs)]
        return self.actions(torch.stack(choices, -1) if self.actions.several else choices[0])

    def _returns(self, start: State, actions: Tensor, u: Tensor) -> Tensor:
        """Expected returns [N, K] of sequences [H, N, K, A], weighted by the chance that the episode still goes on."""
        model, (_, n, k, _) = self.model, actions.shape
        model_state = State(*(x.repeat_interleave(k, 0) for x in start))
        total_return, going_on = u.new_zeros(n * k), u.new_ones(n * k)
        for action, guess in zip(actions.flatten(1, 2), u.flatten(1, 2), strict=True):
            model_state = model.rssm.imagine(model_state, action, guess)
            reward, goes_on = model.expect(model_state.features)
            total_return = total_return + going_on * reward
            going_on = going_on * self.plan.gamma * goes_on
        return total_return.view(n, k)

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        """The plan of a search at the likeliest state, its draws the same each time; the value is its expected return.

        Acting uses other draws: where several actions are equally good it may take another one.
        """
        model_state = self.recognise(obs, carry, is_first, None)
        noise = uniforms(Key(self.plan.seed, EXPLORE), (1, self.searched), is_first.device)
        plan = self.search(model_state, noise.expand(len(is_first), -1))
        centre, spread = plan.centre[0], plan.spread[0]
        if self.actions.options:
            distribution = {"probability": centre}
            entropy = torch.special.entr(centre).sum(-1)
        else:
            distribution = {"mean": centre, "std": spread}
            entropy = (spread * (2 * torch.pi * torch.e) ** 0.5).log().sum(-1)
        return Explanation(self.encoded(obs), distribution, entropy, plan.expected, model_state)
