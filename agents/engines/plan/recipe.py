"""What an algorithm is to any fused engine, in numbers and names; one file for each algorithm."""

import math
from typing import NamedTuple, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from stride.agents.base import Agent
from stride.agents.engines.plan.layout import Layout
from stride.agents.experience.nouns import Tree
from stride.agents.networks.encoders import FlatEncoder, Float, OneHot, RunningNorm, StaticNorm
from stride.config.schema import Config
from stride.envs_gym.spaces import MASK


class Shape(NamedTuple):
    """An agent's nets and minibatches in numbers."""

    layout: Layout
    encoder: FlatEncoder
    actions: int  # choices, or numbers of an action
    inputs: int  # floats of a sample's row: features, then the action's numbers where a net reads them too
    outputs: int  # most outputs that are computed of a sample at once
    batch: int  # samples of a minibatch
    flops: int  # of a sample's way forward through the nets that judge it
    passes: int  # as many times as that in an update


class Recipe(Protocol):
    """Made for one agent."""

    shape: Shape
    switches: dict[str, int]
    """what does not change while a run lasts, by the name that kernels know"""
    normals: bool
    """the policy draws with normal numbers, not with uniform ones"""

    @property
    def agent(self) -> Agent: ...

    @classmethod
    def why_not(cls, config: Config, policy: nn.Module, obs: Tree) -> str | None:
        """What it cannot learn from here, in the config's own words; None where it can."""

    @staticmethod
    def why_not_played(policy: nn.Module, space: spaces.Space) -> str | None:
        """Why it must be the policy itself that acts, a step at a time; None where kernels can."""

    def before_play(self, live: np.ndarray) -> bool:
        """Set what acting depends on; False where the policy wants to be asked itself this time."""

    def before_learning(self, live: np.ndarray) -> None:
        """Set the numbers that schedules move."""

    def tell(self, stats: np.ndarray, updates: int) -> None:
        """Tell the agent of so many updates, under the names it would use itself."""


class ReplayRecipe(Recipe, Protocol):
    """Of an agent that learns from a replay memory."""

    def renew_statistics(self) -> None:
        """Let the encoders see the latest observations."""

    def noise(self, updates: int) -> Tensor | None:
        """What so many updates draw, [updates, ...]; None where they draw nothing."""


def why_not_configured(config: Config) -> str | None:
    """What no fused engine knows, in the config's own words."""
    if config.optimizer not in ("adam", "adamw"):
        return f"it does not know optimizer: {config.optimizer}"
    if config.nan_guard != "stop":
        return f"it does not know nan_guard: {config.nan_guard}"
    return None if config.hidden_dims else "hidden_dims is empty"


def why_not_read(encoder: FlatEncoder, obs: Tree) -> str | None:
    """Why observations like these cannot be read."""
    if len(encoder.leaf) > 1:
        return "the observation has more than one part"
    leaf = encoder.leaf[0]
    if not isinstance(leaf, Float | RunningNorm | StaticNorm | OneHot):
        return f"it cannot read {type(leaf).__name__} observations"
    if (kind := main_leaf(obs).dtype) != (torch.int64 if isinstance(leaf, OneHot) else torch.float32):
        return f"it cannot read {kind} observations"
    return None


def why_not_seen(space: spaces.Space) -> str | None:
    """Why kernels cannot act on observations of this space."""
    return "the observation is a dict" if isinstance(space, spaces.Dict) else None


def main_leaf(obs: Tree) -> Tensor:
    """The observation without its mask."""
    if isinstance(obs, dict):
        (leaf,) = (value for key, value in obs.items() if key != MASK)
        return leaf
    return obs


class Scaling(NamedTuple):
    """(x - centre) * scale within +-bound: what an encoder does to a number."""

    centre: Tensor
    scale: Tensor
    bound: float


def scaling(leaf: nn.Module, size: int) -> Scaling:
    """The statistics of a leaf as they are now."""
    if isinstance(leaf, RunningNorm):
        return Scaling(leaf.mean, (leaf.var + leaf.epsilon).rsqrt(), leaf.bound)
    if isinstance(leaf, StaticNorm):
        return Scaling(leaf.centre, leaf.scale, math.inf)
    return Scaling(torch.zeros(size), torch.ones(size), math.inf)


def note_broken(agent: Agent, broken: bool, lost: bool) -> None:
    """Raise the agent's flags: an update was not made; its loss was not finite."""
    if broken:
        agent.broken.fill_(True)
    if lost:
        agent.lost.fill_(True)


def or_infinite(limit: float | None) -> float:
    """A limit as kernels take it."""
    return math.inf if limit is None else limit
