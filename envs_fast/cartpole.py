"""CartPole-v1: balance a pole on a cart that is pushed left or right (Barto, Sutton, Anderson 1983).

Physics of Gymnasium's CartPoleEnv in float64, explicit Euler; observations float32.
"""

import math
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from envs_fast.tiles import close_episode, load, next_episodes, store, window
from envs_fast.world import KERNEL, TILE, Setting, World, between, draw, list_ended
from utils.kernel_cache import njit
from utils.simd_math import sincos_near_zero

GRAVITY, MASS_CART, MASS_POLE, LENGTH, FORCE, TAU = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02  # length is half the pole's
TOTAL_MASS = MASS_POLE + MASS_CART
POLEMASS_LENGTH = MASS_POLE * LENGTH
X_LIMIT, THETA_LIMIT = 2.4, 12 * 2 * math.pi / 360
RESET = 0.05


@njit(inline="always")
def step(
    x: float, x_dot: float, theta: float, theta_dot: float, action: int
) -> tuple[float, float, float, float, bool]:
    """One step of the physics from an angle within pi / 4; the new state and whether the pole or the cart is lost."""
    force = FORCE if action == 1 else -FORCE
    sine, cosine = sincos_near_zero(theta)
    temp = (force + POLEMASS_LENGTH * (theta_dot * theta_dot) * sine) / TOTAL_MASS
    theta_acc = (GRAVITY * sine - cosine * temp) / (LENGTH * (4.0 / 3.0 - MASS_POLE * (cosine * cosine) / TOTAL_MASS))
    x_acc = temp - POLEMASS_LENGTH * theta_acc * cosine / TOTAL_MASS
    x = x + TAU * x_dot
    x_dot = x_dot + TAU * x_acc
    theta = theta + TAU * theta_dot
    theta_dot = theta_dot + TAU * theta_acc
    lost = (abs(x) > X_LIMIT) | (abs(theta) > THETA_LIMIT)
    return x, x_dot, theta, theta_dot, lost


@njit(inline="always")
def reset(episode: int, world: int, seed_lo: int, seed_hi: int) -> tuple[float, float, float, float]:
    """The first state of an episode: four uniforms in +-0.05."""
    a, b, c, d = draw(0, episode, world, seed_lo, seed_hi)
    return between(a, -RESET, RESET), between(b, -RESET, RESET), between(c, -RESET, RESET), between(d, -RESET, RESET)


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
    limit, reward_on, reward_lost = np.int32(parameters[0]), parameters[1], parameters[2]
    for i in range(age.size):
        x, x_dot, theta, theta_dot, lost = step(
            tile[i], tile[i + TILE], tile[i + 2 * TILE], tile[i + 3 * TILE], action[i]
        )
        gain = reward_lost if lost else reward_on
        steps = np.int32(age[i] + np.int32(1))
        tile[i], tile[i + TILE], tile[i + 2 * TILE], tile[i + 3 * TILE] = x, x_dot, theta, theta_dot
        tile[i + 4 * TILE] += gain
        age[i], reward[i] = steps, gain
        terminated[i], truncated[i] = lost, (steps >= limit) & (not lost)
        obs[4 * i], obs[4 * i + 1], obs[4 * i + 2], obs[4 * i + 3] = x, x_dot, theta, theta_dot


@njit(**KERNEL)
def _draw(
    ended: np.ndarray, episode: np.ndarray, first_world: int, seed_lo: int, seed_hi: int, fresh: np.ndarray
) -> None:
    """The first state of episode[k] of the world ended[k] of this tile, to column k of `fresh`."""
    for k in range(ended.size):
        x, x_dot, theta, theta_dot = reset(episode[k], first_world + int(ended[k]), seed_lo, seed_hi)
        fresh[k], fresh[k + TILE], fresh[k + 2 * TILE], fresh[k + 3 * TILE] = x, x_dot, theta, theta_dot


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
        close_episode(i, 4, 4, tile, age, episodes, obs, final_obs, episode_return, episode_length)
        x, x_dot, theta, theta_dot = fresh[k], fresh[k + TILE], fresh[k + 2 * TILE], fresh[k + 3 * TILE]
        tile[i], tile[i + TILE], tile[i + 2 * TILE], tile[i + 3 * TILE] = x, x_dot, theta, theta_dot
        obs[4 * i], obs[4 * i + 1], obs[4 * i + 2], obs[4 * i + 3] = x, x_dot, theta, theta_dot


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
    """The batched kernel; world.py says what the arrays are. parameters: time limit, reward going on, reward lost."""
    worlds = ages.size
    tile, fresh, lists = np.empty(5 * TILE), np.empty(4 * TILE + 8), np.zeros((2, TILE + 8), np.int32)
    ended, next_episode = lists[0], lists[1]
    actions, obs, final_obs = actions.reshape(-1), obs.reshape(-1), final_obs.reshape(-1)
    reward, terminated, truncated = reward.reshape(-1), terminated.reshape(-1), truncated.reshape(-1)
    episode_return, episode_length = episode_return.reshape(-1), episode_length.reshape(-1)
    for start in range(lo, hi, TILE):
        size = min(TILE, hi - start)
        load(state, returns, start, size, tile)
        age, episode = window(ages, start, size), window(episodes, start, size)
        for at in range(start, actions.size, worlds):
            lost, cut, now = window(terminated, at, size), window(truncated, at, size), window(obs, 4 * at, 4 * size)
            _move(tile, age, window(actions, at, size), now, window(reward, at, size), lost, cut, parameters)
            over = window(ended, 0, list_ended(lost, cut, ended))
            if over.size > 0:
                drawn = next_episodes(over, episode, next_episode)
                numbers = window(next_episode, 0, drawn)
                _draw(window(ended, 0, drawn), numbers, first_world + start, seed_lo, seed_hi, fresh)
                last, total = window(final_obs, 4 * at, 4 * size), window(episode_return, at, size)
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
    for i in range(lo, hi):
        if mask[i]:
            first = reset(episodes[i], first_world + i, seed_lo, seed_hi)
            ages[i], returns[i] = 0, 0.0
            for j in range(4):
                state[j, i] = first[j]
                obs[i, j] = first[j]


def setting(sutton_barto_reward: bool = False) -> Setting:
    """`sutton_barto_reward`: 0 per step and -1 for losing the pole, instead of 1 per step."""
    high = np.array([2 * X_LIMIT, np.inf, 2 * THETA_LIMIT, np.inf], np.float32)
    return Setting(
        observation_space=Box(-high, high, dtype=np.float32),
        action_space=Discrete(2),
        parameters=(0.0, -1.0) if sutton_barto_reward else (1.0, 1.0),
    )


def gym_state(column: np.ndarray) -> dict[str, Any]:
    """What to set on Gymnasium's environment so that it draws this state."""
    return {"state": column.copy(), "steps_beyond_terminated": None}


WORLD = World(
    env_id="CartPole-v1",
    setting=setting,
    advance=advance,
    restart=restart,
    state_size=4,
    gym_state=gym_state,
    time_limit=500,
    reward_threshold=475.0,
)
