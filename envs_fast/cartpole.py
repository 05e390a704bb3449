"""CartPole-v1: balance a pole on a cart that is pushed left or right (Barto, Sutton, Anderson 1983).

Physics of Gymnasium's CartPoleEnv in float64, explicit Euler; observations float32.
"""

import math
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from envs_fast.tiles import MOVE, begin, play
from envs_fast.world import KERNEL, Setting, World, between, draw
from utils.kernel_cache import njit
from utils.simd_math import mul_add, sincos_near_zero

GRAVITY, MASS_CART, MASS_POLE, LENGTH, FORCE, TAU = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02  # length is half the pole's
TOTAL_MASS = MASS_POLE + MASS_CART
POLEMASS_LENGTH = MASS_POLE * LENGTH
PULL = POLEMASS_LENGTH / TOTAL_MASS
INERTIA, SHARE = LENGTH * (4.0 / 3.0), LENGTH * MASS_POLE / TOTAL_MASS
X_LIMIT, THETA_LIMIT = 2.4, 12 * 2 * math.pi / 360
RESET = 0.05


@njit(inline="always")
def step(
    x: float, x_dot: float, theta: float, theta_dot: float, action: int
) -> tuple[float, float, float, float, bool]:
    """One step of the physics from an angle within 12 degrees; the new state and whether the pole or the cart is lost.

    Rounded as Gymnasium does where a last bit can be seen within 4 ulp of a velocity, fused where it cannot.
    """
    force = FORCE if action == 1 else -FORCE
    sine, cosine = sincos_near_zero(theta)
    temp = mul_add(POLEMASS_LENGTH * (theta_dot * theta_dot), sine, force) / TOTAL_MASS
    theta_acc = (GRAVITY * sine - cosine * temp) / mul_add(-SHARE, cosine * cosine, INERTIA)
    x_acc = mul_add(-PULL * cosine, theta_acc, temp)
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


@njit(inline="always")
def observe(state: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """What is seen of a state: all of it."""
    return state


@njit(**MOVE)
def _move(
    x: np.ndarray,
    x_dot: np.ndarray,
    theta: np.ndarray,
    theta_dot: np.ndarray,
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
    limit, reward_on, reward_lost = np.int32(parameters[0]), parameters[1], parameters[2]
    for i in range(age.size):
        x[i], x_dot[i], theta[i], theta_dot[i], lost = step(x[i], x_dot[i], theta[i], theta_dot[i], action[i])
        gain = reward_lost if lost else reward_on
        steps = np.int32(age[i] + np.int32(1))
        total[i] += gain
        age[i], reward[i] = steps, gain
        terminated[i], truncated[i] = lost, (steps >= limit) & (not lost)
        obs[4 * i], obs[4 * i + 1], obs[4 * i + 2], obs[4 * i + 3] = x[i], x_dot[i], theta[i], theta_dot[i]


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
    play(
        _move, reset, observe, 4, 4, state, ages, episodes, returns, lo, hi, first_world, seed_lo, seed_hi, parameters,
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
    begin(reset, observe, 4, 4, state, ages, episodes, returns, lo, hi, first_world, seed_lo, seed_hi, mask, obs)


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
