"""popgym-PositionOnlyCartPole*-v0: CartPole whose observation has no velocities, so an agent needs memory.

The rules are those of POPGym 1.0, the physics that of cartpole.py. Every step pays 1 / (the level's time limit), also
the step in which the pole falls: an episode up to the limit returns 1.
"""

from dataclasses import replace
from functools import partial

import numpy as np
from gymnasium.spaces import Box, Discrete

from stride.envs_fast import popgym_pictures
from stride.envs_fast.cartpole import ROWS, THETA_LIMIT, X_LIMIT, Parameters, State
from stride.envs_fast.cartpole import reset as first_state
from stride.envs_fast.cartpole import step as push
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.popgym_deck import LEVELS
from stride.envs_fast.world import NUMBA, Episode, Moment, Setting, Tables, World
from stride.utils.kernel_cache import njit

SEEN = 2  # numbers in an observation
LIMITS = (200, 400, 600)  # steps of an episode: Easy, Medium, Hard


@njit(inline="always")
def step(
    state: State, action: int, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """Play one step of CartPole (cartpole.py); its rewards are in `parameters`."""
    return push(state, action, moment, parameters, tables)


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> State:
    """Draw the first state as CartPole does."""
    return first_state(episode, parameters, tables)


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> tuple[float, float]:
    """Return the observation: the cart's position and the pole's angle."""
    x, _, theta, _ = state
    return x, theta


def setting(limit: int) -> Setting:
    """Return the setting of a level whose episodes have at most `limit` steps."""
    high = np.array([2 * X_LIMIT, 2 * THETA_LIMIT], np.float32)
    return Setting(
        observation_space=Box(-high, high, dtype=np.float32),
        action_space=Discrete(2),
        parameters=Parameters(1.0 / limit, 1.0 / limit),
    )


WORLD = World(
    env_id="popgym-PositionOnlyCartPole-v0",
    setting=partial(setting, LIMITS[0]),
    kernels={NUMBA: kernels_of(step, reset, observe, ROWS, SEEN)},
    state_size=ROWS,
    picture=popgym_pictures.cart,
)
WORLDS = tuple(
    replace(WORLD, env_id=f"popgym-PositionOnlyCartPole{level}-v0", setting=partial(setting, limit), time_limit=limit)
    for level, limit in zip(LEVELS, LIMITS, strict=True)
)
