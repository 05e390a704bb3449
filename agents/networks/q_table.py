"""A table of Q(s, a) and the epsilon-greedy policy on it, for environments with discrete observations."""

import math

import gymnasium as gym
import torch
from gymnasium.spaces import Dict, Discrete, MultiDiscrete
from torch import Tensor, nn

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Act, Explanation, Tree, by_name
from stride.agents.networks.encoders import choice_sizes
from stride.agents.networks.heads import action_mask
from stride.agents.networks.q_network import any_of, best, masked
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import MASK
from stride.utils.user_error import UserError

MAX_ENTRIES = 100_000_000  # values in a table, 400 MB


class QTable(Policy):
    """The epsilon-greedy policy on a table Q(s, a) [states, actions]; of equal values the first action is taken.

    A state's number is its observation read as digits: of sizes [3, 4], the observation (2, 1) is 2 * 4 + 1 = 9.
    """

    draws = 2
    strides: Tensor

    def __init__(self, observation_space: gym.Space, action_space: gym.Space, initial_q: float) -> None:
        super().__init__()
        if not isinstance(action_space, Discrete):
            raise UserError(f"a table needs one discrete action, not {action_space}; use ppo or sac")
        named = dict(observation_space.items()) if isinstance(observation_space, Dict) else {"": observation_space}
        named.pop(MASK, None)
        self.vectors = {name: isinstance(space, MultiDiscrete) for name, space in named.items()}
        state_sizes: list[int] = []
        for name, space in named.items():
            if not isinstance(space, Discrete | MultiDiscrete):
                name = name or "the observation"
                raise UserError(f"a table needs discrete observations, not {name}: {space}")
            state_sizes += choice_sizes(space)
        state_count = math.prod(state_sizes)
        self.actions = int(action_space.n)
        if state_count * self.actions > MAX_ENTRIES:
            raise UserError(f"a table of {state_count:,} states x {self.actions} actions is too large; use dqn instead")
        self.table = nn.Parameter(torch.full((state_count, self.actions), float(initial_q)), requires_grad=False)
        strides = [math.prod(state_sizes[k + 1 :]) for k in range(len(state_sizes))]
        self.register_buffer("strides", torch.tensor(strides), persistent=False)
        self.epsilon = 0.0

    def initial(self, num_envs: int) -> Tree:
        return ()

    def state(self, obs: Obs) -> Tensor:
        """Return the numbers of the observed states, int64 [...]."""
        tensors = by_name(obs)
        columns = [tensors[name] if is_vector else tensors[name][..., None] for name, is_vector in self.vectors.items()]
        return (torch.cat(columns, -1) * self.strides).sum(-1)

    def values(self, obs: Obs) -> Tensor:
        """Return Q of all actions [..., A]; a very low value for actions that the mask excludes."""
        return masked(self.table[self.state(obs)], action_mask(obs))

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        choice = self.values(obs).argmax(-1)
        if greedy or self.epsilon <= 0:
            return Act(choice)
        return Act(torch.where(noise[:, 0] < self.epsilon, any_of(action_mask(obs), self.actions, noise[:, 1]), choice))

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        q = self.values(obs)
        p = nn.functional.one_hot(best(q, None), self.actions).float()
        return Explanation(self.state(obs)[:, None], {"probability": p, "q": q}, q.new_zeros(len(q)), q.amax(-1))
