"""What the parts of a check share: the world's maker, the limits, and what earlier parts have learnt."""

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from stride.envs_gym.blame import EnvError
from stride.envs_gym.check.finding import Facts
from stride.envs_gym.check.subject import Subject
from stride.envs_gym.check.world import Pulse, World, begin
from stride.envs_gym.spaces import MASK

OURS = 50e-6  # seconds of a step that looking takes


class Limits(NamedTuple):
    """Of a whole check: it ends by the first of them; parts have their share."""

    steps: int = 5000  # of random play
    seconds: float = 15.0


class StopError(Exception):
    """What was found leaves nothing to check further; its text says why."""


class Study:
    """One check under way."""

    def __init__(
        self,
        subject: Subject,
        limits: Limits,
        pulse: Pulse,
        echo: Callable[[], float] | None,
        printed: Callable[[], int],
    ) -> None:
        """`echo`: seconds to another process and back; `printed`: bytes that were printed so far."""
        self.subject, self.limits, self.echo, self.printed = subject, limits, echo, printed
        self.facts = Facts(made_by=subject.made_by)
        self.repeats = False  # the same seed and the same actions gave the same
        self.pulse = pulse

    @property
    def unsteady(self) -> bool:
        """Whether its author says that a seed does not decide everything."""
        return self.subject.spec is not None and self.subject.spec.nondeterministic

    @contextmanager
    def world(self, **more: Any) -> Iterator[World]:
        """A new one, closed at the end; what closing raises is found by the part that looks for it."""
        with self.watched("__init__"):
            env = self.subject.make(**more)
        world = World(env, self.subject.words, self.pulse)
        try:
            yield world
        finally:
            with suppress(EnvError):
                world.close()

    @contextmanager
    def watched(self, verb: str) -> Iterator[None]:
        """Around other people's code that is neither step nor reset."""
        begin(self.pulse, verb)
        yield
        self.pulse[1] = 0

    def until(self, share: float) -> float:
        """When a part that may take this share of the time has to end, on the monotonic clock."""
        return time.monotonic() + share * self.limits.seconds

    def affordable(self, share: float, episodes: int, most: int, times: float = 1.0) -> int:
        """Steps of each of so many episodes for which that share is enough; 0 or less where resets alone take more.

        `times`: as slow as random play was.
        """
        step, reset = (1e-6 * (each or 0.0) for each in (self.facts.step_us, self.facts.reset_us))
        left = share * self.limits.seconds / episodes - times * reset
        return min(most, int(left / (times * step + OURS)))


class Actor:
    """Draws actions by itself, so that the world's own generators are left alone."""

    def __init__(self, space: gymnasium.Space[Any], seed: int) -> None:
        self._space = copy.deepcopy(space)
        self._space.seed(seed)

    def draw(self, obs: Any, info: Any) -> Any:
        """A legal one, where the world says which are."""
        mask = mask_of(obs, info)
        if mask is not None and isinstance(self._space, spaces.Discrete):
            return self._space.sample(np.asarray(mask, np.int8))
        return self._space.sample()


def mask_of(obs: Any, info: Any) -> Any:
    """Which discrete actions make sense, None where the world does not say."""
    return next((each[MASK] for each in (obs, info) if isinstance(each, dict) and MASK in each), None)


def leaves(space: gymnasium.Space[Any], value: Any, name: str = "observation") -> Iterator[tuple[str, Any, Any]]:
    """(name, space, value) of every part; KeyError, IndexError or TypeError where the value has not that form."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from leaves(part, value[key], f"{name}.{key}")
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from leaves(part, value[index], f"{name}.{index}")
    else:
        yield name, space, value
