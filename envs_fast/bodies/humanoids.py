"""Humanoid-v5 and HumanoidStandup-v5: a body of 13 parts learns to walk, or to get up from the ground.

Both tasks have the same observation and differ in the reward. Operations are in Gymnasium's order, so that all numbers
have its bits.
"""

from typing import Any, NamedTuple

import numpy as np

from stride.envs_fast.bodies.numpy_sums import EXACT, clip, squares_of_doubles
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

# numbers of one body in `cinert`, `cvel`, `cfrc_ext`; the ground is the first body there and is not in the observation
INERTIA, VELOCITY, FORCE = 10, 6, 6
FREE_JOINT = 6  # numbers at the start of `qfrc_actuator`: the root's free joint, which has no actuator


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide."""

    dt: float  # seconds of a step
    timestep: float  # seconds of one of MuJoCo's steps, several of which make a step
    forward_weight: float
    control_weight: float
    contact_weight: float
    low_cost: float  # the cost of contacts is clipped to low_cost .. high_cost
    high_cost: float
    healthy_reward: float
    ends: int  # 1: the episode ends when the body is not healthy
    low_z: float  # healthy: low_z < height < high_z
    high_z: float
    noise: float  # size of the noise in a first state
    hidden: int  # how many of the first positions are not in the observation
    shows_inertia: int  # this and the next three: 1 if the observation has these numbers
    shows_velocity: int
    shows_actuators: int
    shows_forces: int
    in_units: int = 0  # 1: actions come in the task's units, else -1 to 1
    time_limit: int = NO_LIMIT


@njit(**EXACT)
def look(body: Body, state: np.ndarray, parameters: Parameters) -> None:
    """Write the observation: positions, velocities, and what the flags `shows_...` ask for."""
    end = see(state, 0, body.qpos, parameters.hidden, np.inf)
    end = see(state, end, body.qvel, 0, np.inf)
    if parameters.shows_inertia:
        end = see(state, end, body.cinert, INERTIA, np.inf)
    if parameters.shows_velocity:
        end = see(state, end, body.cvel, VELOCITY, np.inf)
    if parameters.shows_actuators:
        end = see(state, end, body.qfrc_actuator, FREE_JOINT, np.inf)
    if parameters.shows_forces:
        see(state, end, body.cfrc_ext, FORCE, np.inf)


@njit(**EXACT)
def centre(body: Body, tables: Physics) -> float:
    """Return the x of the centre of mass. The last of `masses` is their sum."""
    moment, bodies = 0.0, tables.masses.size - 1
    for k in range(bodies):
        moment += tables.masses[k] * body.xipos[3 * k]
    return moment / tables.masses[bodies]


@njit(**EXACT)
def effort_of(body: Body, parameters: Parameters) -> float:
    """Return the cost of the action."""
    return parameters.control_weight * squares_of_doubles(body.ctrl)


@njit(**EXACT)
def contacts_of(body: Body, parameters: Parameters) -> float:
    """Return the cost of contacts."""
    cost = parameters.contact_weight * squares_of_doubles(body.cfrc_ext)
    return clip(cost, parameters.low_cost, parameters.high_cost)


@njit(inline="always")
def step(
    state: np.ndarray, action: np.ndarray, moment: Moment, parameters: Parameters, tables: Physics
) -> tuple[float, bool]:
    """Play one step of Humanoid-v5: speed of the centre of mass, bonus while healthy, minus effort and contacts."""
    body = act(state, action, parameters.in_units, tables)
    look(body, state, parameters)
    x = centre(body, tables)
    speed = (x - origin(state, tables)) / parameters.dt
    healthy = parameters.low_z < body.qpos[2] < parameters.high_z
    bonus = np.float64(healthy) * parameters.healthy_reward
    costs = effort_of(body, parameters) + contacts_of(body, parameters)
    put_back(body, state, x, tables)
    return (parameters.forward_weight * speed + bonus) - costs, (not healthy) & (parameters.ends != 0)


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Physics) -> None:
    """Begin with the model's pose plus noise."""
    body = clear(tables)
    shake(body, parameters.noise, episode)
    settle(body, tables)
    look(body, state, parameters)
    put_back(body, state, centre(body, tables), tables)


@njit(inline="always")
def step_up(
    state: np.ndarray, action: np.ndarray, moment: Moment, parameters: Parameters, tables: Physics
) -> tuple[float, bool]:
    """Play one step of HumanoidStandup-v5: height / timestep, minus effort and contacts, plus 1; no end."""
    body = act(state, action, parameters.in_units, tables)
    look(body, state, parameters)
    height = body.qpos[2] / parameters.timestep
    effort, contacts = effort_of(body, parameters), contacts_of(body, parameters)
    put_back(body, state, 0.0, tables)
    return ((height - effort) - contacts) + 1.0, False


def parameters_of(env: Any, contact_weight: float, cost_range: tuple[float, float], **others: float) -> Parameters:
    """Read the parameters from an instance of Gymnasium's environment.

    `others`: the parameters that only Humanoid-v5 has; 0 if they are missing.
    """
    low_cost, high_cost = cost_range
    optional = {"forward_weight": 0.0, "healthy_reward": 0.0, "low_z": 0.0, "high_z": 0.0, **others}
    return Parameters(
        dt=float(env.dt),
        timestep=float(env.model.opt.timestep),
        forward_weight=float(optional["forward_weight"]),
        control_weight=float(env._ctrl_cost_weight),
        contact_weight=float(contact_weight),
        low_cost=float(low_cost),
        high_cost=float(high_cost),
        healthy_reward=float(optional["healthy_reward"]),
        ends=int(bool(optional.get("ends", 0))),
        low_z=float(optional["low_z"]),
        high_z=float(optional["high_z"]),
        noise=float(env._reset_noise_scale),
        hidden=2 if env._exclude_current_positions_from_observation else 0,
        shows_inertia=int(env._include_cinert_in_observation is True),
        shows_velocity=int(env._include_cvel_in_observation is True),
        shows_actuators=int(env._include_qfrc_actuator_in_observation is True),
        shows_forces=int(env._include_cfrc_ext_in_observation is True),
    )


def walking(env: Any) -> Parameters:
    """Read the parameters of Humanoid-v5."""
    low_z, high_z = env._healthy_z_range
    return parameters_of(
        env,
        env._contact_cost_weight,
        env._contact_cost_range,
        forward_weight=env._forward_reward_weight,
        healthy_reward=env._healthy_reward,
        ends=env._terminate_when_unhealthy,
        low_z=low_z,
        high_z=high_z,
    )


def standing_up(env: Any) -> Parameters:
    """Read the parameters of HumanoidStandup-v5."""
    return parameters_of(env, env._impact_cost_weight, env._impact_cost_range)


HUMANOID = Task("Humanoid-v5", body_kernels_of(step, reset, observe), walking, with_forces=True)
STANDUP = Task("HumanoidStandup-v5", body_kernels_of(step_up, reset, observe), standing_up, with_forces=True)
