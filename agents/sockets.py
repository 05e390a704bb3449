"""Sockets: the three expensive operations of an agent, playing, learning and evaluating, which an engine can replace.

The Eager classes here do them in plain torch, one step and one minibatch at a time; this defines the results that every
engine must give. An engine owns compiled code only, neither state nor an algorithm. Each socket is chosen separately.
"""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, TypeVar

from torch import Tensor
from torch.optim import Optimizer

from stride.agents.experience.collector import Collector, EpisodeResults, Policy
from stride.agents.experience.memory import Memory
from stride.agents.metric_sums import Metrics
from stride.config.schema import Config
from stride.utils.counter_rng import Key

Work = TypeVar("Work", contravariant=True)


class Learner(Protocol):
    """The part of an agent that engines use when they play or learn for it."""

    config: Config
    live: SimpleNamespace
    policy: Policy
    collector: Collector
    memory: Memory
    metrics: Metrics
    progress: dict[str, int]
    counter: Tensor | None
    """number of iterations, int64 [] on the device, for CUDA graphs; None without them"""
    loads: int
    """how often a checkpoint was loaded; each load gives tensors new addresses"""
    poisoned: Tensor
    """bool []: a row that was just collected is non-finite"""
    broken: Tensor
    """bool []: any number of this iteration is non-finite"""
    lost: Tensor
    """bool []: a loss is non-finite"""

    @property
    def optimizer(self) -> Optimizer: ...

    def key(self, purpose: int, index: int | Tensor) -> Key: ...

    @property
    def learn(self) -> Callable[..., None]: ...


class Play(Protocol):
    """The socket that collects."""

    name: str

    def collect(self, learner: Learner, steps: int) -> None:
        """Play `steps` steps in every environment into the learner's memory."""


class Learn(Protocol[Work]):
    """The socket that makes updates."""

    name: str

    def learn(self, learner: Learner, work: Work) -> None:
        """Do what the learner's own `learn` does with this work: a Rollout, or the number of updates that are due.

        World models have `learn(updates, losses)`: an engine passes an object that computes their losses.
        """


class Episodes(Protocol):
    """The socket that plays episodes for evaluations."""

    name: str

    def play(
        self, learner: Learner, collector: Collector, count: int, max_steps: int | None, deadline: float = math.inf
    ) -> EpisodeResults:
        """Return the results of `collector.play`; with nan_guard, check its numbers. Environments were just reset.

        Their state and the collector's may be anything afterwards, because both are reset before they are used again.
        """


class EagerPlay:
    """Plays with the collector: one call of the policy for each step."""

    name = "eager"

    def collect(self, learner: Learner, steps: int) -> None:
        learner.collector.collect(steps, learner.memory)


class EagerLearn:
    """Learns with the agent's own method."""

    name = "eager"

    def learn(self, learner: Learner, work: object) -> None:
        learner.learn(work)


class Threads(NamedTuple):
    """The number of threads, and the reason for it; "" if the config names the number."""

    number: int = 1
    why: str = ""


class EagerEpisodes:
    """Plays evaluations with the collector."""

    name = "eager"

    def play(
        self, learner: Learner, collector: Collector, count: int, max_steps: int | None, deadline: float = math.inf
    ) -> EpisodeResults:
        return collector.play(count, max_steps, learner.config.nan_guard != "off", deadline)


class Engine(NamedTuple):
    """The sockets of an agent, with the engine's name (as in configs and runs) and the reason why it was chosen."""

    name: str
    reason: str
    play: Play
    learn: Learn[Any]  # Any: the work that the agent passes to `learn_from`
    episodes: Episodes = EagerEpisodes()
    threads: Threads = Threads()


def eager(reason: str = "") -> Engine:
    """Return the engine with plain torch in all sockets; `reason`: why it was chosen."""
    return Engine("eager", reason, EagerPlay(), EagerLearn())
