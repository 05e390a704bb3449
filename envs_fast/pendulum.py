"""Pendulum-v1: swing a pendulum up with a motor too weak to lift it, and hold it there.

Physics of Gymnasium's PendulumEnv in float64, with the float32 arithmetic it does on the action; observations float32.
"""

import math
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from envs_fast.arguments import number
from envs_fast.tiles import MOVE, begin, play
from envs_fast.world import KERNEL, Setting, World, between, draw
from utils.kernel_cache import njit
from utils.simd_math import round_down, sin, sincos

MAX_SPEED, MAX_TORQUE, DT, LENGTH = 8.0, 2.0, 0.05, 1.0  # the mass is 1
TURN = (6.283185303211212, 2.0 * math.pi - 6.283185303211212)  # 2 pi as 33 + 20 bits: multiples are exact
RESET_THETA, RESET_SPEED = math.pi, 1.0


@njit(inline="always")
def angle_normalize(theta: float) -> float:
    """The same angle in [-pi, pi)."""
    shifted = theta + math.pi
    turns = round_down(shifted * (1.0 / (2.0 * math.pi)))
    return ((shifted - turns * TURN[0]) - turns * TURN[1]) - math.pi


@njit(inline="always")
def step(theta: float, speed: float, action: np.float32, pull: float) -> tuple[float, float, float]:
    """One step for an action in units of the torque's bounds: the new angle, not wrapped, the speed, the reward."""
    torque = np.float32(2.0) * min(max(action, np.float32(-1.0)), np.float32(1.0))
    angle = angle_normalize(theta)
    effort = np.float64(np.float32(0.001) * (torque * torque))
    cost = (angle * angle + 0.1 * (speed * speed)) + effort
    lift = np.float64(np.float32(3.0) * torque)
    speed = speed + (pull * sin(theta) + lift) * DT
    speed = min(max(speed, -MAX_SPEED), MAX_SPEED)
    return theta + speed * DT, speed, -cost


@njit(inline="always")
def reset(episode: int, world: int, seed_lo: int, seed_hi: int) -> tuple[float, float]:
    """The first state of an episode: any angle, a speed within 1."""
    a, b, _, _ = draw(0, episode, world, seed_lo, seed_hi)
    return between(a, -RESET_THETA, RESET_THETA), between(b, -RESET_SPEED, RESET_SPEED)


@njit(inline="always")
def observe(state: tuple[float, float]) -> tuple[float, float, float]:
    """What is seen of a state: cosine and sine of the angle, and the speed."""
    theta, speed = state
    sine, cosine = sincos(theta)
    return cosine, sine, speed


@njit(**MOVE)
def _move(
    theta: np.ndarray,
    speed: np.ndarray,
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
    limit, pull = np.int32(parameters[0]), parameters[1]
    for i in range(age.size):
        theta[i], speed[i], gain = step(theta[i], speed[i], action[i], pull)
        steps = np.int32(age[i] + np.int32(1))
        total[i] += gain
        age[i], reward[i] = steps, gain
        terminated[i], truncated[i] = False, steps >= limit
        obs[3 * i], obs[3 * i + 1], obs[3 * i + 2] = observe((theta[i], speed[i]))


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
    """The batched kernel; world.py says what the arrays are. parameters: time limit, 3 g / (2 l)."""
    play(
        _move, reset, observe, 2, 3, state, ages, episodes, returns, lo, hi, first_world, seed_lo, seed_hi, parameters,
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
    begin(reset, observe, 2, 3, state, ages, episodes, returns, lo, hi, first_world, seed_lo, seed_hi, mask, obs)


def setting(g: float = 10.0) -> Setting:
    """`g`: the acceleration of gravity."""
    high = np.array([1.0, 1.0, MAX_SPEED], np.float32)
    return Setting(
        observation_space=Box(-high, high, dtype=np.float32),
        action_space=Box(-1.0, 1.0, (1,), np.float32),
        gym_action_space=Box(-MAX_TORQUE, MAX_TORQUE, (1,), np.float32),
        parameters=(3 * number("g", g) / (2 * LENGTH),),
    )


def gym_state(column: np.ndarray) -> dict[str, Any]:
    """What to set on Gymnasium's environment so that it draws this state."""
    return {"state": column.copy(), "last_u": None}


def recall(obs: np.ndarray) -> np.ndarray:
    """A state that is seen so."""
    return np.array([math.atan2(obs[1], obs[0]), obs[2]])


WORLD = World(
    recall=recall,
    setting=setting,
    advance=advance,
    restart=restart,
    state_size=2,
    gym_state=gym_state,
    env_id="Pendulum-v1",
    time_limit=200,
)
