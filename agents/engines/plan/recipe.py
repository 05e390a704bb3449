"""The interface between an algorithm and the fused engines (fused_cpu/, fused_gpu/).

A recipe tells an engine what its kernels need: where parameters are stored, sizes, settings, the names of metrics. Each
algorithm has a class derived from Recipe in this folder; agents/engines/choice.py lists them.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from stride.agents.base import Agent
from stride.agents.dqn import DQN
from stride.agents.engines.plan.layout import FlatLayout
from stride.agents.engines.plan.numbers import Live, Stat
from stride.agents.experience.nouns import Rollout, Tree
from stride.agents.networks.encoders import FlatEncoder, Float, OneHot, RunningNorm, StaticNorm
from stride.agents.off_policy import BoundedAgent
from stride.agents.ppo import PPO
from stride.agents.pqn import PQN
from stride.agents.reinforce import REINFORCE
from stride.config.schema import Config, ReplayConfig, explores
from stride.envs_gym.spaces import MASK
from stride.utils.counter_rng import SHUFFLE, counters


class NetShape(NamedTuple):
    """The sizes of an agent's nets and minibatches."""

    layout: FlatLayout
    encoder: FlatEncoder
    features: int  # floats that the nets read of an observation; convolutions are part of the nets, so all of a picture
    actions: int  # discrete: the number of actions; continuous: numbers per action
    inputs: int  # floats of a sample's row: features, then the action's numbers if a critic reads them
    outputs: int  # the most outputs of a sample that are computed at once
    batch: int  # samples of a minibatch
    flops: int  # of one sample's forward pass through the nets
    passes: int  # an update costs about flops * passes
    values: int = 1  # TQC: quantiles of all critics together; else 1


class Recipe:
    """What a fused engine must know of one agent."""

    agent: Agent
    shape: NetShape
    switches: dict[str, int]
    """settings that are fixed for a run, by the name that kernels use, such as "epochs" or "double" (DQN)"""
    normals: bool
    """whether acting draws normal numbers; False: uniform ones"""

    @classmethod
    def why_not(cls, config: Config, policy: nn.Module, obs: Tree) -> str | None:
        """Return why engines cannot learn with this config, naming its key; None if they can."""
        raise NotImplementedError

    @staticmethod
    def why_not_played(policy: nn.Module, space: spaces.Space) -> str | None:
        """Return why kernels cannot play for this policy, so that torch must, step by step; None if they can."""
        return "the observation is a dict" if isinstance(space, spaces.Dict) else None

    def before_play(self, live: Live) -> bool:
        """Write the settings that acting needs to `live`; return False if the policy itself must act this time."""
        return True

    def before_learning(self, live: Live) -> None:
        """Write the settings that schedules change to `live`."""
        raise NotImplementedError

    def report(self, stats: Stat, updates: int) -> None:
        """Add the statistics of `updates` updates to the agent's metrics, with the names and meaning of plain torch."""
        raise NotImplementedError


class ReplayRecipe(Recipe):
    """The recipe of an agent that learns from a replay memory."""

    agent: DQN | BoundedAgent

    def renew_statistics(self) -> None:
        """Update the encoders' statistics with the newest observations."""
        self.agent.renew_statistics()

    def noise(self, updates: int) -> Tensor | None:
        """Draw the random numbers of `updates` updates, [updates, ...]; None if updates need none."""
        return None

    def add_sums(self, sums: dict[str, float], count: float) -> None:
        """Add metrics to the agent's, given as sums over `count` updates."""
        self.agent.metrics.add_sums(tuple(sums), np.array([*sums.values()]), int(count))


class RolloutRecipe(Recipe):
    """The recipe of an agent that learns from rollouts, in a new order of rows for every epoch."""

    agent: PPO | REINFORCE | PQN

    def __init__(self, agent: PPO | REINFORCE | PQN) -> None:
        config, memory = agent.config, agent.memory
        self.rows = memory.rows * memory.num_envs
        self.updates = config.n_epochs * -(-self.rows // config.minibatch_size)

    def reward(self, rollout: Rollout) -> Tensor:
        """Return the rewards [T, N] to learn from, as the agent computes them itself."""
        return rollout.row.reward

    def order(self) -> tuple[int, ...]:
        """Return the counters of the random key for the order of rows in the iteration's epochs."""
        return counters(self.agent.key(SHUFFLE, self.agent.progress["iterations"] * self.agent.config.n_epochs))

    def after_learning(self, rollout: Rollout) -> None:
        """Do what the agent does after its updates, such as updating statistics of observations."""


def why_not_configured(config: Config) -> str | None:
    """Return the first setting that no fused engine supports; None if all are supported."""
    if config.optimizer not in ("adam", "adamw", "radam"):
        return f"it does not support optimizer: {config.optimizer}"
    if config.nan_guard != "stop":
        return f"it does not support nan_guard: {config.nan_guard}"
    if explores(config):
        return "it does not support exploration"
    if isinstance(config, ReplayConfig) and config.frame_stack > 1:  # only the newest frame of a stack is stored
        return "it does not support frame_stack"
    return None if config.hidden_dims or config.policy == "cnn" else "hidden_dims is empty"


def why_not_scaled(config: Config) -> str | None:
    """Return why a `value_scale` is not supported; None for the default, raw."""
    scale = vars(config).get("value_scale", "raw")
    return None if scale == "raw" else f"it does not support value_scale: {scale}"


def why_not_read(encoder: FlatEncoder, obs: Tree) -> str | None:
    """Return why kernels cannot read such observations; None if they can."""
    if len(encoder.leaf) > 1:
        return "the observation has more than one part"
    encoding = encoder.leaf[0]
    if not isinstance(encoding, Float | RunningNorm | StaticNorm | OneHot):
        return f"it cannot read {type(encoding).__name__} observations"
    readable = torch.int64 if isinstance(encoding, OneHot) else torch.float32
    dtype = main_observation(obs).dtype
    return None if dtype == readable else f"it cannot read {dtype} observations"


def main_observation(obs: Tree) -> Tensor:
    """Return the only tensor of an observation besides its action mask."""
    if isinstance(obs, dict):
        (main,) = (value for key, value in obs.items() if key != MASK)
        return main
    return obs


class Scaling(NamedTuple):
    """How an encoder normalises features x: (x - centre) * scale, clipped to +-bound."""

    centre: Tensor
    scale: Tensor
    bound: float


def scaling(encoder: FlatEncoder) -> Scaling:
    """Return how an encoder normalises now."""
    encoding = encoder.leaf[0]
    if isinstance(encoding, RunningNorm):
        return Scaling(encoding.mean, (encoding.var + encoding.epsilon).rsqrt(), encoding.bound)
    if isinstance(encoding, StaticNorm):
        return Scaling(encoding.centre, encoding.scale, math.inf)
    return Scaling(torch.zeros(encoder.size), torch.ones(encoder.size), math.inf)


def note_broken(agent: Agent, stats: Stat) -> None:
    """Set the agent's flags `broken` (an update was skipped) and `lost` (its loss was non-finite)."""
    if stats.broken > 0:
        agent.broken.fill_(True)
    if stats.lost > 0:
        agent.lost.fill_(True)


def or_infinite(limit: float | None) -> float:
    """Return a limit in the form kernels use: infinity for none."""
    return math.inf if limit is None else limit
