"""A value for every state and action there is: the policy of worlds whose observations can be counted."""

import math

import gymnasium as gym
import torch
from torch import Tensor, nn

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Act, Explanation, Tree
from stride.agents.networks.heads import IMPOSSIBLE, action_mask
from stride.agents.networks.q_network import any_of, best
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import MASK
from stride.utils.user_error import UserError

LARGEST = 100_000_000  # entries: 400 MB


class QTable(Policy):
    """Q(s, a) by counting, ties taken by the first action; random with probability `epsilon`."""

    draws = 2
    strides: Tensor

    def __init__(self, observation_space: gym.Space, action_space: gym.Space, initial_q: float) -> None:
        super().__init__()
        if not isinstance(action_space, gym.spaces.Discrete):
            raise UserError(f"a table needs one discrete action, not {action_space}; ppo and sac take others")
        leaves = (
            dict(observation_space.items())
            if isinstance(observation_space, gym.spaces.Dict)
            else {"": observation_space}
        )
        self.masked = leaves.pop(MASK, None) is not None
        self.names, self.vectors = list(leaves), [isinstance(x, gym.spaces.MultiDiscrete) for x in leaves.values()]
        sizes = [size for name, leaf in leaves.items() for size in _sizes(name, leaf)]
        states, self.actions = math.prod(sizes), int(action_space.n)
        if states * self.actions > LARGEST:
            raise UserError(f"a table of {states:,} states x {self.actions} actions is too large; dqn needs none")
        self.table = nn.Parameter(torch.full((states, self.actions), float(initial_q)), requires_grad=False)
        strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
        self.register_buffer("strides", torch.tensor(strides), persistent=False)
        self.epsilon = 0.0

    def initial(self, num_envs: int) -> Tree:
        return ()

    def state(self, obs: Obs) -> Tensor:
        """The number of what is observed, int64 [...]."""
        parts = [obs[name] for name in self.names] if isinstance(obs, dict) else [obs]
        columns = [x if vector else x[..., None] for x, vector in zip(parts, self.vectors, strict=True)]
        return (torch.cat(columns, -1) * self.strides).sum(-1)

    def values(self, obs: Obs) -> Tensor:
        """Q [..., A], what the mask rules out far below."""
        q = self.table[self.state(obs)]
        return q.masked_fill(~action_mask(obs), IMPOSSIBLE) if self.masked else q

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        choice = self.values(obs).argmax(-1)
        if greedy or self.epsilon <= 0:
            return Act(choice)
        mask = action_mask(obs) if self.masked else None
        return Act(torch.where(noise[:, 0] < self.epsilon, any_of(mask, self.actions, noise[:, 1]), choice))

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        q = self.values(obs)
        p = nn.functional.one_hot(best(q, None), self.actions).float()
        return Explanation(self.state(obs)[:, None], {"probability": p, "q": q}, q.new_zeros(len(q)), q.amax(-1))


def _sizes(name: str, space: gym.Space) -> list[int]:
    if isinstance(space, gym.spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, gym.spaces.MultiDiscrete):
        return [int(n) for n in space.nvec]
    raise UserError(f"a table needs observations that can be counted, not {name or 'the observation'}: {space}")
