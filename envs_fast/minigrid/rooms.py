"""Rooms of equal size in rows and columns, with doors between them: shared by Unlock and KeyCorridor.

The walls between rooms are numbered: 2 * room is the wall at the right of a room, 2 * room + 1 the one below it. The
random block with a wall's number decides the place of its door, even if there is none; the layout's other random
numbers use the blocks behind these.
"""

import numpy as np

from stride.envs_fast.minigrid import layout
from stride.envs_fast.minigrid.layout import Area
from stride.envs_fast.minigrid.rules import CELLS, EMPTY, PIECE, STONE, Parameters, row_ahead
from stride.envs_fast.world import Episode, draw
from stride.utils.kernel_cache import njit

TO_THE_RIGHT, DOWN = 0, 1  # which of a room's walls a number is


@njit(inline="always")
def columns(parameters: Parameters) -> int:
    """Return how many rooms are beside each other."""
    return (parameters.width - 1) // (parameters.room - 1)


@njit(inline="always")
def area(parameters: Parameters, i: int, j: int) -> Area:
    """Return the area of the room in column i and row j."""
    pitch = parameters.room - 1
    return Area(pitch * i, pitch * j, parameters.room, parameters.room)


@njit(**PIECE)
def build(state: np.ndarray, parameters: Parameters) -> None:
    """Build all rooms, without doors."""
    rooms_wide = columns(parameters)
    layout.empty(state, parameters, 2 * parameters.rooms)
    for j in range(parameters.rooms // rooms_wide):
        for i in range(rooms_wide):
            layout.wall_in(state, parameters, area(parameters, i, j))


@njit(**PIECE)
def door_row(episode: Episode, parameters: Parameters, wall: int) -> int:
    """Return the index in the state of the cell of a wall's door."""
    pitch, room = parameters.room - 1, wall // 2
    i, j = room % columns(parameters), room // columns(parameters)
    along = 1 + layout.below(draw(wall, episode)[0], parameters.room - 2)
    x, y = (pitch * (i + 1), pitch * j + along) if wall % 2 == TO_THE_RIGHT else (pitch * i + along, pitch * (j + 1))
    return CELLS + parameters.width * y + x


@njit(**PIECE)
def place_agent(state: np.ndarray, parameters: Parameters, episode: Episode, i: int, j: int) -> None:
    """Put the agent into a room, in front of it an empty cell or a wall."""
    while True:
        layout.place_agent(state, parameters, episode, area(parameters, i, j))
        ahead = state[row_ahead(state, parameters)]
        if ahead in (EMPTY, STONE):
            return
