"""CheckedWorld: an environment under check-env. Each call is counted, timed, and turned into an EnvError if it raises.

The parent process reads the count (Pulse) to find calls that hang.
"""

import time
from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from gymnasium import Env

from stride.envs_gym.answers import first_observation, shown
from stride.envs_gym.blame import Blame

VERBS = ("", "import", "__init__", "reset", "step", "render", "close", "Gymnasium's checker")
Pulse = MutableSequence[int]  # in shared memory: [calls begun so far, index in VERBS of the running call]


@contextmanager
def calling(pulse: Pulse, verb: str) -> Iterator[None]:
    """Count a call of user code that runs inside this block. After an exception the verb stays, to name the call."""
    pulse[1] = VERBS.index(verb)
    pulse[0] += 1
    yield
    pulse[1] = 0


class CheckedWorld:
    """An environment whose calls are counted and timed; `seconds`: the duration of its last reset or step."""

    def __init__(self, env: Env, name: str, pulse: Pulse) -> None:
        self.env = env
        self.seconds = 0.0
        self._pulse = pulse
        self._blame = Blame(name, [env])

    def reset(self, seed: int | None = None) -> tuple[Any, Any]:
        """Return (observation, info); EnvError for any other result."""
        with calling(self._pulse, "reset"), self._blame.during("reset"):
            start_time = time.perf_counter()
            result = self.env.reset() if seed is None else self.env.reset(seed=seed)
            self.seconds = time.perf_counter() - start_time
            first_observation(result)
        return result

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Return (observation, reward, terminated, truncated, info), whose types are not checked here."""
        with calling(self._pulse, "step"), self._blame.during("step"):
            start_time = time.perf_counter()
            result = self.env.step(action)
            self.seconds = time.perf_counter() - start_time
            if not isinstance(result, tuple) or len(result) != 5:
                raise TypeError(f"its step returns {shown(result)}, not five values")
        return result

    def render(self) -> Any:
        with calling(self._pulse, "render"), self._blame.during("render"):
            return self.env.render()

    def close(self) -> None:
        with calling(self._pulse, "close"), self._blame.during("close"):
            self.env.close()


def flattened(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of every part of nested dicts and tuples, such as (".position.0", 0.5)."""
    if not isinstance(value, dict | tuple):
        yield path, value
        return
    for key, component in value.items() if isinstance(value, dict) else enumerate(value):
        yield from flattened(component, f"{path}.{key}")


def distance(one: Any, other: Any) -> float:
    """Return the largest difference of two observations; 0 where they are equal bit for bit, inf for other forms.

    Differences of numbers above 1 in size are relative.
    """
    parts = dict(flattened(one))
    other_parts = dict(flattened(other))
    if parts.keys() != other_parts.keys():
        return np.inf
    return max((_array_distance(parts[path], other_parts[path]) for path in parts), default=0.0)


def _array_distance(one: Any, other: Any) -> float:
    """Return the distance of two arrays, see `distance`; nan equals nan."""
    first, second = np.atleast_1d(one), np.atleast_1d(other)
    if first.shape != second.shape:
        return np.inf
    if first.dtype.kind not in "fiub" or second.dtype.kind not in "fiub":
        return 0.0 if np.array_equal(first, second) else np.inf
    if first.tobytes() == second.tobytes() or first.size == 0:
        return 0.0
    first = first.astype(np.float64)
    second = second.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(first - second) / np.maximum(1.0, np.abs(first))
    difference[np.isnan(first) & np.isnan(second) | (first == second)] = 0.0
    return float(np.nan_to_num(difference, nan=np.inf).max())
