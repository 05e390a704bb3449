"""Acrobot-v1: two links hang from a joint; torque on the elbow has to swing the tip above the bar (Sutton 1996).

Physics of Gymnasium's AcrobotEnv ("book" dynamics) in float64: one Runge-Kutta step of 0.2 s; observations float32.
"""

import math

import numpy as np
from gymnasium.spaces import Box, Discrete

from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.world import (
    NUMBA,
    Episode,
    Moment,
    OnlyLimit,
    Setting,
    Tables,
    World,
    between,
    draw,
    plain_gym_state,
)
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import cos, sincos

DT, LENGTH_1, COM_1, COM_2, GRAVITY = 0.2, 1.0, 0.5, 0.5, 9.8  # masses and moments of inertia are 1
MAX_SPEED_1, MAX_SPEED_2 = 4 * math.pi, 9 * math.pi
RESET = 0.1  # first angles (rad) and speeds (rad/s) are uniform in +-RESET
WRAPS = 6  # how often an angle is wrapped: a step turns a link by less than 26 rad, so 6 times 2 pi are enough
ROWS, WIDTH = 4, 6  # numbers in a state; numbers in an observation

State = tuple[float, float, float, float]


@njit(forceinline=True, error_model="numpy", fastmath={"nsz"})
def slopes(theta_1: float, theta_2: float, speed_1: float, speed_2: float, torque: float) -> State:
    """Return the time derivative of the state; products are in Gymnasium's order, factors of 1 are left out.

    Compiled without the fastmath flag "arcp", which would turn the three divisions by d1 into products: later steps
    enlarge that difference in rounding.
    """
    sine, cosine = sincos(theta_2)
    d1 = COM_1**2 + (LENGTH_1**2 + COM_2**2 + 2 * LENGTH_1 * COM_2 * cosine) + 1.0 + 1.0
    d2 = (COM_2**2 + LENGTH_1 * COM_2 * cosine) + 1.0
    phi_2 = COM_2 * GRAVITY * cos(theta_1 + theta_2 - math.pi / 2.0)
    phi_1 = (
        -LENGTH_1 * COM_2 * (speed_2 * speed_2) * sine
        - 2 * LENGTH_1 * COM_2 * speed_2 * speed_1 * sine
        + (COM_1 + LENGTH_1) * GRAVITY * cos(theta_1 - math.pi / 2)
        + phi_2
    )
    acceleration_2 = (torque + d2 / d1 * phi_1 - LENGTH_1 * COM_2 * (speed_1 * speed_1) * sine - phi_2) / (
        COM_2**2 + 1.0 - d2 * d2 / d1
    )
    acceleration_1 = -(d2 * acceleration_2 + phi_1) / d1
    return speed_1, speed_2, acceleration_1, acceleration_2


@njit(inline="always")
def wrap(angle: float) -> float:
    """Return the angle wrapped to [-pi, pi], one turn at a time, so that each subtraction rounds as in Gymnasium."""
    size = abs(angle)
    for _ in range(WRAPS):
        size = size - 2.0 * math.pi if size > math.pi else size
    return -size if angle < 0.0 else size


@njit(inline="always")
def step(state: State, action: int, moment: Moment, parameters: OnlyLimit, tables: Tables) -> tuple[State, float, bool]:
    """Play one Runge-Kutta step from angles (a, b) and speeds (c, d); it ends when the tip is above the bar."""
    a, b, c, d = state
    torque = np.float64(np.int32(action) - np.int32(1))
    half = DT / 2.0
    p1, q1, r1, s1 = slopes(a, b, c, d, torque)
    p2, q2, r2, s2 = slopes(a + half * p1, b + half * q1, c + half * r1, d + half * s1, torque)
    p3, q3, r3, s3 = slopes(a + half * p2, b + half * q2, c + half * r2, d + half * s2, torque)
    p4, q4, r4, s4 = slopes(a + DT * p3, b + DT * q3, c + DT * r3, d + DT * s3, torque)
    a = wrap(a + DT / 6.0 * (p1 + 2.0 * p2 + 2.0 * p3 + p4))
    b = wrap(b + DT / 6.0 * (q1 + 2.0 * q2 + 2.0 * q3 + q4))
    c = min(max(c + DT / 6.0 * (r1 + 2.0 * r2 + 2.0 * r3 + r4), -MAX_SPEED_1), MAX_SPEED_1)
    d = min(max(d + DT / 6.0 * (s1 + 2.0 * s2 + 2.0 * s3 + s4), -MAX_SPEED_2), MAX_SPEED_2)
    above = -cos(a) - cos(b + a) > 1.0
    return (a, b, c, d), 0.0 if above else -1.0, above


@njit(inline="always")
def reset(episode: Episode, parameters: OnlyLimit, tables: Tables) -> State:
    """Draw the first state of an episode: four uniforms in +-0.1, rounded to float32 as Gymnasium does."""
    a, b, c, d = draw(0, episode)
    return (
        np.float64(np.float32(between(a, -RESET, RESET))),
        np.float64(np.float32(between(b, -RESET, RESET))),
        np.float64(np.float32(between(c, -RESET, RESET))),
        np.float64(np.float32(between(d, -RESET, RESET))),
    )


@njit(inline="always")
def observe(state: State, parameters: OnlyLimit) -> tuple[float, float, float, float, float, float]:
    """Return the observation: cosine and sine of each angle, and the speeds."""
    a, b, c, d = state
    sine_1, cosine_1 = sincos(a)
    sine_2, cosine_2 = sincos(b)
    return cosine_1, sine_1, cosine_2, sine_2, c, d


def setting() -> Setting:
    """There are no arguments."""
    high = np.array([1.0, 1.0, 1.0, 1.0, MAX_SPEED_1, MAX_SPEED_2], np.float32)
    return Setting(Box(-high, high, dtype=np.float32), Discrete(3))


def recall(obs: np.ndarray) -> np.ndarray:
    """Return a state that has this observation."""
    return np.array([math.atan2(obs[1], obs[0]), math.atan2(obs[3], obs[2]), obs[4], obs[5]])


WORLD = World(
    recall=recall,
    setting=setting,
    kernels={NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH)},
    state_size=ROWS,
    gym_state=plain_gym_state,
    env_id="Acrobot-v1",
    time_limit=500,
    reward_threshold=-100.0,
    compile_seconds=15,
)
