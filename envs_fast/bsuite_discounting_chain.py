"""bsuite/DiscountingChain-v0: the first action chooses one of five chains, which pay one reward, early or late.

The rules are those of bsuite 0.3. The reward comes after 1, 3, 10, 30 or 100 steps. It is 1, but 1.1 for one chain. An
agent with a low discount factor prefers an early reward of 1 to a late one of 1.1.
"""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from stride.envs_fast.arguments import count
from stride.envs_fast.bsuite_pictures import BLACK, GREEN, WHITE, enlarged, filled
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.world import NO_LIMIT, NUMBA, Episode, Moment, Setting, Tables, World
from stride.utils.kernel_cache import njit

REWARD_STEPS = (1, 3, 10, 30, 100)  # the step after which each chain pays
CHAINS, LENGTH = 5, 100  # number of chains; steps of an episode
USUAL, BONUS = 1.0, 1.1  # rewards: of four chains, and of the best one
ROWS, WIDTH = 2, 2  # numbers in a state; numbers in an observation

State = tuple[int, int]  # steps played in the episode; the chosen chain, -1 before the first action


class Parameters(NamedTuple):
    """The number that the keyword argument decides."""

    best: int  # the chain that pays BONUS
    time_limit: int = NO_LIMIT


@njit(inline="always")
def reward_step(chain: int) -> int:
    """Return the step after which a chain pays."""
    early = REWARD_STEPS[0] if chain == 0 else REWARD_STEPS[1] if chain == 1 else REWARD_STEPS[2]
    return REWARD_STEPS[4] if chain == 4 else REWARD_STEPS[3] if chain == 3 else early


@njit(inline="always")
def step(
    state: State, action: int, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """Choose a chain with the first action; later actions have no effect."""
    timestep, chain = state
    chain = action if timestep == 0 else chain
    timestep += 1
    pays = BONUS if chain == parameters.best else USUAL
    gain = pays if timestep == reward_step(chain) else 0.0
    return (timestep, chain), gain, timestep >= LENGTH


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> State:
    """Begin without a chain."""
    return 0, -1


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> tuple[float, float]:
    """Return the chain (-1 before the choice), and the part of the episode that is over, 0 to 1."""
    timestep, chain = state
    return float(chain), timestep * (1.0 / LENGTH)


def setting(mapping_seed: int = 0) -> Setting:
    """`mapping_seed`: chain `mapping_seed % 5` pays 1.1; bsuite's experiment uses 0 to 19."""
    seed = count("mapping_seed", mapping_seed, 0)
    high = np.array([[CHAINS - 1, 1.0]], np.float32)
    return Setting(
        observation_space=Box(np.array([[-1.0, 0.0]], np.float32), high),
        action_space=Discrete(CHAINS),
        parameters=Parameters(seed % CHAINS),
    )


def picture(obs: np.ndarray) -> np.ndarray:
    """Draw a row for each chain: its reward green, the present step white, in all rows before the choice."""
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
