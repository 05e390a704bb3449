"""Draws random states of the compiled MiniGrid tasks, for lab.minigrid_parity and the tests.

They are layouts of a task with additional objects, doors in any state, and the agent anywhere. Not all of them can be
reached by playing, but the package's environment can be set to each.
"""

from typing import Any

import numpy as np

from stride.envs_fast.minigrid import rules
from stride.envs_fast.minigrid.rules import BALL, BOX, CELLS, COLOUR, DOOR, EMPTY, FINISH, FIRE, KEY, KIND, STATE
from stride.envs_fast.registry import WORLDS, make

MAX_OBJECTS = 0.15  # the largest fraction of empty cells that get an object
ACTION_PROBABILITIES = np.array([3, 3, 6, 3, 1, 3, 1]) / 20  # probability of each action: moves more often than waiting


def random_states(env_id: str, number: int, rng: np.random.Generator) -> np.ndarray:
    """Return random states, int32 [state_size, number]."""
    numbers: Any = WORLDS[env_id].setting().parameters  # rules.Parameters
    states: np.ndarray = make(env_id, number, seed=int(rng.integers(1 << 31))).state.copy()
    for world in range(number):
        column = states[:, world]
        _scatter(column, numbers, "KeyCorridor" in env_id, rng)
    return states


def random_actions(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return random actions, with moves more likely than others, so that more happens."""
    return rng.choice(rules.ACTIONS, shape, p=ACTION_PROBABILITIES)


def _scatter(column: np.ndarray, numbers: rules.Parameters, one_ball: bool, rng: np.random.Generator) -> None:
    """Add objects to the state `column`, open and close doors, and move the agent.

    With `one_ball` (KeyCorridor) no ball is added; its only one may be carried.
    """
    grid = column[CELLS : CELLS + numbers.width * numbers.height].reshape(numbers.height, numbers.width)
    for edge in (
        grid[0],
        grid[-1],
        grid[:, 0],
        grid[:, -1],
    ):  # MultiRoom has empty cells there
        edge[edge == EMPTY] = rules.STONE
    doors = grid & KIND == DOOR
    grid[doors] = grid[doors] % STATE + STATE * rng.integers(0, 3, doors.sum())
    kinds = [KEY, BOX, DOOR] if one_ball else [KEY, BALL, BOX, DOOR]  # KeyCorridor has only one ball
    new = (grid == EMPTY) & (rng.random(grid.shape) < MAX_OBJECTS * rng.random())
    things = rng.choice(kinds, new.sum()) + COLOUR * rng.integers(0, rules.COLOURS, new.sum())
    things += np.where(things & KIND == DOOR, STATE * rng.integers(0, 3, new.sum()), 0)
    grid[new] = np.where(rng.random(new.sum()) < 0.1, rng.choice([FINISH, FIRE], new.sum()), things)
    colour = COLOUR * int(rng.integers(0, rules.COLOURS))
    column[rules.CARRIED] = rng.choice([rules.NOTHING, rules.NOTHING, rng.choice(kinds[:-1]) + colour])
    if one_ball and rng.random() < 0.3:
        balls = grid & KIND == BALL
        column[rules.CARRIED], grid[balls] = grid[balls][0], EMPTY
    free = (grid == EMPTY) | (grid & KIND == DOOR) & (grid < STATE)
    if not free.any():  # in a small room every cell may have got an object
        y, x = column[rules.Y], column[rules.X]
        grid[y, x], free[y, x] = EMPTY, True
    y, x = rng.choice(np.argwhere(free))
    column[[rules.X, rules.Y, rules.FACING]] = x, y, rng.integers(0, 4)
