"""Policies and critics of SAC, TQC and TD3: continuous actions in (-1, 1), and networks for Q(s, a).

SAC and TQC act by a Gaussian squashed by tanh, TD3 by one action for each state with noise on it.

Exploration noise z can last for several steps. Correlated: z_t = rho z_t-1 + sqrt(1 - rho^2) new_t, which is standard
normal in every single step. Held: one draw is used for n steps, where n has a probability in proportion to 1 / n^2.
Letters in shapes: N environments, B samples, A numbers of an action, n critics, K outputs of a critic.
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
    """Return log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x)), which is finite even if 1 - tanh^2 rounds to 0."""
    return 2 * (math.log(2) - x - F.softplus(-2 * x))


def squashed_log_prob(p: Normal, z: Tensor) -> Tensor:
    """Return log pi(a) of a = tanh(mean + std z), z [..., A]: log N - sum of log(1 - tanh^2). -> [...]"""
    gaussian = -0.5 * z.square() - p.log_std - HALF_LOG_TAU
    return (gaussian - squash_correction(p.mean + p.log_std.exp() * z)).sum(-1)


class BoundedPolicy(Policy):
    """Actions in (-1, 1) from hidden layers (the torso) and a linear head. With `at_random` it acts uniformly.

    Subclasses give the head's outputs a meaning: `mode` is the best action, `disturbed` the action with noise.
    """

    outputs: int
    """outputs of the head for each number of an action"""
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
        self.draws = self.actions + (hold > 1)  # one uniform for each number, one for how long to hold
        self.correlation = correlation
        self.at_random = False
        self.encoder = FlatEncoder(parts_of(observation_space, shape.obs, "actor"), normalize_obs, cnn)
        self.torso = torso(self.encoder.size, shape)
        features = shape.hidden_dims[-1] if shape.hidden_dims else self.encoder.size
        self.head = nn.Linear(features, self.outputs * self.actions)
        if hold > 1:  # probabilities that noise is held for at most 1, 2, ... steps
            chances = torch.arange(1, hold + 1, dtype=torch.float64) ** -2.0
            self.register_buffer("hold_chances", (chances.cumsum(0) / chances.sum()).float(), persistent=False)
        initialize(self, shape.init, seed)

    def initial(self, num_envs: int) -> Tree:
        """Return the carry: noise of the step before [N, A] if it lasts, and how many more steps it is held [N]."""
        zeros = self.head.weight.new_zeros
        if self.hold > 1:
            return zeros(num_envs, self.actions), zeros(num_envs)
        return zeros(num_envs, self.actions) if self.correlation else ()

    def mode(self, obs: Obs) -> Tensor:
        """Return the best action [..., A]."""
        raise NotImplementedError

    def disturbed(self, obs: Obs, z: Tensor) -> Tensor:
        """Return the action [..., A] with noise; z [..., A] is standard normal."""
        raise NotImplementedError

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        if greedy:
            return Act(self.mode(obs), carry=carry)
        z = normal(noise[:, : self.actions])
        if self.hold > 1:
            held_z, steps_left = carry
            is_new = is_first | (steps_left < 1)
            more_steps = torch.searchsorted(self.hold_chances, noise[:, -1].contiguous(), right=True)
            z = torch.where(is_new[:, None], z, held_z)
            carry = z, torch.where(is_new, more_steps.float(), steps_left - 1)
        elif self.correlation:
            # rho z' + sqrt(1 - rho^2) z has variance 1 again
            correlated = self.correlation * carry + math.sqrt(1 - self.correlation**2) * z
            carry = z = torch.where(is_first[:, None], z, correlated)
        if self.at_random:  # ndtr is the normal CDF: it turns z into uniform numbers in [0, 1]
            return Act((2 * torch.special.ndtr(z) - 1).clamp(-1, 1), carry=carry)
        return Act(self.disturbed(obs, z), carry=carry)


class SquashedPolicy(BoundedPolicy):
    """SAC's policy: a = tanh(mean + std z); the head gives a mean and a log std for each number of an action."""

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
        """Draw an action [B, A] and its log-probability [B], with gradients (reparametrisation); uniforms [B, A]."""
        p, z = self(obs), normal(uniform)
        return (p.mean + p.log_std.exp() * z).tanh(), squashed_log_prob(p, z)

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        """Explain by mean and deviation of the action after tanh, and the entropy of the Gaussian before tanh.

        The deviation is a first-order approximation: std (1 - tanh(mean)^2).
        """
        p = self(obs)
        action_mean = p.mean.tanh()
        action_std = p.log_std.exp() * (1 - action_mean.square())
        return Explanation(self.encoder(obs), {"mean": action_mean, "std": action_std}, normal_entropy(p), None)


class DeterministicPolicy(BoundedPolicy):
    """TD3's policy: one action for each state, tanh of the head; acting adds normal noise of deviation `noise_std`."""

    outputs = 1
    noise_std: float | Tensor = 0.0  # the algorithm sets it

    def forward(self, obs: Obs) -> Tensor:
        action: Tensor = self.head(self.torso(self.encoder(obs))).tanh()
        return action

    mode = forward

    def disturbed(self, obs: Obs, z: Tensor) -> Tensor:
        return (self.mode(obs) + self.noise_std * z).clamp(-1, 1)

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        """Explain by the action and the deviation of its noise; the action is certain, so the entropy is 0."""
        action = self.mode(obs)
        std = torch.zeros_like(action) + self.noise_std
        return Explanation(self.encoder(obs), {"mean": action, "std": std}, action.new_zeros(len(action)), None)


class Critic(nn.Module):
    """One critic: layers of these widths, then one number (`outputs` 1), or K quantiles or bins of the return."""

    def __init__(self, widths: tuple[int, ...], activation: str, outputs: int = 1) -> None:
        super().__init__()
        hidden_modules = (Dense(size_in, size_out, activation) for size_in, size_out in pairwise(widths))
        self.layers = nn.ModuleList([*hidden_modules, Dense(widths[-1], outputs)])

    def forward(self, x: Tensor, frozen: bool) -> Tensor:
        """Return [B] or [B, K] for x [B, size]; `frozen`: no gradients for the weights."""
        for layer in self.layers:
            x = layer(x, frozen)
        return x.squeeze(-1)


class NormedCritic(nn.Module):
    """One critic with norms or residual blocks; else like Critic."""

    def __init__(self, size: int, shape: NetworkShape, outputs: int) -> None:
        super().__init__()
        self.torso = torso(size, shape)
        self.head = Dense(shape.hidden_dims[-1] if shape.hidden_dims else size, outputs)

    def forward(self, x: Tensor, frozen: bool) -> Tensor:
        with frozen_weights(self, frozen):
            q: Tensor = self.head(self.torso(x))
        return q.squeeze(-1)


class Critics(nn.Module):
    """Q(s, a) by n separate networks on one encoder: [n, B]; with K quantiles or bins of the return [n, B, K]."""

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
        """Return Q(s, a). `frozen`: gradients flow to the action, not to weights. `first`: only so many networks."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            features = self.encoder(obs)
        x = torch.cat((features, action), -1)
        return torch.stack([network(x, frozen) for network in list(self.networks)[:first]])
