"""Action heads: the last layer of an actor, and the maths of its distribution over actions.

Every head has these methods, where h [..., size] are features and u [..., draws] uniforms in [0, 1) from the caller:

    forward(h) -> parameters                       of the distribution
    sample(parameters, u) -> action                the same u gives the same action
    mode(parameters) -> action                     the likeliest
    log_prob(parameters, action) -> [...]
    entropy(parameters) -> [...]                   in nats
    restrict(parameters, mask) -> parameters       heads of discrete actions only
    distribution(parameters) -> {name: Tensor}     for people to look at
    describe() -> metrics

torch.distributions is not used, because its checks make the host wait for a GPU.
"""

import math
from typing import NamedTuple

import gymnasium as gym
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete, flatdim
from torch import Tensor, nn

from stride.agents.experience.storage import SPARE, free_bytes, readable_size
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import MASK
from stride.utils.counter_rng import normal
from stride.utils.user_error import UserError

LOG_STD_BOUNDS = (-5.0, 2.0)
PROBABILITY_STEPS = 2.0**40  # on a GPU probabilities are added up as integer multiples of 1 / this
MIN_STD = 0.1  # of a bounded Gaussian
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)  # tau = 2 pi
IMPOSSIBLE = -1e9  # logit of a forbidden action: exp of it is 0, and 0 times it is 0 (for -inf that is NaN)


def action_mask(obs: Obs) -> Tensor | None:
    """Return the observation's mask of allowed actions, [..., A] bool; None if it has none."""
    return obs[MASK].bool() if isinstance(obs, dict) and MASK in obs else None


def sample_categorical(log_probs: Tensor, u: Tensor) -> Tensor:
    """Draw an option by the inverse CDF: log_probs [..., A], one uniform u [..., 1]. -> int64 [...]

    The choice is the same on every device. u is scaled by the sum of the probabilities, which rounding may leave below
    1, so that an option of probability 0 is never chosen.
    """
    if log_probs.is_cpu:
        cumulative = log_probs.exp().cumsum(-1)
    else:
        cumulative, u = sums_of_steps(log_probs.exp()), u.double()
    return (cumulative[..., :-1] <= u * cumulative[..., -1:]).sum(-1)


def sums_of_steps(p: Tensor) -> Tensor:
    """Return cumulative sums of probabilities [..., A] as int64 multiples of 1 / PROBABILITY_STEPS.

    A GPU may add floats in another order each time, which changes their bits; sums of integers do not change.
    """
    return (p.double() * PROBABILITY_STEPS).long().cumsum(-1)


class ActionHead(nn.Module):
    """The base of all heads."""

    def describe(self) -> dict[str, Tensor]:
        """Return metrics of the head's own parameters; {} if there are none."""
        return {}


class Choices(ActionHead):
    """One choice or several independent ones; the parameters are log-probabilities [..., n] of all options, joined."""

    def entropy(self, log_probs: Tensor) -> Tensor:
        return -(log_probs.exp() * log_probs).sum(-1)

    def distribution(self, log_probs: Tensor) -> dict[str, Tensor]:
        return {"probability": log_probs.exp()}


class Categorical(Choices):
    """One choice among n options."""

    draws = 1

    def __init__(self, size: int, n: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, n)

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(h).log_softmax(-1)

    def restrict(self, log_probs: Tensor, mask: Tensor) -> Tensor:
        """Return the distribution over the actions in `mask` [..., n] bool only; uniform if the mask allows none."""
        return log_probs.masked_fill(~mask, IMPOSSIBLE).log_softmax(-1)

    def sample(self, log_probs: Tensor, u: Tensor) -> Tensor:
        return sample_categorical(log_probs, u)

    def mode(self, log_probs: Tensor) -> Tensor:
        return log_probs.argmax(-1)

    def log_prob(self, log_probs: Tensor, action: Tensor) -> Tensor:
        return log_probs.gather(-1, action[..., None]).squeeze(-1)


class MultiCategorical(Choices):
    """Several independent choices; `choices` says how many options each has."""

    def __init__(self, size: int, choices: list[int]) -> None:
        super().__init__()
        self.linear = nn.Linear(size, sum(choices))
        self.choices = choices
        self.draws = len(choices)

    def forward(self, h: Tensor) -> Tensor:
        return self._normalized(self.linear(h))

    def restrict(self, log_probs: Tensor, mask: Tensor) -> Tensor:
        """Return the distribution over the options in `mask` [..., sum of choices] bool, each choice by its part."""
        return self._normalized(log_probs.masked_fill(~mask, IMPOSSIBLE))

    def _normalized(self, logits: Tensor) -> Tensor:
        return torch.cat([choice.log_softmax(-1) for choice in logits.split(self.choices, -1)], -1)

    def sample(self, log_probs: Tensor, u: Tensor) -> Tensor:
        choice_pairs = zip(log_probs.split(self.choices, -1), u.split(1, -1), strict=True)
        return torch.stack([sample_categorical(p, x) for p, x in choice_pairs], -1)

    def mode(self, log_probs: Tensor) -> Tensor:
        return torch.stack([p.argmax(-1) for p in log_probs.split(self.choices, -1)], -1)

    def log_prob(self, log_probs: Tensor, action: Tensor) -> Tensor:
        choice_pairs = zip(log_probs.split(self.choices, -1), action.split(1, -1), strict=True)
        return torch.cat([p.gather(-1, a) for p, a in choice_pairs], -1).sum(-1)


class Normal(NamedTuple):
    """Parameters of a diagonal Gaussian, both [..., A]."""

    mean: Tensor
    log_std: Tensor


def normal_entropy(p: Normal) -> Tensor:
    """Return the entropy [...] of a diagonal Gaussian, in nats: sum of log std + log(2 pi e) / 2."""
    return (p.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)


class Diagonal(ActionHead):
    """A Gaussian over A independent numbers; a subclass computes its mean and deviation."""

    def sample(self, p: Normal, u: Tensor) -> Tensor:
        return p.mean + p.log_std.exp() * normal(u)

    def mode(self, p: Normal) -> Tensor:
        return p.mean

    def log_prob(self, p: Normal, action: Tensor) -> Tensor:
        """Return log N(action; mean, std^2), the sum over A numbers of -z^2 / 2 - log std - log(2 pi) / 2. -> [...]"""
        z = (action - p.mean) * (-p.log_std).exp()
        return (-0.5 * z.square() - p.log_std - HALF_LOG_TAU).sum(-1)

    def entropy(self, p: Normal) -> Tensor:
        return normal_entropy(p)

    def distribution(self, p: Normal) -> dict[str, Tensor]:
        return {"mean": p.mean, "std": p.log_std.exp()}


class Gaussian(Diagonal):
    """Diagonal Gaussian over n numbers; its standard deviation is a parameter that does not depend on the state."""

    def __init__(self, size: int, n: int, log_std_init: float = 0.0) -> None:
        super().__init__()
        self.linear = nn.Linear(size, n)
        self.log_std = nn.Parameter(torch.full((n,), float(log_std_init)))
        self.draws = n

    def forward(self, h: Tensor) -> Normal:
        mean_values = self.linear(h)
        return Normal(mean_values, self.log_std.clamp(*LOG_STD_BOUNDS).expand_as(mean_values))

    def describe(self) -> dict[str, Tensor]:
        return {"train/policy/std": self.log_std.exp().mean()}


class BoundedGaussian(Diagonal):
    """Diagonal Gaussian with mean in +-1 and deviation in 0.1 .. 1, both from the state; environments clip to +-1."""

    def __init__(self, size: int, n: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, 2 * n)
        self.draws = n

    def forward(self, h: Tensor) -> Normal:
        mean_values, raw_deviation = self.linear(h).chunk(2, -1)
        return Normal(mean_values.tanh(), (MIN_STD + (1 - MIN_STD) * (raw_deviation + 2).sigmoid()).log())


Head = Categorical | MultiCategorical | Gaussian


def check_choices(count: int, size: int) -> None:
    """UserError if `size` float32 numbers for each of `count` actions do not fit into memory."""
    needed_bytes = 4 * count * size
    free_memory = int(SPARE * free_bytes("ram"))
    if needed_bytes > free_memory:
        raise UserError(
            f"the environment has {count:,} actions: their weights need {readable_size(needed_bytes)}, but "
            f"{readable_size(free_memory)} of memory may be used; offer fewer actions with a wrapper"
        )


def head_for(space: gym.Space, size: int, log_std_init: float = 0.0) -> Head:
    """Make the head for an action space, on `size` features; TypeError for a space that has none."""
    if isinstance(space, Box):
        return Gaussian(size, flatdim(space), log_std_init)
    if not isinstance(space, Discrete | MultiDiscrete):
        raise TypeError(f"no head for {space}")
    options = flatdim(space)
    check_choices(options, size)
    return Categorical(size, options) if isinstance(space, Discrete) else MultiCategorical(size, space.nvec.tolist())
