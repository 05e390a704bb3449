"""States that MiniGrid's compiled tasks can be in, by chance: for lab.minigrid_parity and the tests.

Layouts of a task with more things in them than it has, doors in any state, the agent anywhere. Not all can be reached
by playing, but each is one that the package can be put into.
"""

from typing import Any

import numpy as np

from stride.envs_fast.minigrid import rules
from stride.envs_fast.minigrid.rules import BALL, BOX, CELLS, COLOUR, DOOR, EMPTY, FINISH, FIRE, KEY, KIND, STATE
from stride.envs_fast.registry import WORLDS, make

THINGS = 0.15  # the fraction of empty cells that get something
LEAN = np.array([3, 3, 6, 3, 1, 3, 1]) / 20  # how often each action is tried: walking more than waiting


def random_states(env_id: str, number: int, rng: np.random.Generator) -> np.ndarray:
    """int32 [state_size, number]."""
    numbers: Any = WORLDS[env_id].setting().parameters  # rules.Parameters
    states: np.ndarray = make(env_id, number, seed=int(rng.integers(1 << 31))).state.copy()
    for world in range(number):
        column = states[:, world]
        _scatter(column, numbers, "KeyCorridor" in env_id, rng)
    return states


def random_actions(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Actions that do more than those that are equally likely."""
    return rng.choice(rules.ACTIONS, shape, p=LEAN)


def _scatter(column: np.ndarray, numbers: rules.Parameters, one_ball: bool, rng: np.random.Generator) -> None:
    grid = column[CELLS : CELLS + numbers.width * numbers.height].reshape(numbers.height, numbers.width)
    for edge in (grid[0], grid[-1], grid[:, 0], grid[:, -1]):  # MultiRoom's rooms stand in the open
        edge[edge == EMPTY] = rules.STONE
    doors = grid & KIND == DOOR
    grid[doors] = grid[doors] % STATE + STATE * rng.integers(0, 3, doors.sum())
    kinds = [KEY, BOX, DOOR] if one_ball else [KEY, BALL, BOX, DOOR]  # KeyCorridor's ball is the one that counts
    new = (grid == EMPTY) & (rng.random(grid.shape) < THINGS * rng.random())
    things = rng.choice(kinds, new.sum()) + COLOUR * rng.integers(0, rules.COLOURS, new.sum())
    things += np.where(things & KIND == DOOR, STATE * rng.integers(0, 3, new.sum()), 0)
    grid[new] = np.where(rng.random(new.sum()) < 0.1, rng.choice([FINISH, FIRE], new.sum()), things)
    colour = COLOUR * int(rng.integers(0, rules.COLOURS))
    column[rules.CARRIED] = rng.choice([rules.NOTHING, rules.NOTHING, rng.choice(kinds[:-1]) + colour])
    if one_ball and rng.random() < 0.3:
        balls = grid & KIND == BALL
        column[rules.CARRIED], grid[balls] = grid[balls][0], EMPTY
    free = (grid == EMPTY) | (grid & KIND == DOOR) & (grid < STATE)
    if not free.any():  # of a few cells each may have got something
        y, x = column[rules.Y], column[rules.X]
        grid[y, x], free[y, x] = EMPTY, True
    y, x = rng.choice(np.argwhere(free))
    column[[rules.X, rules.Y, rules.FACING]] = x, y, rng.integers(0, 4)
