"""Ant-v5: a body with four legs, rewarded for speed along x and for staying upright.

The costs of large actions and of contact forces are subtracted from the reward. Operations are in Gymnasium's order, so
that all numbers have its bits.
"""

from typing import Any, NamedTuple

import numpy as np

from stride.envs_fast.bodies.numpy_sums import EXACT, all_finite, clip, squares_of_doubles, squares_of_singles
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
    shake_normally,
)
from stride.envs_fast.bodies.task import Task
from stride.envs_fast.kernels import body_kernels_of
from stride.envs_fast.world import NO_LIMIT, Episode, Moment
from stride.utils.kernel_cache import njit

WORLD_FORCES = 6  # numbers at the start of `cfrc_ext`: forces on the ground, which are not in the observation


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide. A range includes its ends."""

    dt: float  # seconds of a step
    forward_weight: float
    control_weight: float
    contact_weight: float
    healthy_reward: float
    ends: int  # 1: the episode ends when the body is not healthy
    low_z: float  # the body is upright while its height is from low_z to high_z
    high_z: float
    low_force: float  # contact forces are clipped to low_force .. high_force
    high_force: float
    noise: float  # size of the noise in a first state
    hidden: int  # how many of the first positions are not in the observation
    shows_forces: int  # 1: contact forces are in the observation
    body_x: int  # index in `xpos` of the x of the main body
    in_units: int = 0  # 1: actions come in the task's units, else -1 to 1
    time_limit: int = NO_LIMIT


@njit(**EXACT)
def look(body: Body, state: np.ndarray, parameters: Parameters) -> None:
    """Write the observation: positions, velocities and contact forces.

    The forces are clipped in `cfrc_ext` itself, since `step` needs them clipped, too; MuJoCo's next step overwrites it.
    """
    for k in range(body.cfrc_ext.size):
        body.cfrc_ext[k] = clip(body.cfrc_ext[k], parameters.low_force, parameters.high_force)
    end = see(state, 0, body.qpos, parameters.hidden, np.inf)
    end = see(state, end, body.qvel, 0, np.inf)
    if parameters.shows_forces:
        see(state, end, body.cfrc_ext, WORLD_FORCES, np.inf)


@njit(inline="always")
def step(
    state: np.ndarray, action: np.ndarray, moment: Moment, parameters: Parameters, tables: Physics
) -> tuple[float, bool]:
    """Play one step: speed plus a bonus while healthy, minus effort and contacts; return reward and end.

    The effort is a float32, as Gymnasium computes it from float32 actions.
    """
    body = act(state, action, parameters.in_units, tables)
    look(body, state, parameters)
    x, z = body.xpos[parameters.body_x], body.qpos[2]
    speed = (x - origin(state, tables)) / parameters.dt
    upright = (parameters.low_z <= z) & (z <= parameters.high_z)
    healthy = all_finite(body.qpos) & all_finite(body.qvel) & upright
    bonus = np.float64(healthy) * parameters.healthy_reward
    effort = np.float32(parameters.control_weight) * squares_of_singles(body.ctrl)
    contacts = parameters.contact_weight * squares_of_doubles(body.cfrc_ext)
    put_back(body, state, x, tables)
    return (speed * parameters.forward_weight + bonus) - (effort + contacts), (not healthy) & (parameters.ends != 0)


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Physics) -> None:
    """Begin with the model's pose plus noise."""
    body = clear(tables)
    shake_normally(body, parameters.noise, episode)
    settle(body, tables)
    look(body, state, parameters)
    put_back(body, state, body.xpos[parameters.body_x], tables)


def parameters_of(env: Any) -> Parameters:
    """Read the parameters from an instance of Gymnasium's environment."""
    low_z, high_z = env._healthy_z_range
    low_force, high_force = env._contact_force_range
    return Parameters(
        dt=float(env.dt),
        forward_weight=float(env._forward_reward_weight),
        control_weight=float(env._ctrl_cost_weight),
        contact_weight=float(env._contact_cost_weight),
        healthy_reward=float(env._healthy_reward),
        ends=int(bool(env._terminate_when_unhealthy)),
        low_z=float(low_z),
        high_z=float(high_z),
        low_force=float(low_force),
        high_force=float(high_force),
        noise=float(env._reset_noise_scale),
        hidden=2 if env._exclude_current_positions_from_observation else 0,
        shows_forces=int(bool(env._include_cfrc_ext_in_observation)),
        body_x=3 * int(env.data.body(env._main_body).id),
    )


ANT = Task("Ant-v5", body_kernels_of(step, reset, observe), parameters_of, with_forces=True)
