"""Acting by a world model's state: the state of its episode is the carry, recognised anew at each step."""

import math
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import Tensor, nn

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Act, Dream, Explanation, Tree
from stride.agents.networks.encoders import MultiOneHot, OneHot, choice_sizes
from stride.agents.networks.heads import BoundedGaussian, check_choices, head_for
from stride.agents.networks.normed import dense, initialize
from stride.agents.networks.world_model import SIZES, ModelSizes, State, WorldModel
from stride.config.schema import WorldModelConfig
from stride.envs_fast.vec_env import Obs, VecEnv
from stride.utils.user_error import UserError


class Actions(nn.Module):
    """The actions of a space, encoded for a model; and random actions."""

    counts: Tensor

    def __init__(self, space: gym.Space) -> None:
        super().__init__()
        self.several = isinstance(space, MultiDiscrete)
        self.table: nn.Module | None = None
        bounded = isinstance(space, Box) and np.isfinite([space.low, space.high]).all()
        if not bounded and not isinstance(space, Discrete | MultiDiscrete):
            raise UserError(f"a world model needs discrete actions or actions with bounds, not {space}; use ppo")
        self.options = [] if bounded else choice_sizes(space)
        """of each choice; none where actions are numbers"""
        for option_count in self.options:
            check_choices(option_count, option_count)  # each as a one-hot row
        self.register_buffer("counts", torch.tensor(self.options), persistent=False)
        if self.options:
            self.table = MultiOneHot(self.options) if self.several else OneHot(self.options[0])
        self.draws = len(self.options) or math.prod(space.shape or ())
        """uniforms that one of them takes"""
        self.size = sum(self.options) or self.draws

    def forward(self, action: Tensor) -> Tensor:
        """[...] of one choice, [..., A] else -> [..., size]: one-hot, or numbers cut at +-1, as worlds do."""
        encoded: Tensor = self.table(action) if self.table else action.float().clamp(-1, 1)
        return encoded

    def any(self, u: Tensor) -> Tensor:
        """Random actions, each with the same chance, from uniforms [N, draws]."""
        if not self.table:
            return 2 * u - 1
        option_index = (u * self.counts).long().minimum(self.counts - 1)
        return option_index if self.several else option_index[:, 0]


class Carry(NamedTuple):
    """The state that is handed from step to step."""

    deter: Tensor
    stoch: Tensor
    action: Tensor
    """[N, A] encoded: the one that leads to the next observation"""


def sizes_of(config: WorldModelConfig) -> ModelSizes:
    """The sizes of the config's `size`, with the single ones it gives; UserError where blocks would be unequal."""
    options = {name: value for name, value in vars(config).items() if name in ModelSizes._fields and value is not None}
    sizes = SIZES[config.size]._replace(**options)
    if sizes.deter % sizes.blocks:
        lower_size = sizes.deter // sizes.blocks * sizes.blocks
        choices = " or ".join(str(size) for size in (lower_size, lower_size + sizes.blocks) if size)
        raise UserError(f"deter {sizes.deter} is not {sizes.blocks} equal blocks (size: {config.size}); {choices} is")
    return sizes


class ModelPolicy(Policy):
    """A world model and the state of its episode; subclasses choose actions from the state."""

    def __init__(self, config: WorldModelConfig, envs: VecEnv) -> None:
        super().__init__()
        self.actions = Actions(envs.action_space)
        self.sizes = sizes_of(config)
        self.at_random = False
        self.model = WorldModel(envs.observation_space, self.actions.size, self.sizes, config.unimix)

    def initial(self, num_envs: int) -> Carry:
        empty_state = self.model.rssm.initial(num_envs)
        return Carry(*empty_state, empty_state.deter.new_zeros(num_envs, self.actions.size))

    def recognise(self, obs: Obs, carry: Tree, is_first: Tensor, u: Tensor | None) -> State:
        """The state [N, ..] at an observation; without uniforms the likeliest one."""
        senses = self.model.senses
        previous = State(carry.deter, carry.stoch)
        return self.model.rssm.recognise(previous, carry.action, is_first, senses(senses.look(obs)), u)

    def follow(self, obs: Obs, carry: Tree, is_first: Tensor, action: Tensor) -> Carry:
        return Carry(*self.recognise(obs, carry, is_first, None), self.actions(action))

    def encoded(self, obs: Obs) -> Tensor:
        """The observation as the model's first layer gets it; if it is nothing but images, their features."""
        senses = self.model.senses
        sensed_obs = senses.look(obs)
        return sensed_obs.vector if senses.flat else senses(sensed_obs)

    @torch.no_grad()
    def dream(self, states: Tree, actions: Tensor) -> Dream:
        model = self.model
        model_state, imagined = State(*states), []
        for encoded_action in self.actions(actions).unbind(1):
            model_state = model.rssm.imagine(model_state, encoded_action, None)
            imagined.append(model_state.features)
        features = torch.stack(imagined, 1)
        obs = model.senses.observation(model.senses.decode(features))
        return Dream(obs, *model.expect(features), self.value(features))

    def value(self, features: Tensor) -> Tensor | None:
        """V of states, where there is a critic."""
        return None


class DreamerPolicy(ModelPolicy):
    """World model, actor and critic. The critic is here to be looked at: acting does not need it."""

    def __init__(self, config: WorldModelConfig, envs: VecEnv) -> None:
        super().__init__(config, envs)
        sizes = self.sizes
        space = envs.action_space
        torso_sizes = (self.model.features, sizes.width, sizes.behaviour)
        self.torso = dense(*torso_sizes)
        numbers = isinstance(space, Box)
        self.head = BoundedGaussian(sizes.width, self.actions.size) if numbers else head_for(space, sizes.width)
        value = nn.Linear(sizes.width, sizes.bins)
        self.critic = nn.Sequential(dense(*torso_sizes), value)
        self.draws = sizes.stoch + self.head.draws
        reward = self.model.reward[-1]
        assert isinstance(reward, nn.Linear)
        initialize(self, torch.Generator().manual_seed(config.seed), silent=(reward, value, self.head.linear))

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        of_state, of_action = noise.split((self.sizes.stoch, self.head.draws), -1)
        model_state = self.recognise(obs, carry, is_first, None if greedy else of_state)
        if self.at_random and not greedy:
            chosen_action = self.actions.any(of_action)
        else:
            p = self.choices(model_state.features)
            chosen_action = self.head.mode(p) if greedy else self.head.sample(p, of_action)
        return Act(chosen_action, carry=Carry(*model_state, self.actions(chosen_action)))

    def choices(self, features: Tensor) -> Tree:
        """The head's parameters at states of these features."""
        return self.head(self.torso(features))

    def value(self, features: Tensor) -> Tensor:
        """V of states, by the critic."""
        return self.model.two_hot.mean(self.critic(features))

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        """At the likeliest state, as it acts when it is greedy."""
        model_state = self.recognise(obs, carry, is_first, None)
        p, state_value = self.choices(model_state.features), self.value(model_state.features)
        return Explanation(self.encoded(obs), self.head.distribution(p), self.head.entropy(p), state_value, model_state)
