"""Plays an environment with random actions for check-env, and records statistics and problems (PlayRecord).

No observation is kept, only numbers about it, so that a long play needs little memory. played.py turns the record into
findings.
"""

import math
import time
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Graph, Sequence, Text

from stride.envs_gym.answers import real
from stride.envs_gym.check.form import flag_and_reward_problems
from stride.envs_gym.check.study import RandomActions, Study, leaves
from stride.envs_gym.check.world import CheckedWorld
from stride.utils.resources import memory_used

SEED = 101
LARGE_SIZE = 2048  # numbers; larger parts of an observation enter the statistics only at each SAMPLED_STEPS-th step
SAMPLED_STEPS = 8
MAX_DEPTH, MAX_PARTS = 6, 2000  # nesting, and parts at each level, of an info that are counted


class EpisodeRecord(NamedTuple):
    """The results of an episode that ended."""

    length: int  # steps
    total: float  # sum of the rewards
    terminated: bool
    truncated: bool


class PartStatistics:
    """Minimum, maximum and standard deviation of each number in one part of the observation."""

    def __init__(self, space: Space, first: np.ndarray) -> None:
        self.space = space
        self.count = 0
        self.low = first.copy()
        self.high = first.copy()
        self._first = first
        self._sum = np.zeros_like(first)
        self._squares = np.zeros_like(first)

    def add(self, value: np.ndarray) -> None:
        """Add one observation's numbers, float64 [numbers]."""
        difference = value - self._first  # else squares of large numbers would lose small differences
        self.count += 1
        np.minimum(self.low, value, out=self.low)
        np.maximum(self.high, value, out=self.high)
        self._sum += difference
        self._squares += difference * difference

    @property
    def spread(self) -> np.ndarray:
        """Standard deviations."""
        mean = self._sum / self.count
        return np.sqrt(np.maximum(0.0, self._squares / self.count - mean * mean))


class PlayRecord:
    """Everything that random play records."""

    def __init__(self) -> None:
        self.steps = 0
        self.statistics: dict[str, PartStatistics] = {}
        self.problems: dict[str, tuple[int, str]] = {}  # name of a finding -> (how often, evidence of the first time)
        self.episodes: list[EpisodeRecord] = []
        self.rewards: list[float] = []
        self.step_seconds: list[float] = []
        self.reset_seconds: list[float] = []
        self.info_sizes: list[int] = []  # bytes, of every tenth info
        self.resident: list[tuple[int, int]] = []  # (steps so far, bytes of memory of the process)
        self.shows_time = False  # whether a number of the observation goes up (or down) at every step
        self.printed = 0  # bytes

    def problem(self, name: str, evidence: str) -> None:
        """Count a problem; only the first evidence is kept."""
        count, first = self.problems.get(name, (0, evidence))
        self.problems[name] = (count + 1, first)

    def reward(self, reward: Any, location: str) -> float:
        """Record a reward and return it as a float; 0 where it is not finite, which is a problem."""
        value = real(reward)
        if not math.isfinite(value):
            self.problem("reward-nan", f"the reward is {value} {location}")
            return 0.0
        self.rewards.append(value)
        return value


def play(study: Study, world: CheckedWorld, record: PlayRecord) -> None:
    """Play random actions until the limit of steps or of time is reached; the results go into `record`."""
    actions = RandomActions(world.env.action_space, SEED)
    deadline = study.deadline(0.3)
    watch = ObservationWatch(world.env.observation_space, record)
    printed = study.printed()
    seed: int | None = SEED
    finished = True
    while record.steps < study.limits.steps and time.monotonic() < deadline:
        if finished:
            observation, info = world.reset(seed)
            seed = None  # later episodes continue the world's own generator
            record.reset_seconds.append(world.seconds)
            watch.begin(observation)
            age = 0
            total_reward = 0.0
        observation, reward, terminated, truncated, info = world.step(actions.draw(observation, info))
        record.steps += 1
        age += 1
        record.step_seconds.append(world.seconds)
        location = f"at step {age} of episode {len(record.episodes) + 1}"
        for name, problem in flag_and_reward_problems(reward, terminated, truncated):
            record.problem(name, f"{problem}, {location}")
        if "reward-not-number" not in record.problems:
            total_reward += record.reward(reward, location)
        watch.look(observation, location)
        if record.steps % 10 == 0:
            record.info_sizes.append(size_of(info))
        if record.steps % 50 == 0:
            record.resident.append((record.steps, memory_used()))
        finished = bool(terminated or truncated)
        if finished:
            record.episodes.append(EpisodeRecord(age, total_reward, bool(terminated), bool(truncated)))
    record.printed = study.printed() - printed


class ObservationWatch:
    """Examines every observation, part by part, and writes problems and statistics into the record."""

    def __init__(self, space: Space, record: PlayRecord) -> None:
        self._space = space
        self._record = record
        self._count = 0
        self._last: np.ndarray | None = None  # all numbers of the episode's observation before
        self._rising: np.ndarray | bool = True  # for each of them: whether it rose at every step so far
        self._falling: np.ndarray | bool = True

    def begin(self, observation: Any) -> None:
        """Examine the first observation of an episode."""
        self._last = None
        self.look(observation, f"in reset {len(self._record.episodes) + 1}")
        self._last = self._numbers(observation)

    def look(self, observation: Any, location: str) -> None:
        """Examine an observation; `location` says for messages when it was returned."""
        self._count += 1
        try:
            parts = list(leaves(self._space, observation))
        except (LookupError, TypeError) as error:
            self._record.problem("observation-form", f"the observation has no part {error} {location}")
            return
        for name, space, value in parts:
            self._look_at_part(name, space, value, location)
        self._look_for_clock(observation)

    def _look_at_part(self, name: str, space: Space, value: Any, location: str) -> None:
        """Check one part's form and values, and add its numbers to the statistics."""
        array = np.asarray(value)
        if array.dtype.kind not in "fiub" or isinstance(space, Text | Graph | Sequence):
            if not space.contains(value):
                self._record.problem("observation-outside", f"{name} is not in {space} {location}")
            return
        if array.shape != (space.shape or ()):
            shapes = f"{name} has the shape {list(array.shape)}, its space {list(space.shape or ())}"
            self._record.problem("observation-form", f"{shapes}, {location}")
            return
        self._check_values(name, space, array, location)
        if array.size > LARGE_SIZE and self._count % SAMPLED_STEPS:
            return
        numbers = array.astype(np.float64).reshape(-1)
        if np.isfinite(numbers).all():
            if name not in self._record.statistics:
                self._record.statistics[name] = PartStatistics(space, numbers)
            self._record.statistics[name].add(numbers)

    def _check_values(self, name: str, space: Space, array: np.ndarray, location: str) -> None:
        """Record the first non-finite number, or the first one outside the space; also a wrong dtype."""
        numbers = array.reshape(-1)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            index = np.flatnonzero(~np.isfinite(numbers))[0]
            self._record.problem("observation-nan", f"{name}[{index}] is {numbers[index]} {location}")
        elif isinstance(space, Box):
            if not np.can_cast(array.dtype, space.dtype):
                types = f"{name} is {array.dtype}, its space {space.dtype}"
                self._record.problem("observation-dtype", f"{types}, {location}")
            outside = np.flatnonzero((array < space.low) | (array > space.high))
            if outside.size:
                index = outside[0]
                bounds = f"{space.low.reshape(-1)[index]:.4g} to {space.high.reshape(-1)[index]:.4g}"
                evidence = f"{name}[{index}] is {numbers[index]:.6g}, outside {bounds}, {location}"
                self._record.problem("observation-outside", evidence)
        elif not space.contains(array if array.shape else array[()]):
            self._record.problem("observation-outside", f"{name} is {array}, outside {space}, {location}")

    def _numbers(self, observation: Any) -> np.ndarray | None:
        """Return all numbers of a small observation in one row; None for a large one or one with other values."""
        try:
            arrays = [np.asarray(value).reshape(-1) for _, _, value in leaves(self._space, observation)]
        except (LookupError, TypeError):
            return None
        small = sum(array.size for array in arrays) <= LARGE_SIZE
        if not arrays or not small or any(array.dtype.kind not in "fiub" for array in arrays):
            return None
        return np.concatenate([array.astype(np.float64) for array in arrays])

    def _look_for_clock(self, observation: Any) -> None:
        """Find numbers that go up (or down) at every step: they show the time that has passed."""
        numbers = self._numbers(observation)
        last = self._last
        if numbers is None or last is None or numbers.shape != last.shape:
            return
        self._rising = (numbers > last) & self._rising
        self._falling = (numbers < last) & self._falling
        self._record.shows_time = bool((self._rising | self._falling).any())
        self._last = numbers


def size_of(value: Any, depth: int = 0) -> int:
    """Return roughly how many bytes a copy of the value has."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict | list | tuple | set) and depth < MAX_DEPTH:
        parts = list(value.values() if isinstance(value, dict) else value)
        sample = parts[:MAX_PARTS]
        size = sum(size_of(component, depth + 1) for component in sample)
        return 16 + size * len(parts) // max(1, len(sample))
    return 8
