"""Reacher-v5 and Pusher-v5: arms that are paid for nearness, and never ended but by the time limit."""

import math
from typing import Any, NamedTuple

import numpy as np

from stride.envs_fast.bodies.numpy_sums import EXACT, dot_is_fused, length, squares_of_singles
from stride.envs_fast.bodies.physics import Body, Physics, act, clear, observe, put_back, settle, uniform
from stride.envs_fast.bodies.task import Task
from stride.envs_fast.kernels import body_kernels_of
from stride.envs_fast.world import NO_LIMIT, Episode, Moment
from stride.utils.kernel_cache import njit

JOINTS = 2  # of a reacher
BENT, SPEED, REACH = 0.1, 0.005, 0.2  # +-: first angles and velocities; how far away the target is
ARM = 7  # joints of a pusher
SIDE, AHEAD, NEAREST = 0.2, 0.3, 0.17  # of the object's first place: +-y, -x, and how far it is from the goal
FIRST_TRY = 64  # the uniforms from here on are for the object's place


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide; hand, object and goal: where in `xpos` these bodies are."""

    near_weight: float  # of the distance between hand and object
    distance_weight: float  # of the distance to the goal
    control_weight: float
    hand: int
    object: int
    goal: int
    is_fused: int  # how NumPy multiplies vectors here
    in_units: int = 0  # 1: actions come in the task's units, else -1 to 1
    time_limit: int = NO_LIMIT


@njit(**EXACT)
def offset(body: Body, one: int, other: int, axis: int) -> float:
    """From another body to one, along an axis."""
    return body.xpos[one + axis] - body.xpos[other + axis]


@njit(**EXACT)
def distance(body: Body, one: int, other: int, is_fused: int) -> float:
    """How far two bodies are from each other."""
    x, y, z = offset(body, one, other, 0), offset(body, one, other, 1), offset(body, one, other, 2)
    return length(x, y, z, is_fused)


@njit(**EXACT)
def look(body: Body, state: np.ndarray, parameters: Parameters) -> None:
    """Cosines and sines of the joints, the target, their velocities, and from the target to the fingertip."""
    for k in range(JOINTS):
        state[k] = math.cos(body.qpos[k])
        state[JOINTS + k] = math.sin(body.qpos[k])
        state[2 * JOINTS + k] = body.qpos[JOINTS + k]
        state[3 * JOINTS + k] = body.qvel[k]
        state[4 * JOINTS + k] = offset(body, parameters.hand, parameters.goal, k)


@njit(inline="always")
def step(
    state: np.ndarray, action: np.ndarray, moment: Moment, parameters: Parameters, tables: Physics
) -> tuple[float, bool]:
    """Minus the distance to the target, less effort, which is a float32."""
    body = act(state, action, parameters.in_units, tables)
    look(body, state, parameters)
    near = -distance(body, parameters.hand, parameters.goal, parameters.is_fused) * parameters.distance_weight
    effort = -squares_of_singles(body.ctrl) * np.float32(parameters.control_weight)
    put_back(body, state, 0.0, tables)
    return near + effort, False


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Physics) -> None:
    """A bent arm that hardly moves, and a target anywhere in a disk: the root makes it as likely everywhere."""
    body = clear(tables)
    for k in range(JOINTS):
        body.qpos[k] += uniform(k, -BENT, BENT, episode)
        body.qvel[k] += uniform(JOINTS + k, -SPEED, SPEED, episode)
        body.qvel[JOINTS + k] = 0.0
    radius = REACH * math.sqrt(uniform(2 * JOINTS, 0.0, 1.0, episode))
    angle = uniform(2 * JOINTS + 1, 0.0, 2.0 * math.pi, episode)
    body.qpos[JOINTS], body.qpos[JOINTS + 1] = radius * math.cos(angle), radius * math.sin(angle)
    settle(body, tables)
    look(body, state, parameters)
    put_back(body, state, 0.0, tables)


@njit(**EXACT)
def look_pusher(body: Body, state: np.ndarray, parameters: Parameters) -> None:
    """Joints, their velocities, and where hand, object and goal are."""
    for k in range(ARM):
        state[k], state[ARM + k] = body.qpos[k], body.qvel[k]
    for axis in range(3):
        state[2 * ARM + axis] = body.xpos[parameters.hand + axis]
        state[2 * ARM + 3 + axis] = body.xpos[parameters.object + axis]
        state[2 * ARM + 6 + axis] = body.xpos[parameters.goal + axis]


@njit(inline="always")
def step_pusher(
    state: np.ndarray, action: np.ndarray, moment: Moment, parameters: Parameters, tables: Physics
) -> tuple[float, bool]:
    """Minus the distances of the object from goal and hand, less effort, which is a float32."""
    body = act(state, action, parameters.in_units, tables)
    look_pusher(body, state, parameters)
    near = -distance(body, parameters.object, parameters.hand, parameters.is_fused) * parameters.near_weight
    far = -distance(body, parameters.object, parameters.goal, parameters.is_fused) * parameters.distance_weight
    effort = -squares_of_singles(body.ctrl) * np.float32(parameters.control_weight)
    put_back(body, state, 0.0, tables)
    return (far + effort) + near, False


@njit(inline="always")
def reset_pusher(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Physics) -> None:
    """An arm that hardly moves, and the object somewhere before it, not too near the goal."""
    body = clear(tables)
    for k in range(body.qvel.size):
        body.qvel[k] = body.qvel[k] + uniform(k, -SPEED, SPEED, episode) if k < body.qvel.size - 4 else 0.0
    x, y, number = 0.0, 0.0, FIRST_TRY
    while math.sqrt(x * x + y * y) <= NEAREST:
        x, y = uniform(number, -AHEAD, 0.0, episode), uniform(number + 1, -SIDE, SIDE, episode)
        number += 2
    end = body.qpos.size
    body.qpos[end - 4], body.qpos[end - 3], body.qpos[end - 2], body.qpos[end - 1] = x, y, 0.0, 0.0
    settle(body, tables)
    look_pusher(body, state, parameters)
    put_back(body, state, 0.0, tables)


def place(env: Any, name: str) -> int:
    """Where in `xpos` a body is."""
    return 3 * int(env.model.body(name).id)


def reacher_parameters(env: Any) -> Parameters:
    """Read the parameters from an instance of Gymnasium's environment."""
    hand, goal = place(env, "fingertip"), place(env, "target")
    return Parameters(
        0.0, float(env._reward_dist_weight), float(env._reward_control_weight), hand, 0, goal, dot_is_fused()
    )


def pusher_parameters(env: Any) -> Parameters:
    """Read the parameters from an instance of Gymnasium's environment."""
    weights = float(env._reward_near_weight), float(env._reward_dist_weight), float(env._reward_control_weight)
    places = place(env, "tips_arm"), place(env, "object"), place(env, "goal")
    return Parameters(*weights, *places, dot_is_fused())


REACHER = Task("Reacher-v5", body_kernels_of(step, reset, observe), reacher_parameters)
PUSHER = Task("Pusher-v5", body_kernels_of(step_pusher, reset_pusher, observe), pusher_parameters)
