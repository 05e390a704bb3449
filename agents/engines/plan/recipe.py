"""An algorithm as any fused engine sees it, in numbers and names; one class for each algorithm."""

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
    """An agent's nets and minibatches in numbers."""

    layout: FlatLayout
    encoder: FlatEncoder
    features: int  # floats that are made of an observation: of a picture its own, as convolutions are part of the nets
    actions: int  # choices, or numbers of an action
    inputs: int  # floats of a sample's row: features, then the action's numbers where a net reads them too
    outputs: int  # most outputs that are computed of a sample at once
    batch: int  # samples of a minibatch
    flops: int  # of a sample's way forward through the nets that judge it
    passes: int  # as many times as that in an update
    values: int = 1  # quantiles of all critics of an action with bounds; 1 where each has its mean alone


class Recipe:
    """Made for one agent."""

    agent: Agent
    shape: NetShape
    switches: dict[str, int]
    """settings that do not change while a run lasts, by the name that kernels know"""
    normals: bool
    """the policy draws with normal numbers, not with uniform ones"""

    @classmethod
    def why_not(cls, config: Config, policy: nn.Module, obs: Tree) -> str | None:
        """What it cannot learn from here, in the config's own words; None where it can."""
        raise NotImplementedError

    @staticmethod
    def why_not_played(policy: nn.Module, space: spaces.Space) -> str | None:
        """Why it must be the policy itself that acts, a step at a time; None where kernels can."""
        return "the observation is a dict" if isinstance(space, spaces.Dict) else None

    def before_play(self, live: Live) -> bool:
        """Set the numbers that acting depends on; False where the policy wants to be asked itself this time."""
        return True

    def before_learning(self, live: Live) -> None:
        """Set the numbers that schedules move."""
        raise NotImplementedError

    def report(self, stats: Stat, updates: int) -> None:
        """Add the statistics of so many updates to the agent's metrics, under the names it would use itself."""
        raise NotImplementedError


class ReplayRecipe(Recipe):
    """For an agent that learns from a replay memory."""

    agent: DQN | BoundedAgent

    def renew_statistics(self) -> None:
        """Let the encoders see the latest observations."""
        self.agent.renew_statistics()

    def noise(self, updates: int) -> Tensor | None:
        """The random numbers of so many updates, [updates, ...]; None where they need none."""
        return None

    def add_sums(self, sums: dict[str, float], count: float) -> None:
        """Metrics of which these are the sums over `count` updates."""
        self.agent.metrics.add_sums(tuple(sums), np.array([*sums.values()]), int(count))


class RolloutRecipe(Recipe):
    """For an agent that learns from rollouts, its rows in a new order for every epoch."""

    agent: PPO | REINFORCE | PQN

    def __init__(self, agent: PPO | REINFORCE | PQN) -> None:
        config, memory = agent.config, agent.memory
        self.rows = memory.rows * memory.num_envs
        self.updates = config.n_epochs * -(-self.rows // config.minibatch_size)

    def reward(self, rollout: Rollout) -> Tensor:
        """What is learnt from, as the agent itself would."""
        return rollout.row.reward

    def order(self) -> tuple[int, ...]:
        """The counters of the key that orders the rows of every epoch."""
        return counters(self.agent.key(SHUFFLE, self.agent.progress["iterations"] * self.agent.config.n_epochs))

    def after_learning(self, rollout: Rollout) -> None:
        """Do what the agent itself does when its updates are made."""


def why_not_configured(config: Config) -> str | None:
    """What no fused engine knows, in the config's own words."""
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
    """Why critics with a value scale are not known; only where there is one."""
    scale = vars(config).get("value_scale", "raw")
    return None if scale == "raw" else f"it does not support value_scale: {scale}"


def why_not_read(encoder: FlatEncoder, obs: Tree) -> str | None:
    """Why observations like these cannot be read."""
    if len(encoder.leaf) > 1:
        return "the observation has more than one part"
    encoding = encoder.leaf[0]
    if not isinstance(encoding, Float | RunningNorm | StaticNorm | OneHot):
        return f"it cannot read {type(encoding).__name__} observations"
    readable = torch.int64 if isinstance(encoding, OneHot) else torch.float32
    dtype = main_observation(obs).dtype
    return None if dtype == readable else f"it cannot read {dtype} observations"


def main_observation(obs: Tree) -> Tensor:
    """The observation without its mask."""
    if isinstance(obs, dict):
        (main,) = (value for key, value in obs.items() if key != MASK)
        return main
    return obs


class Scaling(NamedTuple):
    """(x - centre) * scale within +-bound: what an encoder does to a number."""

    centre: Tensor
    scale: Tensor
    bound: float


def scaling(encoder: FlatEncoder) -> Scaling:
    """The present statistics of an encoder."""
    encoding = encoder.leaf[0]
    if isinstance(encoding, RunningNorm):
        return Scaling(encoding.mean, (encoding.var + encoding.epsilon).rsqrt(), encoding.bound)
    if isinstance(encoding, StaticNorm):
        return Scaling(encoding.centre, encoding.scale, math.inf)
    return Scaling(torch.zeros(encoder.size), torch.ones(encoder.size), math.inf)


def note_broken(agent: Agent, stats: Stat) -> None:
    """Raise the agent's flags: an update was not made; its loss was not finite."""
    if stats.broken > 0:
        agent.broken.fill_(True)
    if stats.lost > 0:
        agent.lost.fill_(True)


def or_infinite(limit: float | None) -> float:
    """A limit as kernels take it."""
    return math.inf if limit is None else limit
