"""Continuous actions in (-1, 1): a Gaussian squashed by tanh, and critics of state and action side by side.

Noise may be correlated in time: each number of it keeps a fraction of the one before and stays standard normal, so that
the chance of a single action is what the head says, while pushes last.
"""

import math
from itertools import pairwise

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn
from torch.nn import functional as F

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Act, Explanation, Tree
from stride.agents.networks.cnn import CNN
from stride.agents.networks.encoders import FlatEncoder
from stride.agents.networks.heads import HALF_LOG_TAU, Normal, normal_entropy
from stride.agents.networks.layers import Dense
from stride.agents.networks.q_network import hidden_layers, initialize_evenly
from stride.envs_fast.vec_env import Obs
from stride.utils.counter_rng import normal
from stride.utils.user_error import UserError

LOG_STD_BOUNDS = (-20.0, 2.0)


def squash_correction(x: Tensor) -> Tensor:
    """log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x)), finite where 1 - tanh^2 rounds to 0."""
    return 2 * (math.log(2) - x - F.softplus(-2 * x))


def squashed_log_prob(p: Normal, z: Tensor) -> Tensor:
    """log pi(tanh(mean + std z)), [...] from [..., A]."""
    gaussian = -0.5 * z.square() - p.log_std - HALF_LOG_TAU
    return (gaussian - squash_correction(p.mean + p.log_std.exp() * z)).sum(-1)


class SquashedPolicy(Policy):
    """tanh of a Gaussian whose deviation depends on the state; `at_random` plays every action with the same chance."""

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        hidden_dims: tuple[int, ...],
        activation: str,
        normalize_obs: bool | str,
        cnn: CNN | None,
        correlation: float,
        seed: int,
    ) -> None:
        super().__init__()
        if not isinstance(action_space, Box) or not np.isfinite([action_space.low, action_space.high]).all():
            raise UserError(f"sac needs actions with bounds, not {action_space}; use dqn (discrete) or ppo")
        # one uniform for each number of an action; the head gives a mean and a log std for each
        self.draws = math.prod(action_space.shape)
        self.correlation = correlation
        self.at_random = False
        self.encoder = FlatEncoder(observation_space, normalize_obs, cnn)
        self.torso = hidden_layers(self.encoder.size, hidden_dims, activation)
        self.head = nn.Linear(hidden_dims[-1] if hidden_dims else self.encoder.size, 2 * self.draws)
        initialize_evenly(self, torch.Generator().manual_seed(seed))

    def initial(self, num_envs: int) -> Tree:
        """The noise of the step before, where noise is correlated."""
        return self.head.weight.new_zeros(num_envs, self.draws) if self.correlation else ()

    def forward(self, obs: Obs) -> Normal:
        mean, log_std = self.head(self.torso(self.encoder(obs))).chunk(2, -1)
        return Normal(mean, log_std.clamp(*LOG_STD_BOUNDS))

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        if greedy:
            return Act(self(obs).mean.tanh(), carry=carry)
        z = normal(noise)
        if self.correlation:
            # rho z' + sqrt(1 - rho^2) z has variance 1 again
            correlated = self.correlation * carry + math.sqrt(1 - self.correlation**2) * z
            carry = z = torch.where(is_first[:, None], z, correlated)
        if self.at_random:
            return Act((2 * torch.special.ndtr(z) - 1).clamp(-1, 1), carry=carry)
        p = self(obs)
        return Act((p.mean + p.log_std.exp() * z).tanh(), carry=carry)

    def draw(self, obs: Obs, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """An action [B, A] and its log-probability [B], differentiable (the reparametrisation trick)."""
        p, z = self(obs), normal(uniform)
        return (p.mean + p.log_std.exp() * z).tanh(), squashed_log_prob(p, z)

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        """Mean and deviation of the action itself, the latter to first order; entropy of the unsquashed Gaussian."""
        p = self(obs)
        action_mean = p.mean.tanh()
        action_std = p.log_std.exp() * (1 - action_mean.square())
        return Explanation(self.encoder(obs), {"mean": action_mean, "std": action_std}, normal_entropy(p), None)


class Critic(nn.Module):
    """Layers of the given widths, then one number."""

    def __init__(self, widths: tuple[int, ...], activation: str) -> None:
        super().__init__()
        hidden_modules = (Dense(size_in, size_out, activation) for size_in, size_out in pairwise(widths))
        self.layers = nn.ModuleList([*hidden_modules, Dense(widths[-1], 1)])

    def forward(self, x: Tensor, frozen: bool) -> Tensor:
        for layer in self.layers:
            x = layer(x, frozen)
        return x.squeeze(-1)


class Critics(nn.Module):
    """Q(s, a) by several networks side by side, [n, B]."""

    def __init__(
        self,
        n: int,
        observation_space: gym.Space,
        actions: int,
        hidden_dims: tuple[int, ...],
        activation: str,
        normalize_obs: bool | str,
        cnn: CNN | None,
        seed: int,
    ) -> None:
        super().__init__()
        self.encoder = FlatEncoder(observation_space, normalize_obs, cnn)
        layer_widths = (self.encoder.size + actions, *hidden_dims)
        self.networks = nn.ModuleList(Critic(layer_widths, activation) for _ in range(n))
        initialize_evenly(self, torch.Generator().manual_seed(seed))

    def forward(self, obs: Obs, action: Tensor, frozen: bool = False) -> Tensor:
        """`frozen`: gradients flow to the action alone, not to the weights."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            features = self.encoder(obs)
        x = torch.cat((features, action), -1)
        return torch.stack([network(x, frozen) for network in self.networks])
