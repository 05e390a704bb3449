"""Acting by a world model's state: what a Dreamer knows of its episode is the carry, recognised anew at each step."""

from typing import NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Act, Dream, Explanation, Tree
from stride.agents.networks.actions import Actions
from stride.agents.networks.heads import BoundedGaussian, head_for
from stride.agents.networks.normed import dense, initialize
from stride.agents.networks.world_model import SIZES, Sizes, State, WorldModel
from stride.config.schema import WorldModelConfig
from stride.envs_fast.vec_env import Obs, VecEnv
from stride.utils.user_error import UserError


class Carry(NamedTuple):
    """What is handed from step to step."""

    deter: Tensor
    stoch: Tensor
    action: Tensor
    """[N, A] encoded: the one that leads to the next observation"""


def sizes_of(config: WorldModelConfig) -> Sizes:
    """Those of its `size`, with whatever the config says of single ones; UserError where blocks would be unequal."""
    given = {name: value for name, value in vars(config).items() if name in Sizes._fields and value is not None}
    sizes = SIZES[config.size]._replace(**given)
    if sizes.deter % sizes.blocks:
        near = sizes.deter // sizes.blocks * sizes.blocks
        ways = " or ".join(str(way) for way in (near, near + sizes.blocks) if way)
        raise UserError(f"deter {sizes.deter} is not {sizes.blocks} equal blocks (size: {config.size}); {ways} is")
    return sizes


class ModelPolicy(Policy):
    """A world model and the state it has come to; what follows from a state is for subclasses to say."""

    def __init__(self, config: WorldModelConfig, envs: VecEnv) -> None:
        super().__init__()
        self.actions, self.sizes, self.at_random = Actions(envs.action_space), sizes_of(config), False
        self.model = WorldModel(envs.observation_space, self.actions.size, self.sizes, config.unimix)

    def initial(self, num_envs: int) -> Carry:
        state = self.model.rssm.initial(num_envs)
        return Carry(*state, state.deter.new_zeros(num_envs, self.actions.size))

    def recognise(self, obs: Obs, carry: Tree, is_first: Tensor, u: Tensor | None) -> State:
        """The state [N, ..] at an observation; without uniforms the likeliest one."""
        senses = self.model.senses
        before, tokens = State(carry.deter, carry.stoch), senses(senses.look(obs))
        return self.model.rssm.recognise(before, carry.action, is_first, tokens, u)

    def follow(self, obs: Obs, carry: Tree, is_first: Tensor, action: Tensor) -> Carry:
        return Carry(*self.recognise(obs, carry, is_first, None), self.actions(action))

    def seen(self, obs: Obs) -> Tensor:
        """As the model's first layer gets it; of nothing but images what the convolutions make of them."""
        senses = self.model.senses
        seen = senses.look(obs)
        return seen.vector if senses.flat else senses(seen)

    @torch.no_grad()
    def dream(self, states: Tree, actions: Tensor) -> Dream:
        model, state, known = self.model, State(*states), []
        for action in self.actions(actions).unbind(1):
            state = model.rssm.imagine(state, action, None)
            known.append(state.features)
        features = torch.stack(known, 1)
        seen = model.senses.observation(model.senses.tell(features))
        return Dream(seen, *model.expect(features), self.value(features))

    def value(self, features: Tensor) -> Tensor | None:
        """By a critic, where there is one."""
        return None


class DreamerPolicy(ModelPolicy):
    """World model, actor and critic. The critic is here to be looked at: acting does not ask it."""

    def __init__(self, config: WorldModelConfig, envs: VecEnv) -> None:
        super().__init__(config, envs)
        sizes, features, width = self.sizes, self.model.features, self.sizes.width
        space = envs.action_space
        numbers = isinstance(space, gym.spaces.Box)
        self.torso = dense(features, width, sizes.behaviour)
        self.head = BoundedGaussian(width, self.actions.size) if numbers else head_for(space, width)
        value = nn.Linear(width, sizes.bins)
        self.critic = nn.Sequential(dense(features, width, sizes.behaviour), value)
        self.draws = sizes.stoch + self.head.draws
        paid = self.model.reward[-1]
        assert isinstance(paid, nn.Linear)
        initialize(self, torch.Generator().manual_seed(config.seed), silent=(paid, value, self.head.linear))

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        of_state, of_action = noise.split((self.sizes.stoch, self.head.draws), -1)
        state = self.recognise(obs, carry, is_first, None if greedy else of_state)
        if self.at_random and not greedy:
            action = self.actions.any(of_action)
        else:
            p = self.choices(state.features)
            action = self.head.mode(p) if greedy else self.head.sample(p, of_action)
        return Act(action, carry=Carry(*state, self.actions(action)))

    def choices(self, features: Tensor) -> Tree:
        """The head's parameters at states of these features."""
        return self.head(self.torso(features))

    def value(self, features: Tensor) -> Tensor:
        """By the critic."""
        return self.model.two_hot.mean(self.critic(features))

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        """At the likeliest state, as it acts when it is greedy."""
        state = self.recognise(obs, carry, is_first, None)
        p, value = self.choices(state.features), self.value(state.features)
        return Explanation(self.seen(obs), self.head.distribution(p), self.head.entropy(p), value, state)
