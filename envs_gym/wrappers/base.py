"""Base classes of Stride's wrappers, and checks of their arguments.

A wrapper is around one world. It must take all its random numbers from that world's `np_random`: only then does a
replay of an episode's actions, after a resume, repeat the episode exactly.
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

MAX_OBSERVATION_BYTES = 1 << 28  # a colour picture of about 9,000 x 9,000 pixels
ResetAnswer = tuple[Any, Info]  # (observation, info)
StepAnswer = tuple[Any, Any, bool, bool, Info]  # (observation, reward, terminated, truncated, info)


class RawReward(Wrapper):
    """The innermost wrapper: it adds up the environment's own rewards, before other wrappers change them."""

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
        """Return the sum of rewards since the last call: of one frame, or of all frames of a FrameSkip."""
        total_reward = self._uncollected
        self._uncollected = 0.0
        return total_reward


class MemoryWrapper(Wrapper, ABC):
    """Base class of wrappers that remember something across episodes.

    A reset with a seed must clear the memory, a reset without one must keep it. A checkpoint has the memory from before
    the running episode; a replay of that episode restores the rest. Wrappers that every reset clears need no memory.
    """

    @abstractmethod
    def state_dict(self) -> State:
        """Return a copy of the memory as plain data and tensors."""

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """Restore a copy that `state_dict` returned."""


def layers(env: Env) -> Iterator[Env]:
    """Yield all wrappers of an environment, outermost first, then the environment inside."""
    while isinstance(env, Wrapper):
        yield env
        env = env.env
    yield env


def require(holds: bool, problem: str) -> None:
    """UserError with the text `problem` unless `holds`."""
    if not holds:
        raise UserError(problem)


def require_discrete_actions(env: Env, name: str) -> int:
    """Return the number of discrete actions; UserError for other actions, or numbers that do not start at 0."""
    space = env.action_space
    if not isinstance(space, Discrete) or int(space.start) != 0:
        raise UserError(f"{name} needs discrete actions that start at 0, not {space}")
    return int(space.n)


def require_positive(label: str, value: object) -> None:
    """UserError for anything but a whole number of at least 1."""
    require(isinstance(value, int) and value >= 1, f"{label} must be at least 1, not {value}")


def env_name(env: Env) -> str:
    """Return the id of the environment inside (its class if it has none), for a message."""
    env_spec = env.unwrapped.spec
    return env_spec.id if env_spec is not None else type(env.unwrapped).__name__


def check_world(name: str, env: Env, world_class: Any, world_name: str) -> None:
    """UserError unless the environment inside is a `world_class`; `name`, `world_name`: for the message."""
    require(isinstance(env.unwrapped, world_class), f"{name} needs {world_name}, not {env_name(env)}")


def check_observation(name: str, shape: Sequence[int], dtype: np.dtype) -> None:
    """UserError where a wrapper's observation would be too large; call it before an array of that size is made."""
    size = math.prod(int(side) for side in shape) * dtype.itemsize
    if size > MAX_OBSERVATION_BYTES:
        raise UserError(
            f"{name}: an observation of {size:,} bytes is above the limit of {MAX_OBSERVATION_BYTES:,} bytes"
        )
