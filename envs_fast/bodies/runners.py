"""HalfCheetah-v5 and Swimmer-v5: a body learns to move fast along x; only the time limit ends an episode."""

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
    shake_normally,
)
from stride.envs_fast.bodies.task import Task
from stride.envs_fast.kernels import body_kernels_of
from stride.envs_fast.world import NO_LIMIT, Episode, Moment
from stride.utils.kernel_cache import njit


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide."""

    dt: float  # seconds of a step
    forward_weight: float
    control_weight: float
    noise: float  # size of the noise in a first state
    normal: int  # 1: the noise of velocities is normal; 0: uniform
    hidden: int  # how many of the first positions are not in the observation
    in_units: int = 0  # 1: actions come in the task's units, else -1 to 1
    time_limit: int = NO_LIMIT


@njit(**EXACT)
def look(body: Body, state: np.ndarray, parameters: Parameters) -> None:
    """Write the observation: positions and velocities."""
    end = see(state, 0, body.qpos, parameters.hidden, np.inf)
    see(state, end, body.qvel, 0, np.inf)


@njit(inline="always")
def step(
    state: np.ndarray, action: np.ndarray, moment: Moment, parameters: Parameters, tables: Physics
) -> tuple[float, bool]:
    """Play one step: reward speed minus effort, which is a float32, as Gymnasium computes it from float32 actions."""
    body = act(state, action, parameters.in_units, tables)
    speed = (body.qpos[0] - origin(state, tables)) / parameters.dt
    effort = np.float32(parameters.control_weight) * squares_of_singles(body.ctrl)
    look(body, state, parameters)
    put_back(body, state, body.qpos[0], tables)
    return parameters.forward_weight * speed - effort, False


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Physics) -> None:
    """Begin with the model's pose plus noise."""
    body = clear(tables)
    if parameters.normal:
        shake_normally(body, parameters.noise, episode)
    else:
        shake(body, parameters.noise, episode)
    settle(body, tables)
    look(body, state, parameters)
    put_back(body, state, body.qpos[0], tables)


def parameters_of(env: Any, hidden: int, normal: int) -> Parameters:
    """Read the parameters from an instance of Gymnasium's environment.

    `hidden`: how many of the first positions its observation leaves out by default.
    """
    return Parameters(
        dt=float(env.dt),
        forward_weight=float(env._forward_reward_weight),
        control_weight=float(env._ctrl_cost_weight),
        noise=float(env._reset_noise_scale),
        normal=normal,
        hidden=hidden if env._exclude_current_positions_from_observation else 0,
    )


KERNELS = body_kernels_of(step, reset, observe)
HALF_CHEETAH = Task("HalfCheetah-v5", KERNELS, lambda env: parameters_of(env, 1, 1))
SWIMMER = Task("Swimmer-v5", KERNELS, lambda env: parameters_of(env, 2, 0))
