"""popgym-PositionOnlyPendulum*-v0: Pendulum whose observation has no speed, so an agent needs memory.

The rules are those of POPGym 1.0, the physics that of pendulum.py. A step pays Pendulum's reward, shifted and scaled to
[-1, 1], divided by the level's time limit: an episode returns between -1 and 1.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box

from stride.envs_fast import popgym_pictures
from stride.envs_fast.arguments import number
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.pendulum import LENGTH, MAX_TORQUE, ROWS, State
from stride.envs_fast.pendulum import reset as first_state
from stride.envs_fast.pendulum import step as swing
from stride.envs_fast.popgym_deck import LEVELS
from stride.envs_fast.world import NO_LIMIT, NUMBA, Episode, Moment, Setting, Tables, World
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import sincos

SEEN = 2  # numbers in an observation
HALF = 16.2736044 / 2  # half the largest cost of a step, which is pi**2 + 0.1 * 8**2 + 0.001 * 2**2
LIMITS = (200, 150, 100)  # steps of an episode: Easy, Medium, Hard; a longer episode is easier


class Parameters(NamedTuple):
    """The numbers that the level and the keyword argument decide."""

    pull: float  # 3 g / (2 LENGTH)
    scale: float  # factor from (HALF - cost) to the reward
    time_limit: int = NO_LIMIT


@njit(inline="always")
def step(
    state: State, action: np.float32, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """Play one step of Pendulum (pendulum.py) and return POPGym's reward for it."""
    following, reward, over = swing(state, action, moment, parameters, tables)
    return following, (HALF + reward) * parameters.scale, over


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> State:
    """Draw the first state as Pendulum does."""
    return first_state(episode, parameters, tables)


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> tuple[float, float]:
    """Return the observation: cosine and sine of the angle."""
    theta, _ = state
    sine, cosine = sincos(theta)
    return cosine, sine


def setting(limit: int, g: float = 10.0) -> Setting:
    """Return the setting of a level whose episodes have `limit` steps. `g`: the acceleration of gravity."""
    return Setting(
        observation_space=Box(-1.0, 1.0, (SEEN,), np.float32),
        action_space=Box(-1.0, 1.0, (1,), np.float32),
        gym_action_space=Box(-MAX_TORQUE, MAX_TORQUE, (1,), np.float32),
        parameters=Parameters(3 * number("g", g) / (2 * LENGTH), 1.0 / (HALF * limit)),
    )


WORLD = World(
    env_id="popgym-PositionOnlyPendulum-v0",
    setting=partial(setting, LIMITS[0]),
    kernels={NUMBA: kernels_of(step, reset, observe, ROWS, SEEN)},
    state_size=ROWS,
    picture=popgym_pictures.pendulum,
)
WORLDS = tuple(
    replace(WORLD, env_id=f"popgym-PositionOnlyPendulum{level}-v0", setting=partial(setting, limit), time_limit=limit)
    for level, limit in zip(LEVELS, LIMITS, strict=True)
)
