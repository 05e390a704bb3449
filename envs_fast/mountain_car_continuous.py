"""MountainCarContinuous-v0: MountainCar with an engine that can be throttled and has to be used sparingly.

Gymnasium's Continuous_MountainCarEnv keeps its state in float32, except the first of an episode; so does this, in
float64 arrays that hold float32 values. Every rounding of its mixed arithmetic is repeated.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box

from envs_fast.arguments import number
from envs_fast.tiles import close_episode, load, next_episodes, store, window
from envs_fast.world import KERNEL, TILE, Setting, World, between, draw, list_ended
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
    position: float, velocity: float, action: np.float32, first: bool, goal_velocity: float
) -> tuple[float, float, float, bool]:
    """One step: position and velocity (float32 values), the reward, and whether the flag is reached."""
    force = np.float64(min(max(action, np.float32(-1.0)), np.float32(1.0)))
    angle = 3.0 * position if first else single(3.0 * position)
    velocity = single(velocity + single(single(force * POWER) - single(GRAVITY * cos(angle))))
    velocity = min(max(velocity, -MAX_SPEED), MAX_SPEED)
    position = single(min(max(position + velocity, MIN_POSITION), MAX_POSITION))
    velocity = 0.0 if (position == MIN_POSITION) & (velocity < 0.0) else velocity
    reached = (position >= GOAL) & (velocity >= goal_velocity)
    return position, velocity, (REWARD if reached else 0.0) - force * force * COST, reached


@njit(inline="always")
def reset(episode: int, world: int, seed_lo: int, seed_hi: int) -> tuple[float, float]:
    """The first state of an episode: somewhere in the valley, at rest."""
    return between(draw(0, episode, world, seed_lo, seed_hi)[0], RESET_LOW, RESET_HIGH), 0.0


@njit(**KERNEL)
def _move(
    tile: np.ndarray,
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
        position, velocity, gain, reached = step(tile[i], tile[i + TILE], action[i], age[i] == 0, goal_velocity)
        steps = np.int32(age[i] + np.int32(1))
        tile[i], tile[i + TILE] = position, velocity
        tile[i + 2 * TILE] += gain
        age[i], reward[i] = steps, gain
        terminated[i], truncated[i] = reached, (steps >= limit) & (not reached)
        obs[2 * i], obs[2 * i + 1] = position, velocity


@njit(**KERNEL)
def _draw(
    ended: np.ndarray, episode: np.ndarray, first_world: int, seed_lo: int, seed_hi: int, fresh: np.ndarray
) -> None:
    """The first state of episode[k] of the world ended[k] of this tile, to column k of `fresh`."""
    for k in range(ended.size):
        position, velocity = reset(episode[k], first_world + int(ended[k]), seed_lo, seed_hi)
        fresh[k], fresh[k + TILE] = position, velocity


@njit(**KERNEL)
def _begin(
    ended: np.ndarray,
    fresh: np.ndarray,
    tile: np.ndarray,
    age: np.ndarray,
    episodes: np.ndarray,
    obs: np.ndarray,
    final_obs: np.ndarray,
    episode_return: np.ndarray,
    episode_length: np.ndarray,
) -> None:
    """Close the ended episodes and begin the next ones."""
    for k in range(ended.size):
        i = int(ended[k])
        close_episode(i, 2, 2, tile, age, episodes, obs, final_obs, episode_return, episode_length)
        position, velocity = fresh[k], fresh[k + TILE]
        tile[i], tile[i + TILE] = position, velocity
        obs[2 * i], obs[2 * i + 1] = position, velocity


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
    worlds = ages.size
    tile, fresh, lists = np.empty(3 * TILE), np.empty(2 * TILE + 8), np.zeros((2, TILE + 8), np.int32)
    ended, next_episode = lists[0], lists[1]
    actions, obs, final_obs = actions.reshape(-1), obs.reshape(-1), final_obs.reshape(-1)
    reward, terminated, truncated = reward.reshape(-1), terminated.reshape(-1), truncated.reshape(-1)
    episode_return, episode_length = episode_return.reshape(-1), episode_length.reshape(-1)
    for start in range(lo, hi, TILE):
        size = min(TILE, hi - start)
        load(state, returns, start, size, tile)
        age, episode = window(ages, start, size), window(episodes, start, size)
        for at in range(start, actions.size, worlds):
            lost, cut, now = window(terminated, at, size), window(truncated, at, size), window(obs, 2 * at, 2 * size)
            _move(tile, age, window(actions, at, size), now, window(reward, at, size), lost, cut, parameters)
            over = window(ended, 0, list_ended(lost, cut, ended))
            if over.size > 0:
                drawn = next_episodes(over, episode, next_episode)
                numbers = window(next_episode, 0, drawn)
                _draw(window(ended, 0, drawn), numbers, first_world + start, seed_lo, seed_hi, fresh)
                last, total = window(final_obs, 2 * at, 2 * size), window(episode_return, at, size)
                _begin(over, fresh, tile, age, episode, now, last, total, window(episode_length, at, size))
        store(state, returns, start, size, tile)


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
    """Begin the episode `episodes[i]` in every masked world."""
    obs = obs.reshape(-1)
    for i in range(lo, hi):
        if mask[i]:
            position, velocity = reset(episodes[i], first_world + i, seed_lo, seed_hi)
            ages[i], returns[i] = 0, 0.0
            state[0, i], state[1, i] = position, velocity
            obs[2 * i], obs[2 * i + 1] = position, velocity


def setting(goal_velocity: float = 0.0) -> Setting:
    """`goal_velocity`: how fast the car has to be at the flag."""
    high, low = np.array([MAX_POSITION, MAX_SPEED], F), np.array([MIN_POSITION, -MAX_SPEED], F)
    box, goal = Box(-1.0, 1.0, (1,), F), float(F(number("goal_velocity", goal_velocity)))
    return Setting(Box(low, high, dtype=F), box, box, parameters=(goal,))


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
