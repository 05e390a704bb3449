"""MinAtar/SpaceInvaders: shoot the aliens that come down row by row, and avoid their bullets.

An alien gives 1. The fewer there are, the faster they move. When none is left a new wave comes, with
`difficulty_ramping` a little faster than the last. The episode ends when a bullet or an alien hits the cannon, or
aliens pass the last row.
"""

import numpy as np

from stride.envs_fast.kernels import grid_kernels_of
from stride.envs_fast.minatar import game
from stride.envs_fast.minatar.game import BEFORE, EDGE, SIDE, Parameters, Tables, carried_out, darken, light, light_row
from stride.envs_fast.world import NUMBA, Episode, Moment, draw_now
from stride.utils.kernel_cache import njit

CANNON, ALIEN, GOING_LEFT, GOING_RIGHT, BULLET, ALIEN_BULLET, PLANES = range(7)  # planes of the observation
POSITION, DIRECTION, INTERVAL, MOVE_TIMER, ALIEN_TIMER, SHOT_TIMER = range(1, 7)  # indices in the state
ALIENS, BULLETS, ALIEN_BULLETS, ROWS = 7, 17, 27, 37  # ten numbers each, one for each row; bit x is column x
COOL_DOWN, ALIEN_COOL_DOWN = 5, 10  # steps between two shots
SLOWEST, FASTEST = 12, 6  # steps between two moves of a complete wave: in the first wave, and the minimum
WAVE_ROWS, WAVE_COLUMNS = 4, 0b11111100  # where a wave begins: how many rows, and which columns (bits)


@njit(inline="always")
def move_aliens(state: np.ndarray) -> bool:
    """Move all aliens to the side, or if one is at the edge, down and turn; return whether some passed the last row."""
    number, columns, leftwards = 0, 0, state[DIRECTION] < 0
    for y in range(SIDE):
        number += game.count(state[ALIENS + y])
        columns |= state[ALIENS + y]
    state[MOVE_TIMER] = min(number, state[INTERVAL])
    if columns & (1 if leftwards else 1 << EDGE):
        last = state[ALIENS + EDGE]
        for y in range(EDGE, 0, -1):
            state[ALIENS + y] = state[ALIENS + y - 1]
        state[ALIENS], state[DIRECTION] = last, -state[DIRECTION]
        return last != 0
    for y in range(SIDE):
        row = state[ALIENS + y]
        state[ALIENS + y] = row >> 1 if leftwards else row << 1
    return False


@njit(inline="always")
def shoot(state: np.ndarray) -> None:
    """Let the lowest alien of the column nearest to the cannon shoot; of two such columns the left one."""
    nearest, distance, lowest = 0, SIDE, 0
    for x in range(SIDE):
        away = abs(x - state[POSITION])
        for y in range(SIDE):
            if state[ALIENS + y] >> x & 1 and (away < distance or x == nearest):
                nearest, distance, lowest = x, away, y
    state[ALIEN_BULLETS + lowest] |= 1 << nearest
    state[ALIEN_TIMER] = ALIEN_COOL_DOWN


@njit(inline="always")
def step(state: np.ndarray, action: int, moment: Moment, parameters: Parameters, tables: Tables) -> tuple[float, bool]:
    """Play one step: shoot or move, then all bullets move, then the aliens."""
    carried = carried_out(state, action, draw_now(moment)[0], parameters, tables)
    if carried == game.FIRE and state[SHOT_TIMER] == 0:
        state[BULLETS + EDGE] |= 1 << state[POSITION]
        state[SHOT_TIMER] = COOL_DOWN
    elif carried == game.LEFT:
        state[POSITION] = max(0, state[POSITION] - 1)
    elif carried == game.RIGHT:
        state[POSITION] = min(EDGE, state[POSITION] + 1)
    for y in range(EDGE):
        state[BULLETS + y] = state[BULLETS + y + 1]
        state[ALIEN_BULLETS + EDGE - y] = state[ALIEN_BULLETS + EDGE - y - 1]
    state[BULLETS + EDGE], state[ALIEN_BULLETS] = 0, 0
    cannon, over, gain, left = 1 << state[POSITION], False, 0.0, 0
    over |= ((state[ALIEN_BULLETS + EDGE] | state[ALIENS + EDGE]) & cannon) != 0
    if state[MOVE_TIMER] == 0:
        over |= move_aliens(state)
    over |= (state[ALIENS + EDGE] & cannon) != 0
    if state[ALIEN_TIMER] == 0:
        shoot(state)
    for y in range(SIDE):
        hit = state[ALIENS + y] & state[BULLETS + y]
        gain += game.count(hit)
        state[ALIENS + y] ^= hit
        state[BULLETS + y] ^= hit
        left |= state[ALIENS + y]
    state[SHOT_TIMER] = max(0, state[SHOT_TIMER] - 1)
    state[MOVE_TIMER] -= 1
    state[ALIEN_TIMER] -= 1
    if left == 0:
        if parameters.difficulty_ramping and state[INTERVAL] > FASTEST:
            state[INTERVAL] -= 1
        for y in range(WAVE_ROWS):
            state[ALIENS + y] = WAVE_COLUMNS
    return gain, over


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Tables) -> None:
    """Begin with the first wave above the cannon; nothing is random."""
    for row in range(ROWS):
        state[row] = 0
    state[BEFORE], state[POSITION], state[DIRECTION] = game.NOTHING, 5, -1
    state[INTERVAL], state[MOVE_TIMER], state[ALIEN_TIMER] = SLOWEST, SLOWEST, ALIEN_COOL_DOWN
    for y in range(WAVE_ROWS):
        state[ALIENS + y] = WAVE_COLUMNS


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: Parameters) -> None:
    """Write the cannon, the aliens, the aliens again in the plane of their direction, and both kinds of bullets."""
    darken(seen)
    light(seen, CANNON, EDGE, state[POSITION])
    going = GOING_LEFT if state[DIRECTION] < 0 else GOING_RIGHT
    for y in range(SIDE):
        light_row(seen, ALIEN, y, state[ALIENS + y])
        light_row(seen, going, y, state[ALIENS + y])
        light_row(seen, BULLET, y, state[BULLETS + y])
        light_row(seen, ALIEN_BULLET, y, state[ALIEN_BULLETS + y])


KERNELS = {NUMBA: grid_kernels_of(step, reset, observe, PLANES * SIDE * SIDE)}
WORLDS = game.worlds_of("SpaceInvaders", KERNELS, ROWS, PLANES, (game.NOTHING, game.LEFT, game.RIGHT, game.FIRE))
