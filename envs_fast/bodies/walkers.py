"""Hopper-v5 and Walker2d-v5: a body learns to hop or walk along x without falling; a fall ends the episode."""

from typing import Any, NamedTuple

import numpy as np

from stride.envs_fast.bodies.numpy_sums import EXACT, squares_of_singles
from stride.envs_fast.bodies.physics import (
    Body,
    Physics,
    act,
    clear,
    observe,
    origin,
    put_back,
    see,
    settle,
    shake,
)
from stride.envs_fast.bodies.task import Task
from stride.envs_fast.kernels import body_kernels_of
from stride.envs_fast.world import NO_LIMIT, Episode, Moment
from stride.utils.kernel_cache import njit

MAX_SEEN_SPEED = 10.0  # velocities in the observation are clipped to +-MAX_SEEN_SPEED


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide. low < number < high is healthy."""

    dt: float  # seconds of a step
    forward_weight: float
    control_weight: float
    healthy_reward: float
    ends: int  # 1: the episode ends when the body is not healthy
    low_z: float  # height
    high_z: float
    low_angle: float  # radians
    high_angle: float
    bounded: int  # 1: the next two are checked
    low_state: float  # of all positions except the first two, and of all velocities
    high_state: float
    noise: float  # size of the noise in a first state
    hidden: int  # how many of the first positions are not in the observation
    in_units: int = 0  # 1: actions come in the task's units, else -1 to 1
    time_limit: int = NO_LIMIT


@njit(**EXACT)
def look(body: Body, state: np.ndarray, parameters: Parameters) -> None:
    """Write the observation: positions and velocities."""
    end = see(state, 0, body.qpos, parameters.hidden, np.inf)
    see(state, end, body.qvel, 0, MAX_SEEN_SPEED)


@njit(**EXACT)
def between(numbers: np.ndarray, first: int, low: float, high: float) -> bool:
    """Say whether low < number < high for all of numbers[first:]."""
    inside = True
    for k in range(first, numbers.size):
        inside &= low < numbers[k] < high
    return inside


@njit(**EXACT)
def is_healthy(body: Body, parameters: Parameters) -> bool:
    """Say whether the body stands: height, angle and, if `bounded`, all numbers are in their ranges."""
    p = parameters
    numbers = True
    if p.bounded:
        numbers = between(body.qpos, 2, p.low_state, p.high_state) & between(body.qvel, 0, p.low_state, p.high_state)
    height = p.low_z < body.qpos[1] < p.high_z
    angle = p.low_angle < body.qpos[2] < p.high_angle
    return numbers & height & angle


@njit(inline="always")
def step(
    state: np.ndarray, action: np.ndarray, moment: Moment, parameters: Parameters, tables: Physics
) -> tuple[float, bool]:
    """Play one step: speed plus a bonus while healthy, minus effort, which is a float32 as in Gymnasium."""
    body = act(state, action, parameters.in_units, tables)
    speed = (body.qpos[0] - origin(state, tables)) / parameters.dt
    effort = np.float32(parameters.control_weight) * squares_of_singles(body.ctrl)
    healthy = is_healthy(body, parameters)
    bonus = np.float64(healthy) * parameters.healthy_reward
    look(body, state, parameters)
    put_back(body, state, body.qpos[0], tables)
    return (parameters.forward_weight * speed + bonus) - effort, (not healthy) & (parameters.ends != 0)


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Physics) -> None:
    """Begin with the model's pose plus noise."""
    body = clear(tables)
    shake(body, parameters.noise, episode)
    settle(body, tables)
    look(body, state, parameters)
    put_back(body, state, body.qpos[0], tables)


def parameters_of(env: Any, state_range: tuple[float, float] | None) -> Parameters:
    """Read the parameters from an instance of Gymnasium's environment; `state_range` None: not checked."""
    low_z, high_z = env._healthy_z_range
    low_angle, high_angle = env._healthy_angle_range
    low_state, high_state = state_range or (0.0, 0.0)
    return Parameters(
        dt=float(env.dt),
        forward_weight=float(env._forward_reward_weight),
        control_weight=float(env._ctrl_cost_weight),
        healthy_reward=float(env._healthy_reward),
        ends=int(bool(env._terminate_when_unhealthy)),
        low_z=float(low_z),
        high_z=float(high_z),
        low_angle=float(low_angle),
        high_angle=float(high_angle),
        bounded=int(state_range is not None),
        low_state=float(low_state),
        high_state=float(high_state),
        noise=float(env._reset_noise_scale),
        hidden=int(bool(env._exclude_current_positions_from_observation)),
    )


KERNELS = body_kernels_of(step, reset, observe)
HOPPER = Task("Hopper-v5", KERNELS, lambda env: parameters_of(env, env._healthy_state_range))
WALKER = Task("Walker2d-v5", KERNELS, lambda env: parameters_of(env, None))
