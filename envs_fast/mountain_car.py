"""MountainCar-v0: an engine too weak for the hill has to swing a car up to the flag (Moore 1990).

Physics of Gymnasium's MountainCarEnv in float64; observations float32.
"""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from stride.envs_fast.arguments import number
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.world import (
    NO_LIMIT,
    NUMBA,
    Episode,
    Moment,
    Setting,
    Tables,
    World,
    between,
    draw,
    plain_gym_state,
)
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import cos

MIN_POSITION, MAX_POSITION, MAX_SPEED, GOAL = -1.2, 0.6, 0.07, 0.5
FORCE, GRAVITY = 0.001, 0.0025
RESET_LOW, RESET_HIGH = -0.6, -0.4
ROWS, WIDTH = 2, 2  # numbers in a state; numbers in an observation

State = tuple[float, float]


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide."""

    goal_velocity: float
    time_limit: int = NO_LIMIT


@njit(inline="always")
def step(
    state: State, action: int, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """Play one step; the episode ends when the car reaches the flag fast enough."""
    position, velocity = state
    velocity = velocity + (np.float64(np.int32(action) - np.int32(1)) * FORCE + cos(3.0 * position) * (-GRAVITY))
    velocity = min(max(velocity, -MAX_SPEED), MAX_SPEED)
    position = min(max(position + velocity, MIN_POSITION), MAX_POSITION)
    velocity = 0.0 if (position == MIN_POSITION) & (velocity < 0.0) else velocity
    return (position, velocity), -1.0, (position >= GOAL) & (velocity >= parameters.goal_velocity)


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> State:
    """Draw the first state of an episode: somewhere in the valley, at rest."""
    return between(draw(0, episode)[0], RESET_LOW, RESET_HIGH), 0.0


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> State:
    """Return the observation: the complete state."""
    return state


def setting(goal_velocity: float = 0.0) -> Setting:
    """`goal_velocity`: how fast the car has to be at the flag."""
    high = np.array([MAX_POSITION, MAX_SPEED], np.float32)
    low = np.array([MIN_POSITION, -MAX_SPEED], np.float32)
    goal = Parameters(number("goal_velocity", goal_velocity))
    return Setting(Box(low, high, dtype=np.float32), Discrete(3), parameters=goal)


WORLD = World(
    setting=setting,
    kernels={NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH)},
    state_size=ROWS,
    gym_state=plain_gym_state,
    env_id="MountainCar-v0",
    time_limit=200,
    reward_threshold=-110.0,
)
