"""MiniGrid-KeyCorridor: find the key in a room on the left, and pick up the ball behind the locked door on the right.

In the id, SnRm means rooms of n x n cells with their walls, and m rows of three rooms; the middle ones form one hall.
"""

import numpy as np

from stride.envs_fast.kernels import grid_kernels_of
from stride.envs_fast.minigrid import layout, rooms, rules, tasks
from stride.envs_fast.minigrid.rules import (
    BALL,
    CARRIED,
    CLOSED,
    COLOURS,
    DOOR,
    EMPTY,
    KEY,
    KIND,
    LOCKED,
    PICK_UP,
    STATE,
    Parameters,
)
from stride.envs_fast.world import NUMBA, Episode, Moment, Tables
from stride.utils.kernel_cache import njit

LEFTMOST, HALL, RIGHTMOST, COLUMNS = range(4)  # columns of rooms, and their number


@njit(inline="always")
def step(state: np.ndarray, action: int, moment: Moment, parameters: Parameters, tables: Tables) -> tuple[float, bool]:
    """Play one step; picking up the ball, of which there is one, solves the task."""
    gain, over = rules.act(state, action, moment, parameters)
    if action == PICK_UP and state[CARRIED] & KIND == BALL:
        gain, over = rules.success(moment, parameters), True
    return gain, over


@njit(inline="always")
def wall_of(i: int, j: int, side: int) -> int:
    """Return the wall at a room's side (0 right, 1 below, 2 left, 3 above); negative at the grid's edge."""
    if side == 0:
        return 2 * (COLUMNS * j + i) + rooms.TO_THE_RIGHT if i < RIGHTMOST else -1
    if side == 1:
        return 2 * (COLUMNS * j + i) + rooms.DOWN
    if side == 2:
        return 2 * (COLUMNS * j + i - 1) + rooms.TO_THE_RIGHT if i > LEFTMOST else -1
    return 2 * (COLUMNS * (j - 1) + i) + rooms.DOWN


@njit(inline="always")
def behind(wall: int) -> int:
    """Return the room at the right of a wall, or below it; room wall // 2 is at its other side."""
    return wall // 2 + (1 if wall % 2 == rooms.TO_THE_RIGHT else COLUMNS)


@njit(**rules.PIECE)
def reached(linked: int, walls: int, room: int) -> int:
    """Return the rooms that can be reached from one through the walls with a door (`linked`), as bits."""
    found, before = 1 << room, 0
    while found != before:
        before = found
        for wall in range(walls):
            both = 1 << wall // 2 | 1 << behind(wall)
            if linked >> wall & 1 and found & both:
                found |= both
    return found


@njit(**rules.PIECE)
def connect(state: np.ndarray, episode: Episode, parameters: Parameters, linked: int, locked: int) -> None:
    """Add closed doors at random until every room can be reached; none leads to the locked room."""
    rows = parameters.rooms // COLUMNS
    while reached(linked, 2 * parameters.rooms, HALL) != (1 << parameters.rooms) - 1:
        i, j = layout.pick(state, episode, 0, COLUMNS), layout.pick(state, episode, 0, rows)
        wall = wall_of(i, j, layout.pick(state, episode, 0, 4))
        if wall < 0 or behind(wall) >= parameters.rooms or linked >> wall & 1:
            continue
        if locked == wall // 2 or locked == behind(wall):
            continue
        linked |= 1 << wall
        colour = layout.pick(state, episode, 0, COLOURS)
        state[rooms.door_row(episode, parameters, wall)] = layout.painted(DOOR, colour) + STATE * CLOSED


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Tables) -> None:
    """Build the hall with the agent, the locked room with the ball, the key, and doors to all other rooms."""
    rows, pitch, linked = parameters.rooms // COLUMNS, parameters.room - 1, 0
    rooms.build(state, parameters)
    for j in range(1, rows):
        layout.line(state, parameters, pitch * HALL + 1, pitch * j, pitch - 1, EMPTY)
        linked |= 1 << wall_of(HALL, j - 1, 1)
    row = layout.pick(state, episode, 0, rows)
    colour = layout.pick(state, episode, 0, COLOURS)
    door = wall_of(HALL, row, 0)
    state[rooms.door_row(episode, parameters, door)] = layout.painted(DOOR, colour) + STATE * LOCKED
    layout.stand(state, layout.NOWHERE, layout.NOWHERE, 0)
    ball = layout.painted(BALL, layout.pick(state, episode, 0, COLOURS))
    layout.place(state, parameters, episode, rooms.area(parameters, RIGHTMOST, row), ball)
    chosen = rooms.area(parameters, LEFTMOST, layout.pick(state, episode, 0, rows))
    layout.place(state, parameters, episode, chosen, layout.painted(KEY, colour))
    rooms.place_agent(state, parameters, episode, HALL, rows // 2)
    connect(state, episode, parameters, linked | 1 << door, COLUMNS * row + RIGHTMOST)


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: Parameters) -> None:
    """Write what the agent sees."""
    rules.show(state, seen, parameters)


KERNELS = {NUMBA: grid_kernels_of(step, reset, observe, rules.PLANES * rules.VIEW)}
TASKS = {
    f"MiniGrid-KeyCorridorS{size}R{rows}-v0": Parameters(
        COLUMNS * (size - 1) + 1, rows * (size - 1) + 1, 30 * size**2, room=size, rooms=COLUMNS * rows
    )
    for size, rows in ((3, 1), (3, 2), (3, 3), (4, 3), (5, 3), (6, 3))
}
WORLDS = tasks.worlds_of(KERNELS, TASKS)
