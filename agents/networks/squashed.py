"""Continuous actions in (-1, 1): a Gaussian squashed by tanh, or one action with noise on it; and critics of state and
action side by side.

Noise may be correlated in time: each number of it keeps a fraction of the one before and stays standard normal, so that
the chance of a single action is what the head says, while pushes last. Or it is held: the same for a number of steps
that is drawn with it, n with a chance of 1 / n^2.
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
from stride.agents.networks.encoders import FlatEncoder, parts_of
from stride.agents.networks.heads import HALF_LOG_TAU, Normal, normal_entropy
from stride.agents.networks.layers import Dense
from stride.agents.networks.residual import frozen_weights, initialize, torso
from stride.config.network import NetworkShape
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


class BoundedPolicy(Policy):
    """Actions in (-1, 1) from a torso and a head; `at_random` plays every action with the same chance.

    Subclasses say what the head's outputs mean: `mode` is the best action, `disturbed` the one that noise makes of it.
    """

    outputs: int
    """numbers of the head for each number of an action"""
    hold_chances: Tensor

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        shape: NetworkShape,
        normalize_obs: bool | str,
        cnn: CNN | None,
        seed: int,
        correlation: float = 0.0,
        hold: int = 1,
    ) -> None:
        super().__init__()
        if not isinstance(action_space, Box) or not np.isfinite([action_space.low, action_space.high]).all():
            raise UserError(f"sac, tqc and td3 need actions with bounds, not {action_space}; use dqn (discrete) or ppo")
        self.actions = math.prod(action_space.shape)
        self.hold = hold
        self.draws = self.actions + (hold > 1)  # one uniform for each number of an action, one for how long it is held
        self.correlation = correlation
        self.at_random = False
        self.encoder = FlatEncoder(parts_of(observation_space, shape.obs, "actor"), normalize_obs, cnn)
        self.torso = torso(self.encoder.size, shape)
        features = shape.hidden_dims[-1] if shape.hidden_dims else self.encoder.size
        self.head = nn.Linear(features, self.outputs * self.actions)
        if hold > 1:  # chances that noise is held for at most 1, 2, ... steps
            chances = torch.arange(1, hold + 1, dtype=torch.float64) ** -2.0
            self.register_buffer("hold_chances", (chances.cumsum(0) / chances.sum()).float(), persistent=False)
        initialize(self, shape.init, seed)

    def initial(self, num_envs: int) -> Tree:
        """The noise of the step before, where it lasts; where it is held also for how many more steps."""
        zeros = self.head.weight.new_zeros
        if self.hold > 1:
            return zeros(num_envs, self.actions), zeros(num_envs)
        return zeros(num_envs, self.actions) if self.correlation else ()

    def mode(self, obs: Obs) -> Tensor:
        """The best action [..., A]."""
        raise NotImplementedError

    def disturbed(self, obs: Obs, z: Tensor) -> Tensor:
        """The action [..., A] that standard normal noise [..., A] makes of it."""
        raise NotImplementedError

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        if greedy:
            return Act(self.mode(obs), carry=carry)
        z = normal(noise[:, : self.actions])
        if self.hold > 1:
            held_z, steps_left = carry
            is_new = is_first | (steps_left < 1)
            longer = torch.searchsorted(self.hold_chances, noise[:, -1].contiguous(), right=True)
            z = torch.where(is_new[:, None], z, held_z)
            carry = z, torch.where(is_new, longer.float(), steps_left - 1)
        elif self.correlation:
            # rho z' + sqrt(1 - rho^2) z has variance 1 again
            correlated = self.correlation * carry + math.sqrt(1 - self.correlation**2) * z
            carry = z = torch.where(is_first[:, None], z, correlated)
        if self.at_random:
            return Act((2 * torch.special.ndtr(z) - 1).clamp(-1, 1), carry=carry)
        return Act(self.disturbed(obs, z), carry=carry)


class SquashedPolicy(BoundedPolicy):
    """tanh of a Gaussian whose deviation depends on the state: the head gives a mean and a log std for each number."""

    outputs = 2

    def forward(self, obs: Obs) -> Normal:
        mean, log_std = self.head(self.torso(self.encoder(obs))).chunk(2, -1)
        return Normal(mean, log_std.clamp(*LOG_STD_BOUNDS))

    def mode(self, obs: Obs) -> Tensor:
        p: Normal = self(obs)
        return p.mean.tanh()

    def disturbed(self, obs: Obs, z: Tensor) -> Tensor:
        p: Normal = self(obs)
        return (p.mean + p.log_std.exp() * z).tanh()

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


class DeterministicPolicy(BoundedPolicy):
    """One action for each state, tanh of the head; acting adds noise of the deviation `noise_std`."""

    outputs = 1
    noise_std: float | Tensor = 0.0  # which the algorithm sets

    def forward(self, obs: Obs) -> Tensor:
        action: Tensor = self.head(self.torso(self.encoder(obs))).tanh()
        return action

    mode = forward

    def disturbed(self, obs: Obs, z: Tensor) -> Tensor:
        return (self.mode(obs) + self.noise_std * z).clamp(-1, 1)

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        """The action, and the deviation of the noise on it; it is certain, and so its entropy is 0."""
        action = self.mode(obs)
        std = torch.zeros_like(action) + self.noise_std
        return Explanation(self.encoder(obs), {"mean": action, "std": std}, action.new_zeros(len(action)), None)


class Critic(nn.Module):
    """Layers of the given widths, then one number; or so many of them: quantiles of the return, or its bins."""

    def __init__(self, widths: tuple[int, ...], activation: str, outputs: int = 1) -> None:
        super().__init__()
        hidden_modules = (Dense(size_in, size_out, activation) for size_in, size_out in pairwise(widths))
        self.layers = nn.ModuleList([*hidden_modules, Dense(widths[-1], outputs)])

    def forward(self, x: Tensor, frozen: bool) -> Tensor:
        for layer in self.layers:
            x = layer(x, frozen)
        return x.squeeze(-1)


class NormedCritic(nn.Module):
    """As Critic, with norms or residual blocks."""

    def __init__(self, size: int, shape: NetworkShape, outputs: int) -> None:
        super().__init__()
        self.torso = torso(size, shape)
        self.head = Dense(shape.hidden_dims[-1] if shape.hidden_dims else size, outputs)

    def forward(self, x: Tensor, frozen: bool) -> Tensor:
        with frozen_weights(self, frozen):
            q: Tensor = self.head(self.torso(x))
        return q.squeeze(-1)


class Critics(nn.Module):
    """Q(s, a) by several networks side by side, [n, B]; with K quantiles of the return, or bins, [n, B, K]."""

    def __init__(
        self,
        n: int,
        observation_space: gym.Space,
        actions: int,
        shape: NetworkShape,
        normalize_obs: bool | str,
        cnn: CNN | None,
        seed: int,
        outputs: int = 1,
    ) -> None:
        super().__init__()
        self.encoder = FlatEncoder(parts_of(observation_space, shape.obs, "critic"), normalize_obs, cnn)
        size, is_plain = self.encoder.size + actions, shape.norm == "none" and not shape.blocks
        widths = (size, *shape.hidden_dims)
        self.networks = nn.ModuleList(
            Critic(widths, shape.activation, outputs) if is_plain else NormedCritic(size, shape, outputs)
            for _ in range(n)
        )
        self.last_layers = [f"networks.{i}." + (f"layers.{len(widths) - 1}" if is_plain else "head") for i in range(n)]
        initialize(self, shape.init, seed)

    def forward(self, obs: Obs, action: Tensor, frozen: bool = False, first: int | None = None) -> Tensor:
        """`frozen`: gradients flow to the action alone, not to the weights. `first`: by so many networks only."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            features = self.encoder(obs)
        x = torch.cat((features, action), -1)
        return torch.stack([network(x, frozen) for network in list(self.networks)[:first]])
