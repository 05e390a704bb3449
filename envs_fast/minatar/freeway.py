"""MinAtar/Freeway: a chicken crosses eight lanes of cars, again and again, for 2501 steps.

Arriving gives 1, and all cars get new speeds. A car that hits the chicken sends it back to the start.
"""

import numpy as np

from stride.envs_fast.kernels import grid_kernels_of
from stride.envs_fast.minatar import game
from stride.envs_fast.minatar.game import BEFORE, EDGE, Parameters, Tables, below, carried_out, darken, light
from stride.envs_fast.world import IN_EPISODE, NUMBA, Episode, Moment, draw
from stride.utils.kernel_cache import njit

CHICKEN, CAR, PLANES = 0, 1, 7  # planes; CAR + n: cells behind cars that rest n steps between moves
POSITION, MOVE_TIMER, TIME_LEFT, CARS = range(1, 5)  # indices in the state; the chicken's column is always MIDDLE
COLUMN, TIMER, REST, NUMBERS = range(4)  # numbers of each car; REST is negative if it drives to the left
LANES, ROWS = 8, 28  # car k is in lane k + 1
MIDDLE = 4
WALKING, TIME = 3, 2500  # steps between two moves of the chicken; steps of an episode minus one
LONGEST_REST = 5  # steps between two moves of the slowest car


@njit(inline="always")
def change_speeds(state: np.ndarray, block: int, episode: Episode) -> None:
    """Draw a rest of 1 to 5 steps and a direction for each car."""
    car = CARS
    for half in range(2):
        for word in draw(block + half, episode):
            chosen = below(word, 2 * LONGEST_REST)
            state[car + REST] = chosen + 1 if chosen < LONGEST_REST else LONGEST_REST - 1 - chosen
            state[car + TIMER] = abs(state[car + REST])
            car += NUMBERS


@njit(inline="always")
def step(state: np.ndarray, action: int, moment: Moment, parameters: Parameters, tables: Tables) -> tuple[float, bool]:
    """Play one step: the chicken walks, then the cars move."""
    block = IN_EPISODE * (moment.age + 1)
    carried = carried_out(state, action, draw(block, moment.episode)[0], parameters, tables)
    position, gain = state[POSITION], 0.0
    if state[MOVE_TIMER] == 0 and (carried == game.UP or carried == game.DOWN):
        position = max(0, position - 1) if carried == game.UP else min(EDGE, position + 1)
        state[MOVE_TIMER] = WALKING
    if position == 0:
        position, gain = EDGE, 1.0
        change_speeds(state, block + 1, moment.episode)
    for lane in range(1, LANES + 1):
        car = CARS + NUMBERS * (lane - 1)
        column, rest = state[car + COLUMN], state[car + REST]
        if column == MIDDLE and position == lane:
            position = EDGE
        if state[car + TIMER] > 0:
            state[car + TIMER] -= 1
            continue
        column += 1 if rest > 0 else -1
        column = EDGE if column < 0 else 0 if column > EDGE else column
        state[car + COLUMN], state[car + TIMER] = column, abs(rest)
        if column == MIDDLE and position == lane:
            position = EDGE
    state[POSITION] = position
    state[MOVE_TIMER] = max(0, state[MOVE_TIMER] - 1)
    state[TIME_LEFT] -= 1
    return gain, state[TIME_LEFT] < 0


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Tables) -> None:
    """Begin with all cars at the left edge, each with a random speed."""
    state[BEFORE], state[POSITION], state[MOVE_TIMER], state[TIME_LEFT] = game.NOTHING, EDGE, WALKING, TIME
    for car in range(CARS, ROWS, NUMBERS):
        state[car + COLUMN] = 0
    change_speeds(state, 0, episode)


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: Parameters) -> None:
    """Write the chicken, the cars, and the cell behind each car in the plane of its speed."""
    darken(seen)
    light(seen, CHICKEN, state[POSITION], MIDDLE)
    for lane in range(1, LANES + 1):
        car = CARS + NUMBERS * (lane - 1)
        column, rest = state[car + COLUMN], state[car + REST]
        behind = column - 1 if rest > 0 else column + 1
        behind = EDGE if behind < 0 else 0 if behind > EDGE else behind
        light(seen, CAR, lane, column)
        light(seen, CAR + abs(rest), lane, behind)


KERNELS = {NUMBA: grid_kernels_of(step, reset, observe, PLANES * game.CELLS)}
WORLDS = game.worlds_of("Freeway", KERNELS, ROWS, PLANES, (game.NOTHING, game.UP, game.DOWN))
