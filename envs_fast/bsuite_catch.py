"""bsuite/Catch-v0: move a paddle so that it catches a falling ball, on a board of 10 rows and 5 columns.

The rules are those of bsuite 0.3. An episode has nine steps; only the last one pays, 1 or -1.
"""

import numpy as np
from gymnasium.spaces import Box, Discrete

from stride.envs_fast import bsuite_pictures
from stride.envs_fast.kernels import grid_kernels_of
from stride.envs_fast.world import NUMBA, Episode, Moment, OnlyLimit, Setting, Tables, World, between, draw
from stride.utils.kernel_cache import njit

HEIGHT, BREADTH = 10, 5  # squares of the board
BOTTOM = HEIGHT - 1  # the row of the paddle
BALL_X, BALL_Y, PADDLE_X, ROWS = range(4)  # indices in the state, and its size
WIDTH = HEIGHT * BREADTH  # numbers in an observation


@njit(inline="always")
def step(state: np.ndarray, action: int, moment: Moment, parameters: OnlyLimit, tables: Tables) -> tuple[float, bool]:
    """Move the paddle (0 left, 1 stay, 2 right), then the ball a row down. At the bottom: 1 if caught, else -1."""
    state[PADDLE_X] = min(max(state[PADDLE_X] + action - 1, 0), BREADTH - 1)
    state[BALL_Y] += 1
    over = state[BALL_Y] == BOTTOM
    gain = 1.0 if state[PADDLE_X] == state[BALL_X] else -1.0
    return gain if over else 0.0, over


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: OnlyLimit, tables: Tables) -> None:
    """Put the ball at the top of a random column, and the paddle in the middle."""
    state[BALL_X] = int(between(draw(0, episode)[0], 0.0, BREADTH))
    state[BALL_Y] = 0
    state[PADDLE_X] = BREADTH // 2


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: OnlyLimit) -> None:
    """Write the board, row by row: 1 where the ball or the paddle is, else 0."""
    for square in range(WIDTH):
        seen[square] = 0.0
    seen[BREADTH * state[BALL_Y] + state[BALL_X]] = 1.0
    seen[BREADTH * BOTTOM + state[PADDLE_X]] = 1.0


def setting() -> Setting:
    """Return the only setting: Catch has no keyword arguments."""
    return Setting(Box(0.0, 1.0, (HEIGHT, BREADTH), np.float32), Discrete(3))


WORLD = World(
    env_id="bsuite/Catch-v0",
    setting=setting,
    kernels={NUMBA: grid_kernels_of(step, reset, observe, WIDTH)},
    state_size=ROWS,
    state_dtype=np.int32,
    by_world=True,
    picture=bsuite_pictures.board,
)
