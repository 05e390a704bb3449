"""MinAtar/Breakout: keep a ball that flies along diagonals in play with a paddle, and break three rows of bricks.

A brick gives 1; when none is left the wall is complete again. The episode ends when the ball passes the paddle.
"""

import numpy as np

from stride.envs_fast.kernels import grid_kernels_of
from stride.envs_fast.minatar.game import (
    BEFORE,
    EDGE,
    LEFT,
    NOTHING,
    RIGHT,
    SIDE,
    Parameters,
    Tables,
    carried_out,
    darken,
    light,
    light_row,
    worlds_of,
)
from stride.envs_fast.world import NUMBA, Episode, Moment, draw, draw_now
from stride.utils.kernel_cache import njit

PADDLE, BALL, TRAIL, BRICK, PLANES = range(5)  # planes of the observation
# indices in the state; the direction is 0 to 3: up left, up right, down right, down left
POSITION, BALL_X, BALL_Y, DIRECTION, LAST_X, LAST_Y, IN_WALL, WALL, ROWS = range(1, 10)
TOP, BOTTOM = 1, 3  # first and last row with bricks; the brick at x, y is bit 10 * (y - TOP) + x of the wall
WHOLE = (1 << 30) - 1  # the wall with all 30 bricks


@njit(inline="always")
def step(state: np.ndarray, action: int, moment: Moment, parameters: Parameters, tables: Tables) -> tuple[float, bool]:
    """Move the paddle, then the ball; a ball inside the wall breaks no second brick before it has left the wall."""
    word, _, _, _ = draw_now(moment)
    carried = carried_out(state, action, word, parameters, tables)
    paddle, x, y, direction = state[POSITION], state[BALL_X], state[BALL_Y], state[DIRECTION]
    if carried == LEFT:
        paddle = max(0, paddle - 1)
    elif carried == RIGHT:
        paddle = min(EDGE, paddle + 1)
    new_x = x + (1 if direction == 1 or direction == 2 else -1)
    new_y = y + (1 if direction >= 2 else -1)
    gain, over, in_wall, wall = 0.0, False, 0, state[WALL]
    if new_x < 0 or new_x > EDGE:
        new_x = min(max(new_x, 0), EDGE)
        direction ^= 1
    bit = 1 << (SIDE * (new_y - TOP) + new_x) if TOP <= new_y <= BOTTOM else 0
    if new_y < 0:
        new_y, direction = 0, 3 - direction
    elif wall & bit:
        in_wall = 1
        if state[IN_WALL] == 0:
            gain, wall = 1.0, wall & ~bit
            new_y, direction = y, 3 - direction
    elif new_y == EDGE:
        wall = wall if wall else WHOLE
        if x == paddle:
            new_y, direction = y, 3 - direction
        elif new_x == paddle:
            new_y, direction = y, direction ^ 2
        else:
            over = True
    state[POSITION], state[DIRECTION], state[IN_WALL], state[WALL] = paddle, direction, in_wall, wall
    state[BALL_X], state[BALL_Y], state[LAST_X], state[LAST_Y] = new_x, new_y, x, y
    return gain, over


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Tables) -> None:
    """Begin with a complete wall and the ball below it, at the left or the right edge."""
    word, _, _, _ = draw(0, episode)
    x, direction = (0, 2) if word < np.uint32(1 << 31) else (EDGE, 3)
    state[BEFORE], state[POSITION], state[IN_WALL], state[WALL] = NOTHING, 4, 0, WHOLE
    state[BALL_X], state[BALL_Y], state[DIRECTION] = x, 3, direction
    state[LAST_X], state[LAST_Y] = x, 3


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: Parameters) -> None:
    """Write paddle, ball, the previous place of the ball, and bricks."""
    darken(seen)
    light(seen, PADDLE, EDGE, state[POSITION])
    light(seen, BALL, state[BALL_Y], state[BALL_X])
    light(seen, TRAIL, state[LAST_Y], state[LAST_X])
    for y in range(TOP, BOTTOM + 1):
        light_row(seen, BRICK, y, state[WALL] >> SIDE * (y - TOP))


KERNELS = {NUMBA: grid_kernels_of(step, reset, observe, PLANES * SIDE * SIDE)}
WORLDS = worlds_of("Breakout", KERNELS, ROWS, PLANES, (NOTHING, LEFT, RIGHT))
