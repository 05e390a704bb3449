"""Wrappers that add rewards for learning only: potentials, and a bonus for new states.

Reported returns do not include these rewards. Potential-based shaping (Ng, Harada and Russell 1999) adds F = gamma *
Phi(s') - Phi(s), with Phi(terminal) = 0. It does not change which policy is the best.
"""

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from gymnasium import Env, Space, Wrapper
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.continuous_mountain_car import Continuous_MountainCarEnv
from gymnasium.envs.classic_control.mountain_car import MountainCarEnv
from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete, Tuple

from stride.envs_gym.answers import State
from stride.envs_gym.wrappers.base import MemoryWrapper, ResetAnswer, StepAnswer, check_world, require, require_positive

MAX_STATES = 1 << 24  # their counts need 128 MiB in each world
MountainCar = MountainCarEnv | Continuous_MountainCarEnv


class PotentialShaper(Wrapper, ABC):
    """Adds scale * (gamma * Phi(s') - Phi(s)); `gamma` must be the discount that the agent learns with."""

    world_class: Any = Env  # the class of environments that `potential` can read
    world_name = ""  # its name in messages

    def __init__(self, env: Env, gamma: float, scale: float = 1.0) -> None:
        super().__init__(env)
        check_world(type(self).__name__, env, self.world_class, self.world_name)
        require(0 <= gamma <= 1, f"{type(self).__name__}: gamma must be in [0, 1], not {gamma}")
        self.gamma = gamma
        self.scale = scale
        self._world: Any = env.unwrapped
        self._potential = 0.0

    @abstractmethod
    def potential(self) -> float:
        """Return Phi of the world's present state. Near states that terminate it should be near 0."""

    def reset(self, **kwargs: Any) -> ResetAnswer:
        reset_result = self.env.reset(**kwargs)
        self._potential = self.potential()
        return reset_result

    def step(self, action: object) -> StepAnswer:
        observation, reward, terminated, truncated, info = self.env.step(action)
        previous = self._potential
        self._potential = 0.0 if terminated else self.potential()
        shaped = float(reward) + self.scale * (self.gamma * self._potential - previous)
        return observation, shaped, terminated, truncated, info


class CartPoleShaper(PotentialShaper):
    """Phi from 1 (upright in the middle) to 0 (where an episode ends, by angle or by position)."""

    world_class = CartPoleEnv
    world_name = "CartPole"

    def potential(self) -> float:
        x, _, theta, _ = self._world.state
        distance = max(abs(x) / self._world.x_threshold, abs(theta) / self._world.theta_threshold_radians)
        return 1.0 - min(float(distance), 1.0)


class MountainCarShaper(PotentialShaper):
    """Phi from -1 (at rest in the valley) to 0 (at least the energy needed to reach the flag)."""

    GRAVITY = 0.0025  # dv = force - GRAVITY * cos(3 x), hence the potential energy below
    world_class = MountainCar
    world_name = "MountainCar"

    def potential(self) -> float:
        position, velocity = self._world.state
        lowest = -self.GRAVITY / 3
        enough = self.GRAVITY / 3 * np.sin(3 * self._world.goal_position)
        energy = velocity**2 / 2 + self.GRAVITY / 3 * np.sin(3 * position)
        return min(float((energy - enough) / (enough - lowest)), 0.0)


class CountBonus(MemoryWrapper):
    """Adds scale / sqrt(visits) of the next state, this visit included.

    States are discrete observations before other wrappers encode them: one number, or several in a fixed order. Each
    environment counts its own visits, over all its episodes.
    """

    def __init__(self, env: Env, scale: float = 1.0) -> None:
        super().__init__(env)
        self.scale = scale
        starts, sizes = zip(*self.axes(env), strict=True)
        number = math.prod(sizes)
        require(number <= MAX_STATES, f"{type(self).__name__} counts at most {MAX_STATES:,} states, not {number:,}")
        self._starts = starts
        self.visits = np.zeros(sizes, np.int64)

    def axes(self, env: Env) -> list[tuple[int, int]]:
        """Return (least value, number of values) of each number of a state."""
        axes = axes_of(env.observation_space)
        require(bool(axes), f"{type(self).__name__} needs a discrete observation, not {env.observation_space}")
        return axes

    def state(self, observation: Any) -> tuple[int, ...]:
        """Return the indices into `visits` of an observed state."""
        numbers = np.hstack(observation).tolist() if isinstance(observation, tuple) else np.ravel(observation).tolist()
        return tuple(int(number) - start for number, start in zip(numbers, self._starts, strict=True))

    def reset(self, **kwargs: Any) -> ResetAnswer:
        if kwargs.get("seed") is not None:
            self.visits.fill(0)
        return self.env.reset(**kwargs)

    def step(self, action: object) -> StepAnswer:
        observation, reward, terminated, truncated, info = self.env.step(action)
        state = self.state(observation)
        self.visits[state] += 1
        bonus = self.scale / float(self.visits[state]) ** 0.5
        return observation, float(reward) + bonus, terminated, truncated, info

    def state_dict(self) -> State:
        return {"visits": torch.from_numpy(self.visits.copy())}

    def load_state_dict(self, state: State) -> None:
        self.visits[:] = state["visits"].numpy()


class MountainCarCountBonus(CountBonus):
    """CountBonus for MountainCar: its states are `bins` x `bins` cells of positions and velocities."""

    def __init__(self, env: Env, bins: int = 20, scale: float = 1.0) -> None:
        check_world("MountainCarCountBonus", env, MountainCar, "MountainCar")
        require_positive("MountainCarCountBonus: bins", bins)
        self.bins = bins
        super().__init__(env, scale)
        world: Any = env.unwrapped
        self._world = world
        self._low = np.array([world.min_position, -world.max_speed])
        self._width = (np.array([world.max_position, world.max_speed]) - self._low) / bins

    def axes(self, env: Env) -> list[tuple[int, int]]:
        return [(0, self.bins)] * 2

    def state(self, observation: object) -> tuple[int, ...]:
        cell = ((np.asarray(self._world.state, np.float64) - self._low) / self._width).astype(np.int64)
        return tuple(np.clip(cell, 0, self.bins - 1).tolist())


def axes_of(space: Space) -> list[tuple[int, int]]:
    """Return (least value, number of values) of each number of a discrete observation; [] for other spaces."""
    if isinstance(space, Discrete):
        return [(int(space.start), int(space.n))]
    if isinstance(space, MultiDiscrete):
        return [*zip(np.ravel(space.start).tolist(), np.ravel(space.nvec).tolist(), strict=True)]
    if isinstance(space, MultiBinary):
        return [(0, 2)] * math.prod(space.shape)
    if isinstance(space, Tuple):
        parts = [axes_of(part) for part in space.spaces]
        return [axis for part in parts for axis in part] if all(parts) else []
    return []
