"""Reacher-v5 and Pusher-v5: an arm reaches for a target, or pushes an object to a goal.

Rewards are negative distances minus a cost of actions. Only the time limit ends an episode.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from stride.envs_fast.bodies.numpy_sums import EXACT, dot_is_fused, length, squares_of_singles
from stride.envs_fast.bodies.physics import Body, Physics, act, clear, observe, put_back, settle, uniform
from stride.envs_fast.bodies.task import Task
from stride.envs_fast.kernels import body_kernels_of
from stride.envs_fast.world import NO_LIMIT, Episode, Moment
from stride.utils.kernel_cache import njit

JOINTS = 2  # of Reacher's arm
# noise of first angles and velocities, +-; Reacher's target is at most TARGET_RADIUS metres from the centre
FIRST_ANGLE, FIRST_SPEED, TARGET_RADIUS = 0.1, 0.005, 0.2
PUSHER_JOINTS = 7  # of Pusher's arm
# Pusher's object begins at x in [-MAX_AHEAD, 0), y in +-MAX_SIDE, more than MIN_DISTANCE from the goal, in metres
MAX_SIDE, MAX_AHEAD, MIN_DISTANCE = 0.2, 0.3, 0.17
FIRST_TRY = 64  # number of the first uniform for the object's place, two for each try


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide; hand, object and goal are indices of these bodies in `xpos`."""

    near_weight: float  # of the distance between hand and object
    distance_weight: float  # of the distance to the goal
    control_weight: float
    hand: int
    object: int
    goal: int
    is_fused: int  # result of `dot_is_fused`: how NumPy rounds a dot product on this machine
    in_units: int = 0  # 1: actions come in the task's units, else -1 to 1
    time_limit: int = NO_LIMIT


@njit(**EXACT)
def offset(body: Body, first: int, second: int, axis: int) -> float:
    """Return the difference of two bodies' positions, first - second, along an axis (0 x, 1 y, 2 z)."""
    return body.xpos[first + axis] - body.xpos[second + axis]


@njit(**EXACT)
def distance(body: Body, first: int, second: int, is_fused: int) -> float:
    """Return how far two bodies are from each other, rounded as NumPy does."""
    x, y, z = offset(body, first, second, 0), offset(body, first, second, 1), offset(body, first, second, 2)
    return length(x, y, z, is_fused)


@njit(**EXACT)
def look(body: Body, state: np.ndarray, parameters: Parameters) -> None:
    """Write Reacher's observation: cosines and sines of the joints, target, joint velocities, target to fingertip."""
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
    """Play one step of Reacher: minus the distance to the target, minus effort (float32, as in Gymnasium)."""
    body = act(state, action, parameters.in_units, tables)
    look(body, state, parameters)
    near = -distance(body, parameters.hand, parameters.goal, parameters.is_fused) * parameters.distance_weight
    effort = -squares_of_singles(body.ctrl) * np.float32(parameters.control_weight)
    put_back(body, state, 0.0, tables)
    return near + effort, False


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Physics) -> None:
    """Begin with a slightly bent, almost resting arm, and a target at a random place in a disk.

    The square root makes every place in the disk equally likely.
    """
    body = clear(tables)
    for k in range(JOINTS):
        body.qpos[k] += uniform(k, -FIRST_ANGLE, FIRST_ANGLE, episode)
        body.qvel[k] += uniform(JOINTS + k, -FIRST_SPEED, FIRST_SPEED, episode)
        body.qvel[JOINTS + k] = 0.0
    radius = TARGET_RADIUS * math.sqrt(uniform(2 * JOINTS, 0.0, 1.0, episode))
    angle = uniform(2 * JOINTS + 1, 0.0, 2.0 * math.pi, episode)
    body.qpos[JOINTS], body.qpos[JOINTS + 1] = radius * math.cos(angle), radius * math.sin(angle)
    settle(body, tables)
    look(body, state, parameters)
    put_back(body, state, 0.0, tables)


@njit(**EXACT)
def look_pusher(body: Body, state: np.ndarray, parameters: Parameters) -> None:
    """Write Pusher's observation: joint angles and velocities, and the positions of hand, object and goal."""
    for k in range(PUSHER_JOINTS):
        state[k], state[PUSHER_JOINTS + k] = body.qpos[k], body.qvel[k]
    for axis in range(3):
        state[2 * PUSHER_JOINTS + axis] = body.xpos[parameters.hand + axis]
        state[2 * PUSHER_JOINTS + 3 + axis] = body.xpos[parameters.object + axis]
        state[2 * PUSHER_JOINTS + 6 + axis] = body.xpos[parameters.goal + axis]


@njit(inline="always")
def step_pusher(
    state: np.ndarray, action: np.ndarray, moment: Moment, parameters: Parameters, tables: Physics
) -> tuple[float, bool]:
    """Play one step of Pusher: minus the object's distances to goal and hand, minus effort (float32)."""
    body = act(state, action, parameters.in_units, tables)
    look_pusher(body, state, parameters)
    near = -distance(body, parameters.object, parameters.hand, parameters.is_fused) * parameters.near_weight
    far = -distance(body, parameters.object, parameters.goal, parameters.is_fused) * parameters.distance_weight
    effort = -squares_of_singles(body.ctrl) * np.float32(parameters.control_weight)
    put_back(body, state, 0.0, tables)
    return (far + effort) + near, False


@njit(inline="always")
def reset_pusher(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Physics) -> None:
    """Begin with an almost resting arm, and the object at a random place in front of it, not too near the goal."""
    body = clear(tables)
    # the last four positions and velocities are those of the object and the goal
    for k in range(body.qvel.size):
        body.qvel[k] = body.qvel[k] + uniform(k, -FIRST_SPEED, FIRST_SPEED, episode) if k < body.qvel.size - 4 else 0.0
    x, y, number = 0.0, 0.0, FIRST_TRY
    while math.sqrt(x * x + y * y) <= MIN_DISTANCE:
        x, y = uniform(number, -MAX_AHEAD, 0.0, episode), uniform(number + 1, -MAX_SIDE, MAX_SIDE, episode)
        number += 2
    end = body.qpos.size
    body.qpos[end - 4], body.qpos[end - 3], body.qpos[end - 2], body.qpos[end - 1] = x, y, 0.0, 0.0
    settle(body, tables)
    look_pusher(body, state, parameters)
    put_back(body, state, 0.0, tables)


def xpos_index(env: Any, name: str) -> int:
    """Return the index in `xpos` where a body's position begins."""
    return 3 * int(env.model.body(name).id)


def reacher_parameters(env: Any) -> Parameters:
    """Read the parameters from an instance of Gymnasium's environment."""
    hand, goal = xpos_index(env, "fingertip"), xpos_index(env, "target")
    return Parameters(
        0.0, float(env._reward_dist_weight), float(env._reward_control_weight), hand, 0, goal, dot_is_fused()
    )


def pusher_parameters(env: Any) -> Parameters:
    """Read the parameters from an instance of Gymnasium's environment."""
    weights = float(env._reward_near_weight), float(env._reward_dist_weight), float(env._reward_control_weight)
    indices = xpos_index(env, "tips_arm"), xpos_index(env, "object"), xpos_index(env, "goal")
    return Parameters(*weights, *indices, dot_is_fused())


REACHER = Task("Reacher-v5", body_kernels_of(step, reset, observe), reacher_parameters)
PUSHER = Task("Pusher-v5", body_kernels_of(step_pusher, reset_pusher, observe), pusher_parameters)
