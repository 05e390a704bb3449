"""bsuite/DeepSea-v0: dive from the left, a row a step, to the treasure at the bottom right; rules of bsuite 0.3.

The square is seen as its number, which policies turn into the same one-hot row as bsuite's board of 0 and 1; below the
last row, where bsuite's board is empty, it is one more.
"""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Discrete

from stride.envs_fast.arguments import count, flag, number
from stride.envs_fast.bandit import gaussian
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.world import NO_LIMIT, NUMBA, Episode, Moment, Setting, World, between, draw_now
from stride.utils.kernel_cache import njit

LARGEST = 100  # rows: a policy reads as many inputs as there are squares
ROWS, WIDTH = 2, 1  # numbers in a state; numbers in an observation

State = tuple[int, int]  # row and column


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide."""

    size: int
    windy: int  # 0 or 1
    chance: float  # of not getting to the right, in wind
    cost: float  # of a step to the right
    time_limit: int = NO_LIMIT


class Tables(NamedTuple):
    """What the actions mean."""

    right: np.ndarray  # int32 [size, size]: the action that goes to the right


@njit(inline="always")
def step(
    state: State, action: int, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """Sink a row, to the left or to the right; the treasure is 1, wind adds noise to both corners at the bottom."""
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
    """The square at the top left."""
    return 0, 0


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> tuple[int]:
    """The number of the square, row by row."""
    row, column = state
    return (min(row * parameters.size + column, parameters.size * parameters.size),)


def actions_to_the_right(size: int, randomize: bool, seed: int) -> np.ndarray:
    """bsuite's own draw, so that a seed is the same sea here and there."""
    if not randomize:
        return np.ones((size, size), np.int32)
    return np.random.RandomState(seed).binomial(1, 0.5, (size, size)).astype(np.int32)


def setting(
    size: int = 10, deterministic: bool = True, unscaled_move_cost: float = 0.01, randomize_actions: bool = True,
    mapping_seed: int = 42,
) -> Setting:  # fmt: skip
    """`size`: rows and columns. `mapping_seed`: draws for each square which action goes to the right.

    `unscaled_move_cost`: of `size` steps to the right. `deterministic`: without wind and noise. `randomize_actions`:
    else 1 goes to the right everywhere.
    """
    size = count("size", size, 2, LARGEST)
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
