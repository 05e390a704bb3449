"""The base of this folder's wrappers: the raw reward below them, memory across episodes, checks of arguments.

A wrapper is around one world, and everything it draws comes from that world's own `np_random`, so that replaying
an episode's actions after a restart repeats what it did.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import Env, Wrapper
from gymnasium.spaces import Discrete

from stride.envs_gym.answers import Info as Info
from stride.envs_gym.answers import State as State
from stride.envs_gym.answers import real
from stride.utils.user_error import UserError

LARGEST = 1 << 28  # bytes of one observation: a picture of 9,000 x 9,000 in colour
ResetAnswer = tuple[Any, Info]
StepAnswer = tuple[Any, Any, bool, bool, Info]


class RawReward(Wrapper):
    """Directly around the environment: adds up its rewards, before other wrappers change them."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._uncollected = 0.0

    def reset(self, **kwargs: Any) -> ResetAnswer:
        self._uncollected = 0.0
        return self.env.reset(**kwargs)

    def step(self, action: object) -> StepAnswer:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._uncollected += real(reward)
        return observation, reward, terminated, truncated, info

    def collect(self) -> float:
        """Everything paid since the last call: one frame's reward, or that of all skipped ones."""
        total_reward = self._uncollected
        self._uncollected = 0.0
        return total_reward


class MemoryWrapper(Wrapper, ABC):
    """A wrapper that remembers something across episodes. A seeded reset must forget it, a plain one must not.

    A checkpoint keeps what it remembered before the running episode; replaying that episode brings back the rest.
    Wrappers that a plain reset clears need none of this.
    """

    @abstractmethod
    def state_dict(self) -> State:
        """A copy of the memory as plain data and tensors."""

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """Take such a copy back."""


def layers(env: Env) -> Iterator[Env]:
    """The environment and all it wraps, outermost first."""
    while isinstance(env, Wrapper):
        yield env
        env = env.env
    yield env


def require(holds: bool, problem: str) -> None:
    """UserError with the problem unless it holds."""
    if not holds:
        raise UserError(problem)


def require_discrete_actions(env: Env, name: str) -> int:
    """How many discrete actions there are; they have to count from 0."""
    space = env.action_space
    if not isinstance(space, Discrete) or int(space.start) != 0:
        raise UserError(f"{name} needs discrete actions that start at 0, not {space}")
    return int(space.n)


def require_positive(label: str, value: object) -> None:
    """UserError for anything but a whole number from 1 on."""
    require(isinstance(value, int) and value >= 1, f"{label} must be at least 1, not {value}")


def env_name(env: Env) -> str:
    """The id of the environment inside, for a message."""
    env_spec = env.unwrapped.spec
    return env_spec.id if env_spec is not None else type(env.unwrapped).__name__


def check_world(name: str, env: Env, world_class: Any, world_name: str) -> None:
    """UserError where the environment inside is of another class than the wrapper needs."""
    require(isinstance(env.unwrapped, world_class), f"{name} needs {world_name}, not {env_name(env)}")


def check_observation(name: str, shape: Sequence[int], dtype: np.dtype) -> None:
    """UserError where an observation of a wrapper would be too large; called before an array of that size is made."""
    size = math.prod(int(side) for side in shape) * dtype.itemsize
    if size > LARGEST:
        raise UserError(f"{name}: an observation of {size:,} bytes is above the limit of {LARGEST:,} bytes")
