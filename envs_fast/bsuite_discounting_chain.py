"""bsuite/DiscountingChain-v0: the first action decides when the only reward comes; rules of bsuite 0.3.

It comes after 1, 3, 10, 30 or 100 steps and is 1, of one chain 1.1: who discounts too much takes an early one.
"""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from stride.envs_fast.arguments import count
from stride.envs_fast.bsuite_pictures import BLACK, GREEN, WHITE, enlarged, filled
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.world import NO_LIMIT, NUMBA, Episode, Moment, Setting, Tables, World
from stride.utils.kernel_cache import njit

REWARD_STEPS = (1, 3, 10, 30, 100)  # when the reward of each chain comes
CHAINS, LENGTH = 5, 100  # steps of an episode
USUAL, BONUS = 1.0, 1.1
ROWS, WIDTH = 2, 2  # numbers in a state; numbers in an observation

State = tuple[int, int]  # steps of the episode, and the chain: -1 before the first action


class Parameters(NamedTuple):
    """The number that the keyword argument decides."""

    best: int  # the chain that pays more
    time_limit: int = NO_LIMIT


@njit(inline="always")
def reward_step(chain: int) -> int:
    """When the reward of a chain comes."""
    early = REWARD_STEPS[0] if chain == 0 else REWARD_STEPS[1] if chain == 1 else REWARD_STEPS[2]
    return REWARD_STEPS[4] if chain == 4 else REWARD_STEPS[3] if chain == 3 else early


@njit(inline="always")
def step(
    state: State, action: int, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """The first action chooses a chain, the others do nothing."""
    timestep, chain = state
    chain = action if timestep == 0 else chain
    timestep += 1
    pays = BONUS if chain == parameters.best else USUAL
    gain = pays if timestep == reward_step(chain) else 0.0
    return (timestep, chain), gain, timestep >= LENGTH


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> State:
    """No chain yet."""
    return 0, -1


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> tuple[float, float]:
    """The chain, and the share of the episode that is over."""
    timestep, chain = state
    return float(chain), timestep * (1.0 / LENGTH)


def setting(mapping_seed: int = 0) -> Setting:
    """`mapping_seed`: its rest by 5 is the chain that pays more; bsuite's experiment takes 0 to 19."""
    seed = count("mapping_seed", mapping_seed, 0)
    high = np.array([[CHAINS - 1, 1.0]], np.float32)
    return Setting(
        observation_space=Box(np.array([[-1.0, 0.0]], np.float32), high),
        action_space=Discrete(CHAINS),
        parameters=Parameters(seed % CHAINS),
    )


def picture(obs: np.ndarray) -> np.ndarray:
    """A row for each chain, its reward green; white is where the episode is, in all rows before the choice."""
    chain, time = obs.reshape(-1).tolist()
    cells = filled(CHAINS, LENGTH + 1, BLACK)
    cells[range(CHAINS), REWARD_STEPS] = GREEN
    rows = slice(None) if chain < 0 else round(chain)
    cells[rows, round(time * LENGTH)] = WHITE
    return enlarged(cells, 24, 6)


WORLD = World(
    env_id="bsuite/DiscountingChain-v0",
    setting=setting,
    kernels={NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH)},
    state_size=ROWS,
    state_dtype=np.int32,
    picture=picture,
)
