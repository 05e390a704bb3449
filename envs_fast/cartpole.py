"""CartPole-v1: balance a pole on a cart that is pushed left or right (Barto, Sutton, Anderson 1983).

Physics of Gymnasium's CartPoleEnv in float64, explicit Euler; observations float32.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.world import NO_LIMIT, NUMBA, Episode, Moment, Setting, Tables, World, between, draw
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import mul_add, sincos_near_zero

GRAVITY, MASS_CART, MASS_POLE, LENGTH, FORCE, TAU = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02  # LENGTH is half the pole's
TOTAL_MASS = MASS_POLE + MASS_CART
POLEMASS_LENGTH = MASS_POLE * LENGTH
# constant factors of Gymnasium's formulas
PULL = POLEMASS_LENGTH / TOTAL_MASS
INERTIA, SHARE = LENGTH * (4.0 / 3.0), LENGTH * MASS_POLE / TOTAL_MASS
X_LIMIT, THETA_LIMIT = 2.4, 12 * 2 * math.pi / 360
RESET = 0.05
ROWS, WIDTH = 4, 4  # numbers in a state; numbers in an observation

State = tuple[float, float, float, float]


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide."""

    reward: float  # of a step after which the pole still stands
    reward_lost: float  # of the step in which it is lost
    time_limit: int = NO_LIMIT


@njit(inline="always")
def step(
    state: State, action: int, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """Play one step; the angle before it is within 12 degrees. The episode ends when the pole or the cart is lost.

    Velocities are within 4 ulp of Gymnasium's: products and sums are fused (mul_add) only where that stays true.
    """
    x, x_dot, theta, theta_dot = state
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
    return (x, x_dot, theta, theta_dot), parameters.reward_lost if lost else parameters.reward, lost


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> State:
    """Draw the first state of an episode: four uniforms in +-0.05."""
    a, b, c, d = draw(0, episode)
    return between(a, -RESET, RESET), between(b, -RESET, RESET), between(c, -RESET, RESET), between(d, -RESET, RESET)


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> State:
    """Return the observation: the complete state."""
    return state


def setting(sutton_barto_reward: bool = False) -> Setting:
    """`sutton_barto_reward`: 0 per step and -1 for losing the pole, instead of 1 per step."""
    high = np.array([2 * X_LIMIT, np.inf, 2 * THETA_LIMIT, np.inf], np.float32)
    return Setting(
        observation_space=Box(-high, high, dtype=np.float32),
        action_space=Discrete(2),
        parameters=Parameters(0.0, -1.0) if sutton_barto_reward else Parameters(1.0, 1.0),
    )


def gym_state(column: np.ndarray) -> dict[str, Any]:
    """Return the attributes that set this state in Gymnasium's environment."""
    return {"state": column.copy(), "steps_beyond_terminated": None}


WORLD = World(
    env_id="CartPole-v1",
    setting=setting,
    kernels={NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH)},
    state_size=ROWS,
    gym_state=gym_state,
    time_limit=500,
    reward_threshold=475.0,
)
