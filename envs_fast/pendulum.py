"""Pendulum-v1: swing a pendulum up with a motor too weak to lift it, and hold it there.

Physics of Gymnasium's PendulumEnv in float64, with the float32 arithmetic it does on the action; observations float32.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from stride.envs_fast.arguments import number
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.world import NO_LIMIT, NUMBA, Episode, Moment, Setting, Tables, World, between, draw
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import round_down, sin, sincos

MAX_SPEED, MAX_TORQUE, DT, LENGTH = 8.0, 2.0, 0.05, 1.0  # the mass is 1
# 2 pi as a sum of two numbers of 33 and 20 bits, so that small multiples are exact
TURN = (6.283185303211212, 2.0 * math.pi - 6.283185303211212)
RESET_THETA, RESET_SPEED = math.pi, 1.0
ROWS, WIDTH = 2, 3  # numbers in a state; numbers in an observation

State = tuple[float, float]


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide."""

    pull: float  # 3 g / (2 LENGTH)
    time_limit: int = NO_LIMIT


@njit(inline="always")
def angle_normalize(theta: float) -> float:
    """Return the angle wrapped to [-pi, pi)."""
    shifted = theta + math.pi
    turns = round_down(shifted * (1.0 / (2.0 * math.pi)))
    return ((shifted - turns * TURN[0]) - turns * TURN[1]) - math.pi


@njit(inline="always")
def step(
    state: State, action: np.float32, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """Play one step for an action in [-1, 1]; the stored angle is not wrapped. The episode never terminates."""
    theta, speed = state
    torque = np.float32(2.0) * min(max(action, np.float32(-1.0)), np.float32(1.0))
    angle = angle_normalize(theta)
    effort = np.float64(np.float32(0.001) * (torque * torque))
    cost = (angle * angle + 0.1 * (speed * speed)) + effort
    lift = np.float64(np.float32(3.0) * torque)
    speed = speed + (parameters.pull * sin(theta) + lift) * DT
    speed = min(max(speed, -MAX_SPEED), MAX_SPEED)
    return (theta + speed * DT, speed), -cost, False


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> State:
    """Draw the first state of an episode: any angle, a speed within 1."""
    a, b, _, _ = draw(0, episode)
    return between(a, -RESET_THETA, RESET_THETA), between(b, -RESET_SPEED, RESET_SPEED)


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> tuple[float, float, float]:
    """Return the observation: cosine and sine of the angle, and the speed."""
    theta, speed = state
    sine, cosine = sincos(theta)
    return cosine, sine, speed


def setting(g: float = 10.0) -> Setting:
    """`g`: the acceleration of gravity."""
    high = np.array([1.0, 1.0, MAX_SPEED], np.float32)
    return Setting(
        observation_space=Box(-high, high, dtype=np.float32),
        action_space=Box(-1.0, 1.0, (1,), np.float32),
        gym_action_space=Box(-MAX_TORQUE, MAX_TORQUE, (1,), np.float32),
        parameters=Parameters(3 * number("g", g) / (2 * LENGTH)),
    )


def gym_state(column: np.ndarray) -> dict[str, Any]:
    """Return the attributes that set this state in Gymnasium's environment."""
    return {"state": column.copy(), "last_u": None}


def recall(obs: np.ndarray) -> np.ndarray:
    """Return a state that has this observation."""
    return np.array([math.atan2(obs[1], obs[0]), obs[2]])


WORLD = World(
    recall=recall,
    setting=setting,
    kernels={NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH)},
    state_size=ROWS,
    gym_state=gym_state,
    env_id="Pendulum-v1",
    time_limit=200,
)
