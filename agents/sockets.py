"""The heavy verbs of an agent as sockets: who plays, who learns, who evaluates. Here as plain torch, a step and a
minibatch at a time, which is the meaning of all others.

What is plugged in owns compiled things at most, never state and no algorithm; they are chosen one by one.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, TypeVar

from torch import Tensor
from torch.optim import Optimizer

from stride.agents.experience.collector import Collector, Policy
from stride.agents.experience.memory import Memory
from stride.agents.experience.tally import Played
from stride.agents.metric_sums import Metrics
from stride.config.schema import Config
from stride.utils.counter_rng import Key

Work = TypeVar("Work", contravariant=True)


class Learner(Protocol):
    """An agent as those who play or learn for it see it."""

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
    """how often a state was loaded, after which things lie elsewhere"""
    poisoned: Tensor
    """bool []: something that was just collected is not finite"""
    broken: Tensor
    """bool []: something of this iteration is not"""
    lost: Tensor
    """bool []: a loss is not"""

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
        """What the learner's own `learn` does with this work: a rollout, or a number of updates that are due.

        World models take `learn(updates, losses)`: an engine passes what answers their losses and steps the optimizer.
        """


class Episodes(Protocol):
    """Evaluates."""

    name: str

    def play(self, learner: Learner, collector: Collector, count: int, max_steps: int | None) -> Played:
        """What `collector.play` answers, guarded as the learner's config says; worlds have just begun.

        Where the worlds and the collector stand afterwards is nobody's business: both begin anew.
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
    """How many, and why where the config left it open."""

    number: int = 1
    why: str = ""


class EagerEpisodes:
    """The collector itself."""

    name = "eager"

    def play(self, learner: Learner, collector: Collector, count: int, max_steps: int | None) -> Played:
        return collector.play(count, max_steps, learner.config.nan_guard != "off")


class Engine(NamedTuple):
    """The sockets, under the name that configs and runs know, and why they were taken."""

    name: str
    reason: str
    play: Play
    learn: Learn[Any]  # of the work that the agent hands out
    episodes: Episodes = EagerEpisodes()
    threads: Threads = Threads()


def eager(reason: str = "") -> Engine:
    """Plain torch in all."""
    return Engine("eager", reason, EagerPlay(), EagerLearn())
