"""Action heads: the last layer of an actor and the maths of its distribution. Draws are uniforms handed in.

Every head answers `forward(h) -> parameters`, `sample(parameters, u)`, `mode`, `log_prob(parameters, action)`,
`entropy`, `describe() -> metrics` and, to look at, `distribution(parameters) -> {name: Tensor}`; `draws` is the number
of uniforms one action takes. Discrete ones also answer `restrict(parameters, mask)`. No torch.distributions: its checks
synchronise.
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
FINE = 2.0**40  # 1 / FINE is the smallest probability, where they are added up as integers
LEAST_STD = 0.1  # of a bounded Gaussian
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
IMPOSSIBLE = -1e9  # its exp is 0, and 0 times it is 0; infinity would make NaN of both


def action_mask(obs: Obs) -> Tensor | None:
    """The mask [..., A] bool of actions that make sense, where the observation has one."""
    return obs[MASK].bool() if isinstance(obs, dict) and MASK in obs else None


def sample_categorical(log_probs: Tensor, u: Tensor) -> Tensor:
    """Inverse CDF of one uniform [..., 1]; the choice is the same on every device. -> int64 [...]

    Scaled to the sum, which rounding may leave below 1: a choice of probability 0 is never made.
    """
    if log_probs.is_cpu:
        cumulative = log_probs.exp().cumsum(-1)
    else:
        cumulative, u = sums_of_steps(log_probs.exp()), u.double()
    return (cumulative[..., :-1] <= u * cumulative[..., -1:]).sum(-1)


def sums_of_steps(p: Tensor) -> Tensor:
    """Cumulative sums [..., A] in steps of 1 / FINE, int64: a GPU may add floats up in another order each time."""
    return (p.double() * FINE).long().cumsum(-1)


class ActionHead(nn.Module):
    """The last layer of an actor."""

    def describe(self) -> dict[str, Tensor]:
        """Metrics of the head's own parameters."""
        return {}


class Choices(ActionHead):
    """One choice or several independent ones; the parameters are their log-probabilities [..., n], joined."""

    def entropy(self, log_probs: Tensor) -> Tensor:
        return -(log_probs.exp() * log_probs).sum(-1)

    def distribution(self, log_probs: Tensor) -> dict[str, Tensor]:
        return {"probability": log_probs.exp()}


class Categorical(Choices):
    """One choice of n."""

    draws = 1

    def __init__(self, size: int, n: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, n)

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(h).log_softmax(-1)

    def restrict(self, log_probs: Tensor, mask: Tensor) -> Tensor:
        """The distribution over the actions in `mask` [..., n] bool; uniform where none is."""
        return log_probs.masked_fill(~mask, IMPOSSIBLE).log_softmax(-1)

    def sample(self, log_probs: Tensor, u: Tensor) -> Tensor:
        return sample_categorical(log_probs, u)

    def mode(self, log_probs: Tensor) -> Tensor:
        return log_probs.argmax(-1)

    def log_prob(self, log_probs: Tensor, action: Tensor) -> Tensor:
        return log_probs.gather(-1, action[..., None]).squeeze(-1)


class MultiCategorical(Choices):
    """Several independent choices."""

    def __init__(self, size: int, choices: list[int]) -> None:
        super().__init__()
        self.linear = nn.Linear(size, sum(choices))
        self.choices = choices
        self.draws = len(choices)

    def forward(self, h: Tensor) -> Tensor:
        return self._normalized(self.linear(h))

    def restrict(self, log_probs: Tensor, mask: Tensor) -> Tensor:
        """The distribution over the options in each choice's part of `mask` [..., sum of choices] bool."""
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
    """The entropy [...] of a diagonal Gaussian."""
    return (p.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)


class Diagonal(ActionHead):
    """A Gaussian over A independent numbers; subclasses say where its parameters come from."""

    def sample(self, p: Normal, u: Tensor) -> Tensor:
        return p.mean + p.log_std.exp() * normal(u)

    def mode(self, p: Normal) -> Tensor:
        return p.mean

    def log_prob(self, p: Normal, action: Tensor) -> Tensor:
        """log N(action; mean, std^2) summed over the A numbers: -z^2 / 2 - log std - log(2 pi) / 2 each."""
        z = (action - p.mean) * (-p.log_std).exp()
        return (-0.5 * z.square() - p.log_std - HALF_LOG_TAU).sum(-1)

    def entropy(self, p: Normal) -> Tensor:
        return normal_entropy(p)

    def distribution(self, p: Normal) -> dict[str, Tensor]:
        return {"mean": p.mean, "std": p.log_std.exp()}


class Gaussian(Diagonal):
    """Diagonal Gaussian over A numbers with a standard deviation that does not depend on the state."""

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
    """Mean within +-1 and deviation within 0.1 .. 1, both of the state; the worlds cut the numbers at +-1."""

    def __init__(self, size: int, n: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, 2 * n)
        self.draws = n

    def forward(self, h: Tensor) -> Normal:
        mean_values, raw_deviation = self.linear(h).chunk(2, -1)
        return Normal(mean_values.tanh(), (LEAST_STD + (1 - LEAST_STD) * (raw_deviation + 2).sigmoid()).log())


Head = Categorical | MultiCategorical | Gaussian


def check_choices(count: int, size: int) -> None:
    """UserError where `size` numbers for each of `count` actions do not fit into memory."""
    needed_bytes = 4 * count * size
    free_memory = int(SPARE * free_bytes("ram"))
    if needed_bytes > free_memory:
        raise UserError(
            f"the environment has {count:,} actions: their weights need {readable_size(needed_bytes)}, but "
            f"{readable_size(free_memory)} of memory may be used; offer fewer actions with a wrapper"
        )


def head_for(space: gym.Space, size: int, log_std_init: float = 0.0) -> Head:
    """The head for an action space."""
    if isinstance(space, Box):
        return Gaussian(size, flatdim(space), log_std_init)
    if not isinstance(space, Discrete | MultiDiscrete):
        raise TypeError(f"no head for {space}")
    options = flatdim(space)
    check_choices(options, size)
    return Categorical(size, options) if isinstance(space, Discrete) else MultiCategorical(size, space.nvec.tolist())
