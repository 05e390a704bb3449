"""Policies that act from the state of a world model: ModelPolicy, the base of Dreamer's and PlaNet's, and Dreamer's.

The state of the present episode is the policy's carry; each observation updates it (`recognise`). N environments.
"""

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
    """Encodes the actions of a space for a world model, and draws random actions."""

    counts: Tensor

    def __init__(self, space: gym.Space) -> None:
        super().__init__()
        self.several = isinstance(space, MultiDiscrete)
        self.table: nn.Module | None = None
        bounded = isinstance(space, Box) and np.isfinite([space.low, space.high]).all()
        if not bounded and not isinstance(space, Discrete | MultiDiscrete):
            raise UserError(f"a world model needs discrete actions or actions with bounds, not {space}; use ppo")
        self.options = [] if bounded else choice_sizes(space)
        """number of options of each choice; [] if actions are numbers"""
        for option_count in self.options:
            check_choices(option_count, option_count)  # the table has a one-hot row for each
        self.register_buffer("counts", torch.tensor(self.options), persistent=False)
        if self.options:
            self.table = MultiOneHot(self.options) if self.several else OneHot(self.options[0])
        self.draws = len(self.options) or math.prod(space.shape or ())
        """uniforms that one random action needs"""
        self.size = sum(self.options) or self.draws

    def forward(self, action: Tensor) -> Tensor:
        """Encode actions, [...] of one choice or [..., A], as [..., size]: one-hot, or numbers clipped to +-1."""
        encoded: Tensor = self.table(action) if self.table else action.float().clamp(-1, 1)
        return encoded

    def any(self, u: Tensor) -> Tensor:
        """Draw random actions, all equally likely, from uniforms u [N, draws]."""
        if not self.table:
            return 2 * u - 1
        option_index = (u * self.counts).long().minimum(self.counts - 1)
        return option_index if self.several else option_index[:, 0]


class Carry(NamedTuple):
    """What the policy remembers from step to step: the model's state, and the last action."""

    deter: Tensor
    stoch: Tensor
    action: Tensor
    """[N, A] encoded: the action that leads to the next observation"""


def sizes_of(config: WorldModelConfig) -> ModelSizes:
    """Return the sizes of `size`, where the config's other keys replace some; UserError for unequal blocks."""
    options = {name: value for name, value in vars(config).items() if name in ModelSizes._fields and value is not None}
    sizes = SIZES[config.size]._replace(**options)
    if sizes.deter % sizes.blocks:
        lower_size = sizes.deter // sizes.blocks * sizes.blocks
        choices = " or ".join(str(size) for size in (lower_size, lower_size + sizes.blocks) if size)
        raise UserError(f"deter {sizes.deter} is not {sizes.blocks} equal blocks (size: {config.size}); {choices} is")
    return sizes


class ModelPolicy(Policy):
    """A policy with a world model; subclasses choose actions from the model's state."""

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
        """Return the posterior state [N, ..] at an observation, drawn by uniforms u [N, S]; None: the likeliest."""
        senses = self.model.senses
        previous = State(carry.deter, carry.stoch)
        return self.model.rssm.recognise(previous, carry.action, is_first, senses(senses.look(obs)), u)

    def follow(self, obs: Obs, carry: Tree, is_first: Tensor, action: Tensor) -> Carry:
        return Carry(*self.recognise(obs, carry, is_first, None), self.actions(action))

    def encoded(self, obs: Obs) -> Tensor:
        """Return the observation as the model's first layer gets it; if it has only images, their features."""
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
        """Return V of states, [...] from features [..., F]; None without a critic."""
        return None


class DreamerPolicy(ModelPolicy):
    """Dreamer's policy: world model, actor and critic. Acting does not need the critic; `explain` shows its values."""

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
        """Return the actor's distribution (the head's parameters) at states with features [..., F]."""
        return self.head(self.torso(features))

    def value(self, features: Tensor) -> Tensor:
        """Return V of states, [...] from features [..., F], by the critic."""
        return self.model.two_hot.mean(self.critic(features))

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        """Explain by the likeliest state, as greedy acting does."""
        model_state = self.recognise(obs, carry, is_first, None)
        p, state_value = self.choices(model_state.features), self.value(model_state.features)
        return Explanation(self.encoded(obs), self.head.distribution(p), self.head.entropy(p), state_value, model_state)
