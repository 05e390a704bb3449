"""MountainCar-v0: an engine too weak for the hill has to swing a car up to the flag (Moore 1990).

Physics of Gymnasium's MountainCarEnv in float64; observations float32.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from envs_fast.arguments import number
from envs_fast.tiles import MOVE, begin, play
from envs_fast.world import KERNEL, Setting, World, between, draw
from utils.kernel_cache import njit
from utils.simd_math import cos

MIN_POSITION, MAX_POSITION, MAX_SPEED, GOAL = -1.2, 0.6, 0.07, 0.5
FORCE, GRAVITY = 0.001, 0.0025
RESET_LOW, RESET_HIGH = -0.6, -0.4


@njit(inline="always")
def step(position: float, velocity: float, action: int, goal_velocity: float) -> tuple[float, float, bool]:
    """One step of the physics: the new position and velocity, and whether the flag is reached."""
    velocity = velocity + (np.float64(np.int32(action) - np.int32(1)) * FORCE + cos(3.0 * position) * (-GRAVITY))
    velocity = min(max(velocity, -MAX_SPEED), MAX_SPEED)
    position = min(max(position + velocity, MIN_POSITION), MAX_POSITION)
    velocity = 0.0 if (position == MIN_POSITION) & (velocity < 0.0) else velocity
    return position, velocity, (position >= GOAL) & (velocity >= goal_velocity)


@njit(inline="always")
def reset(episode: int, world: int, seed_lo: int, seed_hi: int) -> tuple[float, float]:
    """The first state of an episode: somewhere in the valley, at rest."""
    return between(draw(0, episode, world, seed_lo, seed_hi)[0], RESET_LOW, RESET_HIGH), 0.0


@njit(inline="always")
def observe(state: tuple[float, float]) -> tuple[float, float]:
    """What is seen of a state: all of it."""
    return state


@njit(**MOVE)
def _move(
    position: np.ndarray,
    velocity: np.ndarray,
    total: np.ndarray,
    age: np.ndarray,
    action: np.ndarray,
    obs: np.ndarray,
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    parameters: np.ndarray,
) -> None:
    """One step of a tile of worlds; the loop that must stay vectorised."""
    limit, goal_velocity = np.int32(parameters[0]), parameters[1]
    for i in range(age.size):
        position[i], velocity[i], reached = step(position[i], velocity[i], action[i], goal_velocity)
        gain = -1.0
        steps = np.int32(age[i] + np.int32(1))
        total[i] += gain
        age[i], reward[i] = steps, gain
        terminated[i], truncated[i] = reached, (steps >= limit) & (not reached)
        obs[2 * i], obs[2 * i + 1] = position[i], velocity[i]


@njit(**KERNEL)
def advance(
    state: np.ndarray,
    ages: np.ndarray,
    episodes: np.ndarray,
    returns: np.ndarray,
    lo: int,
    hi: int,
    first_world: int,
    seed_lo: int,
    seed_hi: int,
    parameters: np.ndarray,
    actions: np.ndarray,
    obs: np.ndarray,
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    final_obs: np.ndarray,
    episode_return: np.ndarray,
    episode_length: np.ndarray,
) -> None:
    """The batched kernel; world.py says what the arrays are. parameters: time limit, goal velocity."""
    play(
        _move, reset, observe, 2, 2, state, ages, episodes, returns, lo, hi, first_world, seed_lo, seed_hi, parameters,
        actions, obs, reward, terminated, truncated, final_obs, episode_return, episode_length,
    )  # fmt: skip


@njit(**KERNEL)
def restart(
    state: np.ndarray,
    ages: np.ndarray,
    episodes: np.ndarray,
    returns: np.ndarray,
    lo: int,
    hi: int,
    first_world: int,
    seed_lo: int,
    seed_hi: int,
    parameters: np.ndarray,
    mask: np.ndarray,
    obs: np.ndarray,
) -> None:
    """Begin the episode `episodes[i]` in every masked world; what is seen of all."""
    begin(reset, observe, 2, 2, state, ages, episodes, returns, lo, hi, first_world, seed_lo, seed_hi, mask, obs)


def setting(goal_velocity: float = 0.0) -> Setting:
    """`goal_velocity`: how fast the car has to be at the flag."""
    high = np.array([MAX_POSITION, MAX_SPEED], np.float32)
    low = np.array([MIN_POSITION, -MAX_SPEED], np.float32)
    return Setting(Box(low, high, dtype=np.float32), Discrete(3), parameters=(number("goal_velocity", goal_velocity),))


def gym_state(column: np.ndarray) -> dict[str, Any]:
    """What to set on Gymnasium's environment so that it draws this state."""
    return {"state": column.copy()}


WORLD = World(
    setting=setting,
    advance=advance,
    restart=restart,
    state_size=2,
    gym_state=gym_state,
    env_id="MountainCar-v0",
    time_limit=200,
    reward_threshold=-110.0,
)
