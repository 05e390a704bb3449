"""One world under the glass: every call is counted for who watches from outside, timed, and blamed if it raises."""

import time
from collections.abc import MutableSequence
from typing import Any

import gymnasium
import numpy as np

from stride.envs_gym.answers import first_observation, shown
from stride.envs_gym.blame import Blame

VERBS = ("", "import", "__init__", "reset", "step", "render", "close", "Gymnasium's checker")
Pulse = MutableSequence[int]  # how many calls were begun, and the place in VERBS of the one that runs


class World:
    """A Gymnasium environment, or something like it; `seconds` is what its last call took by itself."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str, pulse: Pulse) -> None:
        self.env, self.seconds = env, 0.0
        self._pulse, self._blame = pulse, Blame(name, [env])

    def reset(self, seed: int | None = None) -> tuple[Any, Any]:
        """(observation, info); EnvError for whatever else."""
        with self._doing("reset"):
            began = time.perf_counter()
            answer = self.env.reset() if seed is None else self.env.reset(seed=seed)
            self.seconds = time.perf_counter() - began
            first_observation(answer)
        self._pulse[1] = 0
        return answer

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """(observation, reward, terminated, truncated, info); what they are is not looked at."""
        with self._doing("step"):
            began = time.perf_counter()
            answer = self.env.step(action)
            self.seconds = time.perf_counter() - began
            if not isinstance(answer, tuple) or len(answer) != 5:
                raise TypeError(f"its step answers {shown(answer)}, not five things")
        self._pulse[1] = 0
        return answer

    def render(self) -> Any:
        with self._doing("render"):
            picture = self.env.render()
        self._pulse[1] = 0
        return picture

    def close(self) -> None:
        with self._doing("close"):
            self.env.close()
        self._pulse[1] = 0

    def _doing(self, verb: str) -> Blame:
        begin(self._pulse, verb)
        self._blame.doing = verb
        return self._blame


def begin(pulse: Pulse, verb: str) -> None:
    """Other people's code runs from here on."""
    pulse[1] = VERBS.index(verb)
    pulse[0] += 1


def copied(value: Any) -> Any:
    """An observation that nobody else can change."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    return tuple(copied(part) for part in value) if isinstance(value, tuple | list) else value


def distance(one: Any, other: Any) -> float:
    """0 where two observations are equal to the bit; else the largest difference, relative where numbers exceed 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return (
            max((distance(one[key], other[key]) for key in one), default=0.0) if one.keys() == other.keys() else np.inf
        )
    if isinstance(one, tuple) and isinstance(other, tuple):
        if len(one) != len(other):
            return float(np.inf)
        return max((distance(*pair) for pair in zip(one, other, strict=True)), default=0.0)
    first, second = np.atleast_1d(one), np.atleast_1d(other)
    if first.shape != second.shape:
        return float(np.inf)
    if first.dtype.kind not in "fiub" or second.dtype.kind not in "fiub":
        return 0.0 if np.array_equal(first, second) else float(np.inf)
    if first.tobytes() == second.tobytes() or first.size == 0:
        return 0.0
    return _largest(first.astype(np.float64), second.astype(np.float64))


def _largest(first: np.ndarray, second: np.ndarray) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(first - second) / np.maximum(1.0, np.abs(first))
    apart[np.isnan(first) & np.isnan(second) | (first == second)] = 0.0
    return float(np.nan_to_num(apart, nan=np.inf).max())
