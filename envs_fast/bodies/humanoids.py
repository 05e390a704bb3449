"""Humanoid-v5 and HumanoidStandup-v5: a body of 13 parts that walks, or gets up from the ground."""

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

INERTIA, VELOCITY, FORCE = 10, 6, 6  # numbers of a body in `cinert`, `cvel`, `cfrc_ext`; those of the ground come first
FREE = 6  # numbers of the joint that nothing drives


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide. `low_z` and `high_z` are excluded."""

    dt: float  # seconds of a step
    timestep: float  # of a step of MuJoCo
    forward_weight: float
    control_weight: float
    contact_weight: float
    low_cost: float  # of contacts
    high_cost: float
    healthy_reward: float
    ends: int  # whether a fall ends the episode
    low_z: float
    high_z: float
    noise: float  # size of the noise in a first state
    hidden: int  # how many of the first positions are not in the observation
    shows_inertia: int
    shows_velocity: int
    shows_actuators: int
    shows_forces: int
    in_units: int = 0  # 1: actions come in the task's units, else -1 to 1
    time_limit: int = NO_LIMIT


@njit(**EXACT)
def look(body: Body, state: np.ndarray, parameters: Parameters) -> None:
    """Positions, velocities, and what else is asked for."""
    end = see(state, 0, body.qpos, parameters.hidden, np.inf)
    end = see(state, end, body.qvel, 0, np.inf)
    if parameters.shows_inertia:
        end = see(state, end, body.cinert, INERTIA, np.inf)
    if parameters.shows_velocity:
        end = see(state, end, body.cvel, VELOCITY, np.inf)
    if parameters.shows_actuators:
        end = see(state, end, body.qfrc_actuator, FREE, np.inf)
    if parameters.shows_forces:
        see(state, end, body.cfrc_ext, FORCE, np.inf)


@njit(**EXACT)
def centre(body: Body, tables: Physics) -> float:
    """The x of the centre of mass."""
    moment, bodies = 0.0, tables.masses.size - 1
    for k in range(bodies):
        moment += tables.masses[k] * body.xipos[3 * k]
    return moment / tables.masses[bodies]


@njit(**EXACT)
def effort_of(body: Body, parameters: Parameters) -> float:
    """The cost of the action."""
    return parameters.control_weight * squares_of_doubles(body.ctrl)


@njit(**EXACT)
def contacts_of(body: Body, parameters: Parameters) -> float:
    """The cost of contacts."""
    cost = parameters.contact_weight * squares_of_doubles(body.cfrc_ext)
    return clip(cost, parameters.low_cost, parameters.high_cost)


@njit(inline="always")
def step(
    state: np.ndarray, action: np.ndarray, moment: Moment, parameters: Parameters, tables: Physics
) -> tuple[float, bool]:
    """Speed of the centre of mass, and a bonus while it stands, less effort and contacts."""
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
    """Height by the time of a step of MuJoCo, less effort and contacts, and 1."""
    body = act(state, action, parameters.in_units, tables)
    look(body, state, parameters)
    height = body.qpos[2] / parameters.timestep
    effort, contacts = effort_of(body, parameters), contacts_of(body, parameters)
    put_back(body, state, 0.0, tables)
    return ((height - effort) - contacts) + 1.0, False


def parameters_of(env: Any, contact_weight: float, cost_range: tuple[float, float], **others: float) -> Parameters:
    """What Gymnasium's environment has been made with; `others` are those of one that walks."""
    low_cost, high_cost = cost_range
    walks = {"forward_weight": 0.0, "healthy_reward": 0.0, "low_z": 0.0, "high_z": 0.0, **others}
    return Parameters(
        dt=float(env.dt),
        timestep=float(env.model.opt.timestep),
        forward_weight=float(walks["forward_weight"]),
        control_weight=float(env._ctrl_cost_weight),
        contact_weight=float(contact_weight),
        low_cost=float(low_cost),
        high_cost=float(high_cost),
        healthy_reward=float(walks["healthy_reward"]),
        ends=int(bool(walks.get("ends", 0))),
        low_z=float(walks["low_z"]),
        high_z=float(walks["high_z"]),
        noise=float(env._reset_noise_scale),
        hidden=2 if env._exclude_current_positions_from_observation else 0,
        shows_inertia=int(env._include_cinert_in_observation is True),
        shows_velocity=int(env._include_cvel_in_observation is True),
        shows_actuators=int(env._include_qfrc_actuator_in_observation is True),
        shows_forces=int(env._include_cfrc_ext_in_observation is True),
    )


def walking(env: Any) -> Parameters:
    """Those of Humanoid-v5."""
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
    """Those of HumanoidStandup-v5."""
    return parameters_of(env, env._impact_cost_weight, env._impact_cost_range)


HUMANOID = Task("Humanoid-v5", body_kernels_of(step, reset, observe), walking, with_forces=True)
STANDUP = Task("HumanoidStandup-v5", body_kernels_of(step_up, reset, observe), standing_up, with_forces=True)
