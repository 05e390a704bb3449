"""MountainCarContinuous-v0: MountainCar with an engine that can be throttled and has to be used sparingly.

Gymnasium's Continuous_MountainCarEnv keeps its state in float32, except the first of an episode; so does this, in
float64 arrays that hold float32 values. Every rounding of its mixed arithmetic is repeated. An action beyond the bounds
moves the car like the bound, but Gymnasium charges for all of it: so does this behind Gymnasium's and SB3's face. To a
policy the bound is what it did (vec_env.py), and what it is charged for, with Gymnasium's worlds as with these.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box

from envs_fast.arguments import number
from envs_fast.tiles import MOVE, begin, play
from envs_fast.world import KERNEL, Setting, World, between, draw
from utils.kernel_cache import njit
from utils.simd_math import cos

F = np.float32
MIN_POSITION, MAX_POSITION, MAX_SPEED, GOAL = float(F(-1.2)), float(F(0.6)), float(F(0.07)), float(F(0.45))
POWER, GRAVITY = float(F(0.0015)), 0.0025
REWARD, COST = 100.0, 0.1
RESET_LOW, RESET_HIGH = -0.6, -0.4


@njit(inline="always")
def single(x: float) -> float:
    """The nearest float32, as a float64."""
    return np.float64(np.float32(x))


@njit(inline="always")
def step(
    position: float, velocity: float, action: np.float32, first: bool, goal_velocity: float, charged: float
) -> tuple[float, float, float, bool]:
    """One step: position and velocity (float32 values), the reward, and whether the flag is reached.

    An action is charged up to the size `charged`.
    """
    force = np.float64(min(max(action, np.float32(-1.0)), np.float32(1.0)))
    angle = 3.0 * position if first else single(3.0 * position)
    velocity = single(velocity + single(single(force * POWER) - single(GRAVITY * cos(angle))))
    velocity = min(max(velocity, -MAX_SPEED), MAX_SPEED)
    position = single(min(max(position + velocity, MIN_POSITION), MAX_POSITION))
    velocity = 0.0 if (position == MIN_POSITION) & (velocity < 0.0) else velocity
    reached = (position >= GOAL) & (velocity >= goal_velocity)
    effort = min(max(np.float64(action), -charged), charged)
    return position, velocity, (REWARD if reached else 0.0) - effort * effort * COST, reached


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
    limit, goal_velocity, charged = np.int32(parameters[0]), parameters[1], parameters[2]
    for i in range(age.size):
        position[i], velocity[i], gain, reached = step(
            position[i], velocity[i], action[i], age[i] == 0, goal_velocity, charged
        )
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
    """The batched kernel; world.py says what the arrays are. parameters: time limit, goal velocity, largest charge."""
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
    high, low = np.array([MAX_POSITION, MAX_SPEED], F), np.array([MIN_POSITION, -MAX_SPEED], F)
    box, goal = Box(-1.0, 1.0, (1,), F), float(F(number("goal_velocity", goal_velocity)))
    return Setting(Box(low, high, dtype=F), box, box, parameters=(goal, 1.0), gym_parameters=(goal, np.inf))


def gym_state(column: np.ndarray) -> dict[str, Any]:
    """What to set on Gymnasium's environment so that it draws this state."""
    return {"state": column.astype(F)}


WORLD = World(
    setting=setting,
    advance=advance,
    restart=restart,
    state_size=2,
    gym_state=gym_state,
    env_id="MountainCarContinuous-v0",
    time_limit=999,
    reward_threshold=90.0,
)
