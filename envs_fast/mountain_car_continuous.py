"""MountainCarContinuous-v0: MountainCar with an engine that can be throttled and has to be used sparingly.

Gymnasium's Continuous_MountainCarEnv keeps its state in float32, except the first of an episode; so does this, in
float64 arrays that hold float32 values. Every rounding of its mixed arithmetic is repeated. An action beyond the bounds
moves the car like the bound, but Gymnasium charges for all of it: so does this behind Gymnasium's and SB3's face. To a
policy the bound is what it did (vec_env.py), and what it is charged for, with Gymnasium's worlds as with these.
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
ROWS, WIDTH = 2, 2  # numbers of a state and of what is seen of it

State = tuple[float, float]


class Parameters(NamedTuple):
    """The numbers that the arguments decide."""

    goal_velocity: float
    largest_charge: float  # the size up to which an action is charged
    time_limit: int = NO_LIMIT


@njit(inline="always")
def single(x: float) -> float:
    """The nearest float32, as a float64."""
    return np.float64(np.float32(x))


@njit(forceinline=True, fastmath=False)
def gain(reached: bool, effort: float) -> float:
    """Without "nsz", under which some processors would pay -0.0 where nothing happens."""
    return (REWARD if reached else 0.0) - effort * effort * COST


@njit(inline="always")
def step(
    state: State, action: np.float32, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """One step, to float32 values; it ends where the flag is reached."""
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
    """The first state of an episode: somewhere in the valley, at rest."""
    return between(draw(0, episode)[0], RESET_LOW, RESET_HIGH), 0.0


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> State:
    """The observation of a state: all of it."""
    return state


def setting(goal_velocity: float = 0.0) -> Setting:
    """`goal_velocity`: how fast the car has to be at the flag."""
    high, low = np.array([MAX_POSITION, MAX_SPEED], F), np.array([MIN_POSITION, -MAX_SPEED], F)
    box, goal = Box(-1.0, 1.0, (1,), F), float(F(number("goal_velocity", goal_velocity)))
    ours, gymnasiums = Parameters(goal, 1.0), Parameters(goal, math.inf)
    return Setting(Box(low, high, dtype=F), box, box, parameters=ours, gym_parameters=gymnasiums)


def gym_state(column: np.ndarray) -> dict[str, Any]:
    """The attributes with which Gymnasium's environment draws this state."""
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
