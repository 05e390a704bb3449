"""bsuite/Catch-v0: move a paddle under a ball that falls, on a board of 10 by 5; rules of bsuite 0.3."""

import numpy as np
from gymnasium.spaces import Box, Discrete

from stride.envs_fast import bsuite_pictures
from stride.envs_fast.kernels import grid_kernels_of
from stride.envs_fast.world import NUMBA, Episode, Moment, OnlyLimit, Setting, Tables, World, between, draw
from stride.utils.kernel_cache import njit

HEIGHT, BREADTH = 10, 5  # of the board
BOTTOM = HEIGHT - 1
BALL_X, BALL_Y, PADDLE_X, ROWS = range(4)  # rows of the state
WIDTH = HEIGHT * BREADTH  # numbers that are seen


@njit(inline="always")
def step(state: np.ndarray, action: int, moment: Moment, parameters: OnlyLimit, tables: Tables) -> tuple[float, bool]:
    """Left, stay or right, and the ball falls; at the bottom 1 for the paddle under it, else -1."""
    state[PADDLE_X] = min(max(state[PADDLE_X] + action - 1, 0), BREADTH - 1)
    state[BALL_Y] += 1
    over = state[BALL_Y] == BOTTOM
    gain = 1.0 if state[PADDLE_X] == state[BALL_X] else -1.0
    return gain if over else 0.0, over


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: OnlyLimit, tables: Tables) -> None:
    """The ball above any column, the paddle in the middle."""
    state[BALL_X] = int(between(draw(0, episode)[0], 0.0, BREADTH))
    state[BALL_Y] = 0
    state[PADDLE_X] = BREADTH // 2


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: OnlyLimit) -> None:
    """The board, row by row: 1 where the ball or the paddle is."""
    for square in range(WIDTH):
        seen[square] = 0.0
    seen[BREADTH * state[BALL_Y] + state[BALL_X]] = 1.0
    seen[BREADTH * BOTTOM + state[PADDLE_X]] = 1.0


def setting() -> Setting:
    """There is nothing to choose."""
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
