"""bsuite/DeepSea-v0: dive from the top left, a row a step, to a treasure at the bottom right; tests exploration.

The rules are those of bsuite 0.3. A step to the right costs a little, and only an agent that goes right in every row
gets the treasure (reward 1).

The observation is the number of the square, row * size + column. Policies turn it into a one-hot vector, which equals
bsuite's board of 0 and 1. After the last row, where bsuite's board is all 0, it is size * size.
"""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Discrete

from stride.envs_fast.arguments import count, flag, number
from stride.envs_fast.bandit import gaussian
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.world import NO_LIMIT, NUMBA, Episode, Moment, Setting, World, between, draw_now
from stride.utils.kernel_cache import njit

MAX_SIZE = 100  # rows and columns; a policy has an input for each of size * size squares
ROWS, WIDTH = 2, 1  # numbers in a state; numbers in an observation

State = tuple[int, int]  # row and column


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide."""

    size: int
    windy: int  # 0 or 1
    chance: float  # in wind: the probability that a step to the right has no effect
    cost: float  # of a step to the right, taken off the reward
    time_limit: int = NO_LIMIT


class Tables(NamedTuple):
    """What the actions mean."""

    right: np.ndarray  # int32 [size, size]: the action (0 or 1) that goes right from this square


@njit(inline="always")
def step(
    state: State, action: int, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """Go down a row and a column to the left or right. The episode ends after the last row.

    Wind makes some steps to the right go straight down, and adds noise to the reward in both bottom corners.
    """
    row, column = state
    last = parameters.size - 1
    right = action == tables.right[row, column]
    gain = 1.0 if right and column == last else 0.0
    goes = right
    if parameters.windy:
        goes = right and between(draw_now(moment)[2], 0.0, 1.0) > parameters.chance
        noise = gaussian(moment.age, moment.episode)
        gain += noise if row == last and (column == 0 or column == last) else 0.0
    gain -= parameters.cost if right else 0.0
    column += 1 if goes else 0 if right else -1
    return (row + 1, min(max(column, 0), last)), gain, row >= last


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> State:
    """Begin at the top left."""
    return 0, 0


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> tuple[int]:
    """Return the number of the square; size * size after the last row."""
    row, column = state
    return (min(row * parameters.size + column, parameters.size * parameters.size),)


def actions_to_the_right(size: int, randomize: bool, seed: int) -> np.ndarray:
    """Return for each square the action that goes right, int32 [size, size], drawn from the seed as in bsuite."""
    if not randomize:
        return np.ones((size, size), np.int32)
    return np.random.RandomState(seed).binomial(1, 0.5, (size, size)).astype(np.int32)


def setting(
    size: int = 10, deterministic: bool = True, unscaled_move_cost: float = 0.01, randomize_actions: bool = True,
    mapping_seed: int = 42,
) -> Setting:  # fmt: skip
    """`size`: rows and columns, 2 to 100. `deterministic`: no wind and no noise.

    `unscaled_move_cost`: what `size` steps to the right cost together. `randomize_actions`: `mapping_seed` decides for
    each square which action goes right; without it, action 1 does everywhere.
    """
    size = count("size", size, 2, MAX_SIZE)
    seed = count("mapping_seed", mapping_seed, 0, 2**32 - 1)
    windy = int(not flag("deterministic", deterministic))
    cost = number("unscaled_move_cost", unscaled_move_cost) / size
    right = actions_to_the_right(size, flag("randomize_actions", randomize_actions), seed)
    return Setting(
        observation_space=Discrete(size * size + 1),
        action_space=Discrete(2),
        parameters=Parameters(size, windy, 1.0 / size, cost),
        tables=Tables(right),
    )


WORLD = World(
    env_id="bsuite/DeepSea-v0",
    setting=setting,
    kernels={NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH)},
    state_size=ROWS,
    state_dtype=np.int32,
)
