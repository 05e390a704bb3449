"""MountainCarContinuous-v0: MountainCar with an engine that can be throttled and has to be used sparingly.

Gymnasium's Continuous_MountainCarEnv keeps its state in float32, except the first one of an episode. So does this, in
float64 arrays that hold float32 values, and it repeats each rounding of Gymnasium's mixed arithmetic.
An action outside the bounds moves the car like the bound, but Gymnasium's cost is that of the whole action. It is the
same here for users of gym_face.py and sb3.py. In Stride's own trainings the action is clipped first (vec_env.py), so
its cost is that of the bound, both here and with Gymnasium's environment.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from stride.envs_fast.arguments import number
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.world import NO_LIMIT, NUMBA, Episode, Moment, Setting, Tables, World, between, draw
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import cos

F = np.float32
MIN_POSITION, MAX_POSITION, MAX_SPEED, GOAL = float(F(-1.2)), float(F(0.6)), float(F(0.07)), float(F(0.45))
POWER, GRAVITY = float(F(0.0015)), 0.0025
REWARD, COST = 100.0, 0.1
RESET_LOW, RESET_HIGH = -0.6, -0.4
ROWS, WIDTH = 2, 2  # numbers in a state; numbers in an observation

State = tuple[float, float]


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide."""

    goal_velocity: float
    largest_charge: float  # the cost of a larger action is that of one of this size
    time_limit: int = NO_LIMIT


@njit(inline="always")
def single(x: float) -> float:
    """Round to float32, return a float64."""
    return np.float64(np.float32(x))


@njit(forceinline=True, fastmath=False)
def gain(reached: bool, effort: float) -> float:
    """Return the reward. Compiled without the fastmath flag "nsz", with which some processors return -0.0 for 0."""
    return (REWARD if reached else 0.0) - effort * effort * COST


@njit(inline="always")
def step(
    state: State, action: np.float32, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """Play one step, rounded to float32; the episode ends when the car reaches the flag fast enough."""
    position, velocity = state
    force = np.float64(min(max(action, np.float32(-1.0)), np.float32(1.0)))
    angle = 3.0 * position if moment.age == 0 else single(3.0 * position)
    velocity = single(velocity + single(single(force * POWER) - single(GRAVITY * cos(angle))))
    velocity = min(max(velocity, -MAX_SPEED), MAX_SPEED)
    position = single(min(max(position + velocity, MIN_POSITION), MAX_POSITION))
    velocity = 0.0 if (position == MIN_POSITION) & (velocity < 0.0) else velocity
    reached = (position >= GOAL) & (velocity >= parameters.goal_velocity)
    effort = min(max(np.float64(action), -parameters.largest_charge), parameters.largest_charge)
    return (position, velocity), gain(reached, effort), reached


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
    high, low = np.array([MAX_POSITION, MAX_SPEED], F), np.array([MIN_POSITION, -MAX_SPEED], F)
    box, goal = Box(-1.0, 1.0, (1,), F), float(F(number("goal_velocity", goal_velocity)))
    ours, gymnasiums = Parameters(goal, 1.0), Parameters(goal, math.inf)
    return Setting(Box(low, high, dtype=F), box, box, parameters=ours, gym_parameters=gymnasiums)


def gym_state(column: np.ndarray) -> dict[str, Any]:
    """Return the attributes that set this state in Gymnasium's environment."""
    return {"state": column.astype(F)}


WORLD = World(
    setting=setting,
    kernels={NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH)},
    state_size=ROWS,
    gym_state=gym_state,
    env_id="MountainCarContinuous-v0",
    time_limit=999,
    reward_threshold=90.0,
)
