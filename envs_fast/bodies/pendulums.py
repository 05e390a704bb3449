"""InvertedPendulum-v5 and InvertedDoublePendulum-v5: balance one or two poles on a cart; a fall ends the episode."""

import math
from typing import Any, NamedTuple

import numpy as np

from stride.envs_fast.bodies.numpy_sums import EXACT, all_finite, clip
from stride.envs_fast.bodies.physics import (
    Body,
    Physics,
    act,
    clear,
    observe,
    put_back,
    see,
    settle,
    shake,
    shake_normally,
)
from stride.envs_fast.bodies.task import Task
from stride.envs_fast.kernels import body_kernels_of
from stride.envs_fast.world import NO_LIMIT, Episode, Moment
from stride.utils.kernel_cache import njit

MAX_ANGLE = 0.2  # radians from upright; beyond it the single pole has fallen
MIN_HEIGHT = 1.0  # metres; the double pole has fallen if its tip is not above this
BEST_HEIGHT = 2.0  # metres; the reward of the double pole is highest with its tip here
MAX_SEEN = 10.0  # velocities and forces in the double pole's observation are clipped to +-MAX_SEEN


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide."""

    healthy_reward: float
    noise: float  # size of the noise in a first state
    square: float = 2.0  # exponent; not a constant, else the compiler makes x * x of x**2, which rounds unlike `pow`
    in_units: int = 0  # 1: actions come in the task's units, else -1 to 1
    time_limit: int = NO_LIMIT


@njit(**EXACT)
def look(body: Body, state: np.ndarray) -> None:
    """Write the observation of the single pole: position of the cart, angle of the pole, and their velocities."""
    end = see(state, 0, body.qpos, 0, np.inf)
    see(state, end, body.qvel, 0, np.inf)


@njit(inline="always")
def step(
    state: np.ndarray, action: np.ndarray, moment: Moment, parameters: Parameters, tables: Physics
) -> tuple[float, bool]:
    """Play one step of the single pole: reward 1 while it stands; return reward and end."""
    body = act(state, action, parameters.in_units, tables)
    look(body, state)
    fallen = (not (all_finite(body.qpos) and all_finite(body.qvel))) or abs(body.qpos[1]) > MAX_ANGLE
    put_back(body, state, 0.0, tables)
    return (0.0 if fallen else 1.0), fallen


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Physics) -> None:
    """Begin with the single pole nearly upright."""
    body = clear(tables)
    shake(body, parameters.noise, episode)
    settle(body, tables)
    look(body, state)
    put_back(body, state, 0.0, tables)


@njit(**EXACT)
def look_double(body: Body, state: np.ndarray) -> None:
    """Write the observation of the double pole: position of the cart, sines of the angles, cosines, velocities, force.

    The force is that of the stops at the ends of the cart's rail.
    """
    joints = body.qpos.size - 1
    state[0] = body.qpos[0]
    for k in range(joints):
        state[1 + k] = math.sin(body.qpos[1 + k])
        state[1 + joints + k] = math.cos(body.qpos[1 + k])
    end = see(state, 1 + 2 * joints, body.qvel, 0, MAX_SEEN)
    state[end] = clip(body.qfrc_constraint[0], -MAX_SEEN, MAX_SEEN)


@njit(inline="always")
def step_double(
    state: np.ndarray, action: np.ndarray, moment: Moment, parameters: Parameters, tables: Physics
) -> tuple[float, bool]:
    """Play one step of the double pole: a bonus while it stands, minus costs of the tip's place and of turning."""
    body = act(state, action, parameters.in_units, tables)
    look_double(body, state)
    square = parameters.square
    x, y = body.site_xpos[0], body.site_xpos[2]
    fallen = y <= MIN_HEIGHT
    away = 0.01 * x**square + (y - BEST_HEIGHT) ** square
    turning = 1e-3 * body.qvel[1] ** square + 5e-3 * body.qvel[2] ** square
    bonus = parameters.healthy_reward * (0.0 if fallen else 1.0)
    put_back(body, state, 0.0, tables)
    return (bonus - away) - turning, fallen


@njit(inline="always")
def reset_double(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Physics) -> None:
    """Begin with both poles nearly upright."""
    body = clear(tables)
    shake_normally(body, parameters.noise, episode)
    settle(body, tables)
    look_double(body, state)
    put_back(body, state, 0.0, tables)


def parameters_of(env: Any, healthy_reward: float) -> Parameters:
    """Read the parameters from an instance of Gymnasium's environment."""
    return Parameters(healthy_reward=float(healthy_reward), noise=float(env._reset_noise_scale))


SINGLE = Task("InvertedPendulum-v5", body_kernels_of(step, reset, observe), lambda env: parameters_of(env, 1.0))
DOUBLE = Task(
    "InvertedDoublePendulum-v5",
    body_kernels_of(step_double, reset_double, observe),
    lambda env: parameters_of(env, env._healthy_reward),
)
