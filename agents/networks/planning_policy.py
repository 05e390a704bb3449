"""PlaNet's policy (Hafner et al. 2019): at every step it plans by imagining action sequences with the world model.

The cross-entropy method: draw `candidates` sequences, keep the best `elites`, draw again like these, for `rounds`
rounds; then take the first action of the last mean. Letters in shapes: N environments, H = horizon, K = candidates,
A numbers of an encoded action.
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

UNIFORM_SHARE = 0.1  # of every choice's distribution, so that each option keeps being tried
EXTRA_STD = 0.05  # added to the deviation of the elites' numbers, for the same reason


class ActionPlan(NamedTuple):
    """The distribution of actions at the next H steps; A counts numbers, or the options of all choices side by side."""

    centre: Tensor
    """[H, N, A] probabilities of options, or means of numbers"""
    spread: Tensor
    """[H, N, A] standard deviations of numbers"""
    expected: Tensor
    """[N] mean expected return of the elites"""


class PlanningPolicy(ModelPolicy):
    """Plans with the world model; nothing else is learnt. In training a fraction `epsilon` of the actions is random."""

    def __init__(self, config: PlaNetConfig, envs: VecEnv) -> None:
        super().__init__(config, envs)
        self.plan = config
        self.epsilon = 0.0
        imagined = config.rounds * config.horizon * config.candidates
        self.searched = imagined * (self.sizes.stoch + self.actions.draws)
        # uniforms for: whether the action is random, the random action, the model's state, the search
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
        """Return the likeliest action [N, ..] of one step of a plan, `centre` [N, A]."""
        if not self.actions.options:
            return centre
        option_index = torch.stack([chances.argmax(-1) for chances in centre.split(self.actions.options, -1)], -1)
        return option_index if self.actions.several else option_index[:, 0]

    def search(self, start: State, noise: Tensor) -> ActionPlan:
        """Plan by the cross-entropy method from a state [N, ..]; `noise`: uniforms [N, searched]."""
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
            spread = elites.std(2, unbiased=False) + EXTRA_STD
            if actions.options:
                centre = torch.lerp(centre, even, UNIFORM_SHARE)
        return ActionPlan(centre, spread, expected)

    def _candidates(self, centre: Tensor, spread: Tensor, u: Tensor) -> Tensor:
        """Draw encoded actions [H, N, K, A] from uniforms u [H, N, K, draws]."""
        if not self.actions.options:
            return (centre[:, :, None] + spread[:, :, None] * normal(u)).clamp(-1, 1)
        shape = (*u.shape[:-1], -1)
        log_probs = [chances.log()[:, :, None].expand(*shape) for chances in centre.split(self.actions.options, -1)]
        choices = [sample_categorical(p, u[..., i, None]) for i, p in enumerate(log_probs)]
        return self.actions(torch.stack(choices, -1) if self.actions.several else choices[0])

    def _returns(self, start: State, actions: Tensor, u: Tensor) -> Tensor:
        """Return expected returns [N, K] of action sequences [H, N, K, A]: sum over t of (prod_k<t gamma c_k) r_t.

        c_k is the predicted probability that the episode goes on after step k. `u`: uniforms [H, N, K, S] for states.
        """
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
        """Explain by a plan at the likeliest state, always with the same draws; the value is its expected return.

        Acting uses other draws, so it may take another one of several equally good actions.
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
