"""The expensive methods of an agent as sockets: playing, learning, evaluating. Here in plain torch, one step and one
minibatch at a time, which is the meaning of all others.

An engine that is plugged in owns compiled code at most, never state and no algorithm; sockets are chosen one by one.
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
    """An agent, as far as engines that play or learn for it use it."""

    config: Config
    live: SimpleNamespace
    policy: Policy
    collector: Collector
    memory: Memory
    metrics: Metrics
    progress: dict[str, int]
    counter: Tensor | None
    """iterations, int64 [] on the device, where a graph reads them"""
    loads: int
    """how often a state was loaded, after which tensors are stored elsewhere"""
    poisoned: Tensor
    """bool []: something that was just collected is non-finite"""
    broken: Tensor
    """bool []: something of this iteration is non-finite"""
    lost: Tensor
    """bool []: a loss is non-finite"""

    @property
    def optimizer(self) -> Optimizer: ...

    def key(self, purpose: int, index: int | Tensor) -> Key: ...

    @property
    def learn(self) -> Callable[..., None]: ...


class Play(Protocol):
    """Collects."""

    name: str

    def collect(self, learner: Learner, steps: int) -> None:
        """Play `steps` steps in every world into the learner's memory."""


class Learn(Protocol[Work]):
    """Updates."""

    name: str

    def learn(self, learner: Learner, work: Work) -> None:
        """Do what the learner's own `learn` does with this work: a rollout, or a number of updates that are due.

        World models take `learn(updates, losses)`: an engine passes what answers their losses and steps the optimizer.
        """


class Episodes(Protocol):
    """Evaluates."""

    name: str

    def play(
        self, learner: Learner, collector: Collector, count: int, max_steps: int | None, deadline: float = math.inf
    ) -> EpisodeResults:
        """The results of `collector.play`, guarded as the learner's config says; worlds have just begun.

        The state of the worlds and the collector afterwards does not matter: both begin anew.
        """


class EagerPlay:
    """The collector asks the policy, step by step."""

    name = "eager"

    def collect(self, learner: Learner, steps: int) -> None:
        learner.collector.collect(steps, learner.memory)


class EagerLearn:
    """The agent's own method."""

    name = "eager"

    def learn(self, learner: Learner, work: object) -> None:
        learner.learn(work)


class Threads(NamedTuple):
    """How many threads, and why, where the config left it open."""

    number: int = 1
    why: str = ""


class EagerEpisodes:
    """The collector itself."""

    name = "eager"

    def play(
        self, learner: Learner, collector: Collector, count: int, max_steps: int | None, deadline: float = math.inf
    ) -> EpisodeResults:
        return collector.play(count, max_steps, learner.config.nan_guard != "off", deadline)


class Engine(NamedTuple):
    """The sockets, under the name that configs and runs use, and why they were chosen."""

    name: str
    reason: str
    play: Play
    learn: Learn[Any]  # of the work that the agent passes to `learn_from`
    episodes: Episodes = EagerEpisodes()
    threads: Threads = Threads()


def eager(reason: str = "") -> Engine:
    """Plain torch in all sockets."""
    return Engine("eager", reason, EagerPlay(), EagerLearn())
