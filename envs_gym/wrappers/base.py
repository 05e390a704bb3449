"""What the wrappers of this folder build on: the raw reward kept below them, memory across episodes, doors for values.

A wrapper stands around one world, and everything it draws comes from that world's own `np_random`, so that replaying
an episode's actions after a restart repeats what it did.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import gymnasium

from stride.envs_gym.answers import real
from stride.utils.user_error import UserError


class RawReward(gymnasium.Wrapper):
    """Stands right around the environment and adds up what that pays, whatever the wrappers above make of it."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._owed = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[Any, dict[str, Any]]:
        self._owed = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: object) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._owed += real(reward)
        return obs, reward, terminated, truncated, info

    def collect(self) -> float:
        """Everything paid since the last call: one frame's reward, or that of all skipped ones."""
        paid, self._owed = self._owed, 0.0
        return paid


class Remembering(gymnasium.Wrapper, ABC):
    """A wrapper that remembers something across episodes. A seeded reset must forget it, a plain one must not.

    A checkpoint keeps what it remembered before the running episode; replaying that episode brings back the rest.
    Wrappers that a plain reset clears need none of this.
    """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """A copy of the memory as plain data and tensors."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, object]) -> None:
        """Take such a copy back."""


def layers(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    """The environment and all it wraps, outermost first."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def require(holds: bool, problem: str) -> None:
    """UserError with the problem unless it holds."""
    if not holds:
        raise UserError(problem)


def require_discrete_actions(env: gymnasium.Env, name: str) -> int:
    """How many discrete actions there are; they have to count from 0."""
    space = env.action_space
    if not isinstance(space, gymnasium.spaces.Discrete) or int(space.start) != 0:
        raise UserError(f"{name} needs discrete actions from 0 on, not {space}")
    return int(space.n)


def env_name(env: gymnasium.Env) -> str:
    """The id of the environment inside, for a message."""
    spec = env.unwrapped.spec
    return spec.id if spec is not None else type(env.unwrapped).__name__
