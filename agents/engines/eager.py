"""How the two heavy verbs are carried out: here as plain torch, one call per step and per minibatch.

This is the meaning of every other engine. An engine owns compiled things at most, never state and no algorithm.
"""

from typing import Any, Protocol


class Engine(Protocol):
    """Runs an agent's collecting and learning, or an equal of them, faster."""

    name: str

    def collect(self, agent: Any, steps: int) -> None: ...

    def learn(self, agent: Any, work: Any) -> None: ...


class Eager:
    """Calls the agent's own methods."""

    name = "eager"

    def collect(self, agent: Any, steps: int) -> None:
        agent.collector.collect(steps, agent.memory)

    def learn(self, agent: Any, work: Any) -> None:
        agent.learn(work)
