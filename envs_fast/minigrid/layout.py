"""Builds MiniGrid's layouts at a reset: walls, and things at random places, tried again until a place is free.

A layout uses as many random numbers as it needs, one of each random block. MiniGrid's steps use no random numbers, so
no block is used twice in an episode.
"""

from typing import NamedTuple

import numpy as np

from stride.envs_fast.minigrid.rules import (
    CARRIED,
    CELLS,
    COLOUR,
    DRAWN,
    EMPTY,
    FACING,
    NOTHING,
    PIECE,
    STONE,
    Parameters,
    X,
    Y,
)
from stride.envs_fast.world import Episode, draw
from stride.utils.kernel_cache import njit

NOWHERE = -1  # coordinate of an agent that is not in the grid yet


class Area(NamedTuple):
    """A rectangle of the grid in cells, its walls included; x, y is its upper left corner."""

    x: int
    y: int
    width: int
    height: int


@njit(inline="always")
def below(word: np.uint32, choices: int) -> int:
    """Return a whole number from 0 to choices - 1 from 32 random bits; the bias is below choices / 2**32."""
    return int((np.uint64(word) * np.uint64(choices)) >> np.uint64(32))


@njit(**PIECE)
def pick(state: np.ndarray, episode: Episode, low: int, end: int) -> int:
    """Draw the layout's next random number, a whole number from low to end - 1."""
    word = draw(state[DRAWN], episode)[0]
    state[DRAWN] += 1
    return low + below(word, end - low)


@njit(inline="always")
def empty(state: np.ndarray, parameters: Parameters, drawn: int) -> None:
    """Begin a layout: all cells empty, nothing carried; `drawn`: random blocks that are used already."""
    state[CELLS : CELLS + parameters.width * parameters.height] = EMPTY
    state[CARRIED], state[DRAWN] = NOTHING, drawn


@njit(inline="always")
def put(state: np.ndarray, parameters: Parameters, x: int, y: int, cell: int) -> None:
    """Put something into a cell."""
    state[CELLS + parameters.width * y + x] = cell


@njit(**PIECE)
def stack(state: np.ndarray, parameters: Parameters, x: int, y: int, length: int, cell: int) -> None:
    """Put a cell's content into `length` cells below each other."""
    for k in range(length):
        put(state, parameters, x, y + k, cell)


@njit(**PIECE)
def line(state: np.ndarray, parameters: Parameters, x: int, y: int, length: int, cell: int) -> None:
    """Put a cell's content into `length` cells beside each other."""
    for k in range(length):
        put(state, parameters, x + k, y, cell)


@njit(**PIECE)
def wall_in(state: np.ndarray, parameters: Parameters, area: Area) -> None:
    """Put walls along the edges of an area."""
    line(state, parameters, area.x, area.y, area.width, STONE)
    line(state, parameters, area.x, area.y + area.height - 1, area.width, STONE)
    stack(state, parameters, area.x, area.y, area.height, STONE)
    stack(state, parameters, area.x + area.width - 1, area.y, area.height, STONE)


@njit(**PIECE)
def free_place(state: np.ndarray, parameters: Parameters, episode: Episode, area: Area) -> tuple[int, int]:
    """Return a random empty cell of an area without the agent; all are equally likely."""
    while True:
        x = pick(state, episode, area.x, min(area.x + area.width, parameters.width))
        y = pick(state, episode, area.y, min(area.y + area.height, parameters.height))
        is_empty = state[CELLS + parameters.width * y + x] == EMPTY
        if is_empty and not (x == state[X] and y == state[Y]):
            return x, y


@njit(**PIECE)
def place(state: np.ndarray, parameters: Parameters, episode: Episode, area: Area, cell: int) -> None:
    """Put something into a random empty cell of an area."""
    x, y = free_place(state, parameters, episode, area)
    put(state, parameters, x, y, cell)


@njit(**PIECE)
def place_agent(state: np.ndarray, parameters: Parameters, episode: Episode, area: Area) -> None:
    """Put the agent into a random empty cell of an area, looking in a random direction."""
    stand(state, NOWHERE, NOWHERE, 0)
    state[X], state[Y] = free_place(state, parameters, episode, area)
    state[FACING] = pick(state, episode, 0, 4)


@njit(inline="always")
def stand(state: np.ndarray, x: int, y: int, facing: int) -> None:
    """Put the agent at a place, looking in a direction (0 to 3: right, down, left, up)."""
    state[X], state[Y], state[FACING] = x, y, facing


@njit(inline="always")
def everywhere(parameters: Parameters) -> Area:
    """Return the area of the whole grid."""
    return Area(0, 0, parameters.width, parameters.height)


@njit(inline="always")
def painted(kind: int, colour: int) -> int:
    """Return the cell's number for a thing of a colour; a door is open."""
    return kind + COLOUR * colour
