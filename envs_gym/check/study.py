"""Objects that the parts of check-env share: the environment to check, the limits, and earlier measurements."""

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import Env, Space
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Dict, Discrete, Tuple

from stride.config.schema import Config
from stride.envs_gym.blame import ARGUMENT_ERRORS, Blame, EnvError, Importing, creator_of, missing
from stride.envs_gym.check.finding import Measurements
from stride.envs_gym.check.world import CheckedWorld, Pulse, calling
from stride.envs_gym.make import env_errors, find_spec, import_module
from stride.envs_gym.own_code import import_own_modules
from stride.envs_gym.spaces import MASK
from stride.utils.own_modules import import_named
from stride.utils.user_error import UserError, nearest

OVERHEAD_SECONDS = 50e-6  # time that the check itself needs for a step


class Subject(NamedTuple):
    """The environment to check: a registered id, or a class or function that is not registered."""

    name: str  # as the user wrote it
    spec: EnvSpec | None  # None for a class or function that is not registered
    creator: Callable[..., Any]
    kwargs: Mapping[str, Any]

    def bare(self) -> Any:
        """Return the object that the environment's own code makes, without Gymnasium's wrappers; it may be anything."""
        registered = self.spec.kwargs if self.spec is not None else {}
        with self._errors():
            return self.creator(**{**registered, **self.kwargs})

    def make(self, **more: Any) -> Env:
        """Make an environment as a training does, with its declared time limit; `more`: further arguments."""
        with self._errors():
            if self.spec is None:
                env: Env = self.creator(**self.kwargs, **more)
                return env
            return gymnasium.make(self.name, disable_env_checker=True, **{**self.kwargs, **more})

    @contextmanager
    def _errors(self) -> Iterator[None]:
        if self.spec is not None:
            with env_errors(Config(env_id=self.name, env_kwargs=dict(self.kwargs))):
                yield
            return
        try:
            with Blame(self.name, doing="__init__"):
                yield
        except EnvError as error:
            if isinstance(error.__cause__, ARGUMENT_ERRORS) and self.kwargs:
                raise UserError(f"{self.name} refuses {dict(self.kwargs)}: {error.reason}") from error
            raise

    @property
    def made_by(self) -> str:
        """`module:Name` of the environment's class or function."""
        if self.spec is not None and isinstance(self.spec.entry_point, str):
            return self.spec.entry_point
        return f"{self.creator.__module__}:{self.creator.__qualname__}"


def find_subject(name: str, kwargs: Mapping[str, Any]) -> Subject:
    """Find `ID`, `module:ID` or `module:Class`; UserError for an unknown name, EnvError for a module that raises."""
    import_own_modules()
    module_name, _, local_name = name.rpartition(":")
    if module_name and local_name not in gymnasium.registry:
        attributes = _module_attributes(name, module_name)
        if local_name not in gymnasium.registry:
            if callable(attributes.get(local_name)):
                return Subject(name, None, attributes[local_name], kwargs)
            classes = [key for key, value in attributes.items() if _is_user_env(value)]
            hint = nearest(local_name, [*classes, *gymnasium.registry])
            if not hint and classes:
                hint = f"; it has {', '.join(classes[:3])}"
            problem = f"{module_name} does not register {local_name!r} and has no class or function of that name"
            raise UserError(problem + hint)
    env_spec = find_spec(name)
    if env_spec.entry_point is None:
        raise UserError(f"{name} makes only vector environments; check-env needs a single environment")
    return Subject(name, env_spec, creator_of(env_spec.entry_point), kwargs)


def _module_attributes(name: str, module_name: str) -> dict[str, Any]:
    """Import a module, which registers its ids, and return everything in it by name."""
    if module_name == "ale_py":
        import_module(name)
    try:
        with Importing(module_name):
            return vars(import_named(module_name))
    except EnvError as error:
        if missing(error, module_name):
            raise UserError(f"{name}: there is no Python module {module_name!r}") from error
        raise


def _is_user_env(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Env) and value.__module__.split(".")[0] != "gymnasium"


class CheckLimits(NamedTuple):
    """The limits of a check."""

    steps: int = 5000  # of random play
    seconds: float = 15.0  # of the whole check; each part gets a fraction of it


class StopError(Exception):
    """A finding makes all further checks useless; the text says why."""


@dataclass
class Study:
    """A running check: what its parts share."""

    subject: Subject
    limits: CheckLimits
    pulse: Pulse
    echo: Callable[[], float] | None  # returns the seconds of a call to another process and back
    printed: Callable[[], int]  # returns the bytes printed so far
    repeats = False  # whether the same seed and actions had the same results; repeat.py sets it

    def __post_init__(self) -> None:
        self.measurements = Measurements(made_by=self.subject.made_by)

    @property
    def nondeterministic(self) -> bool:
        """Whether the environment is registered as nondeterministic: a seed does not decide everything."""
        return self.subject.spec is not None and self.subject.spec.nondeterministic

    @contextmanager
    def world(self, **more: Any) -> Iterator[CheckedWorld]:
        """Make a new world and close it at the end; errors of closing are ignored, as outside.py checks for them."""
        with self.calling("__init__"):
            env = self.subject.make(**more)
        world = CheckedWorld(env, self.subject.name, self.pulse)
        try:
            yield world
        finally:
            with suppress(EnvError):
                world.close()

    def calling(self, verb: str) -> AbstractContextManager[None]:
        """Return a context manager for user code that is called directly, not through a CheckedWorld."""
        return calling(self.pulse, verb)

    def deadline(self, fraction: float) -> float:
        """Return the time on the monotonic clock at which a part with this fraction of all time must end."""
        return time.monotonic() + fraction * self.limits.seconds

    def affordable_steps(self, fraction: float, episodes: int, most: int, slowdown: float = 1.0) -> int:
        """Return how many steps each of `episodes` episodes may have in this fraction of all time, at most `most`.

        0 or less where resets alone take longer. `slowdown`: time of a step here / in random play.
        """
        step_seconds = 1e-6 * (self.measurements.step_us or 0.0)
        reset_seconds = 1e-6 * (self.measurements.reset_us or 0.0)
        seconds = fraction * self.limits.seconds / episodes - slowdown * reset_seconds
        return min(most, int(seconds / (slowdown * step_seconds + OVERHEAD_SECONDS)))


class RandomActions:
    """Draws actions from a copy of the action space, so that the world's own generators are not touched."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = copy.deepcopy(space)
        self._space.seed(seed)

    def draw(self, obs: Any, info: Any) -> Any:
        """Return a random action; a legal one where the observation or the info has a mask."""
        mask = mask_of(obs, info)
        if mask is not None and isinstance(self._space, Discrete):
            return self._space.sample(np.asarray(mask, np.int8))
        return self._space.sample()


def mask_of(obs: Any, info: Any) -> Any:
    """Return the mask of legal discrete actions from the observation or the info; None where there is none."""
    for source in (obs, info):
        if isinstance(source, dict) and MASK in source:
            return source[MASK]
    return None


def leaves(space: Space, value: Any, name: str = "observation") -> Iterator[tuple[str, Space, Any]]:
    """Yield (name, space, value) of every part; KeyError, IndexError or TypeError where the value lacks a part."""
    if isinstance(space, Dict | Tuple):
        for key, component in space.items() if isinstance(space, Dict) else enumerate(space.spaces):
            yield from leaves(component, value[key], f"{name}.{key}")
    else:
        yield name, space, value
