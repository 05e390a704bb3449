"""Random play, and what is written down of it: numbers only, so that hours of it would take no more room."""

import math
import time
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from stride.envs_gym.answers import real
from stride.envs_gym.check.form import flags_and_reward
from stride.envs_gym.check.study import Actor, Study, leaves
from stride.envs_gym.check.world import World
from stride.utils.resources import memory_used

SEED = 101
LARGE = 2048  # numbers of a part from which on only each EACH-th observation is looked at
EACH = 8
DEEPEST, MOST_PARTS = 6, 2000  # of an info's parts that are counted


class Episode(NamedTuple):
    """One that ended."""

    length: int
    total: float
    terminated: bool
    truncated: bool


class Moments:
    """Of one part of the observation, element by element: least, most, mean and spread."""

    def __init__(self, space: gymnasium.Space[Any], first: np.ndarray) -> None:
        self.space, self.count = space, 0
        self.first = first
        self.low, self.high = first.copy(), first.copy()
        self._sum, self._squares = np.zeros_like(first), np.zeros_like(first)

    def add(self, value: np.ndarray) -> None:
        apart = value - self.first  # so that squares of large numbers keep their small differences
        self.count += 1
        np.minimum(self.low, value, out=self.low)
        np.maximum(self.high, value, out=self.high)
        self._sum += apart
        self._squares += apart * apart

    @property
    def spread(self) -> np.ndarray:
        """Standard deviations."""
        mean = self._sum / self.count
        return np.sqrt(np.maximum(0.0, self._squares / self.count - mean * mean))


class Record:
    """What random play gave; `problems` holds of each kind how often it was seen, and the first of it."""

    def __init__(self) -> None:
        self.steps = 0
        self.moments: dict[str, Moments] = {}
        self.problems: dict[str, tuple[int, str]] = {}
        self.episodes: list[Episode] = []
        self.rewards: list[float] = []
        self.step_seconds: list[float] = []
        self.reset_seconds: list[float] = []
        self.info_sizes: list[int] = []
        self.resident: list[tuple[int, int]] = []  # (steps, bytes)
        self.age_seen = False  # some part of the observation goes up or down with every step
        self.printed = 0

    def problem(self, name: str, seen: str) -> None:
        count, first = self.problems.get(name, (0, seen))
        self.problems[name] = count + 1, first


def play(study: Study, world: World, record: Record) -> None:
    """Until the limits are reached."""
    actor, until = Actor(world.env.action_space, SEED), study.until(0.3)
    look = Look(world.env.observation_space, record)
    printed = study.printed()
    obs, info, age, total = *world.reset(SEED), 0, 0.0
    record.reset_seconds.append(world.seconds)
    look.begin(obs)
    while record.steps < study.limits.steps and time.monotonic() < until:
        obs, reward, terminated, truncated, info = world.step(actor.draw(obs, info))
        record.steps, age = record.steps + 1, age + 1
        record.step_seconds.append(world.seconds)
        where = f"at step {age} of episode {len(record.episodes) + 1}"
        for each in flags_and_reward(reward, terminated, truncated):
            record.problem(each.name, f"{each.seen}, {where}")
        if "reward-not-number" not in record.problems:
            total += _paid(record, reward, where)
        look.at(obs, where)
        if record.steps % 10 == 0:
            record.info_sizes.append(size_of(info))
        if record.steps % 50 == 0:
            record.resident.append((record.steps, memory_used()))
        if terminated or truncated:
            record.episodes.append(Episode(age, total, bool(terminated), bool(truncated)))
            obs, info, age, total = *world.reset(), 0, 0.0
            record.reset_seconds.append(world.seconds)
            look.begin(obs)
    record.printed = study.printed() - printed


def _paid(record: Record, reward: Any, where: str) -> float:
    value = real(reward)
    if not math.isfinite(value):
        record.problem("reward-nan", f"the reward is {value} {where}")
        return 0.0
    record.rewards.append(value)
    return value


class Look:
    """At observations, part by part."""

    def __init__(self, space: gymnasium.Space[Any], record: Record) -> None:
        self._space, self._record = space, record
        self._seen = 0
        self._numbers: np.ndarray | None = None  # the last observation's, of an episode
        self._up: np.ndarray | bool = True  # which of them went up at every step so far
        self._down: np.ndarray | bool = True

    def begin(self, obs: Any) -> None:
        """The first of an episode."""
        self._numbers = None
        self.at(obs, f"in reset {len(self._record.episodes) + 1}")
        self._numbers = self._small(obs)

    def at(self, obs: Any, where: str) -> None:
        self._seen += 1
        try:
            parts = [*leaves(self._space, obs)]
        except (LookupError, TypeError) as error:
            self._record.problem("observation-form", f"the observation has no part {error} {where}")
            return
        for name, space, value in parts:
            self._part(name, space, value, where)
        self._age(obs)

    def _part(self, name: str, space: gymnasium.Space[Any], value: Any, where: str) -> None:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub" or isinstance(space, spaces.Text | spaces.Graph | spaces.Sequence):
            if not space.contains(value):
                self._record.problem("observation-outside", f"{name} is none of {space} {where}")
            return
        if array.shape != (space.shape or ()):
            seen = f"{name} has the shape {list(array.shape)}, its space {list(space.shape or ())}, {where}"
            self._record.problem("observation-form", seen)
            return
        self._inside(name, space, array, where)
        if array.size > LARGE and self._seen % EACH:
            return
        numbers = array.astype(np.float64).reshape(-1)
        if np.isfinite(numbers).all():
            if name not in self._record.moments:
                self._record.moments[name] = Moments(space, numbers)
            self._record.moments[name].add(numbers)

    def _inside(self, name: str, space: gymnasium.Space[Any], array: np.ndarray, where: str) -> None:
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            place = np.flatnonzero(~np.isfinite(array).reshape(-1))[0]
            self._record.problem("observation-nan", f"{name}[{place}] is {array.reshape(-1)[place]} {where}")
            return
        if isinstance(space, spaces.Box):
            if not np.can_cast(array.dtype, space.dtype):
                self._record.problem("observation-dtype", f"{name} is {array.dtype}, its space {space.dtype}, {where}")
            outside = np.flatnonzero(((array < space.low) | (array > space.high)).reshape(-1))
            if outside.size:
                place = outside[0]
                bounds = f"{space.low.reshape(-1)[place]:.4g} to {space.high.reshape(-1)[place]:.4g}"
                seen = f"{name}[{place}] is {array.reshape(-1)[place]:.6g}, outside {bounds}, {where}"
                self._record.problem("observation-outside", seen)
        elif not space.contains(array if array.shape else array[()]):
            self._record.problem("observation-outside", f"{name} is {array}, outside {space}, {where}")

    def _small(self, obs: Any) -> np.ndarray | None:
        """Its numbers in one row, None where it is large or no numbers."""
        try:
            arrays = [np.asarray(value) for _, _, value in leaves(self._space, obs)]
        except (LookupError, TypeError):
            return None
        if sum(array.size for array in arrays) > LARGE or any(array.dtype.kind not in "fiub" for array in arrays):
            return None
        return np.concatenate([array.reshape(-1).astype(np.float64) for array in arrays]) if arrays else None

    def _age(self, obs: Any) -> None:
        """A clock that one can see goes one way at each step of an episode."""
        now, before = self._small(obs), self._numbers
        if now is None or before is None or now.shape != before.shape:
            return
        self._up, self._down = (now > before) & self._up, (now < before) & self._down
        self._record.age_seen = bool((self._up | self._down).any())
        self._numbers = now


def size_of(value: Any, depth: int = 0) -> int:
    """About how many bytes copying it moves."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict | list | tuple | set) and depth < DEEPEST:
        parts = [*value.values()] if isinstance(value, dict) else [*value]
        some = parts[:MOST_PARTS]
        return 16 + (sum(size_of(part, depth + 1) for part in some) * len(parts) // len(some) if some else 0)
    return 8
