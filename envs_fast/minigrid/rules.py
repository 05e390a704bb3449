"""Rules that MiniGrid's compiled tasks share: constants, cells, the seven actions, and what the agent sees.

The rules are those of the package minigrid 3.2.0 (Chevalier-Boisvert et al. 2023), step for step, with Stride's random
numbers; layout.py builds the layouts.

An observation is one picture, uint8 [25, 7, 7] of 0 and 255: the 7 x 7 cells in front of the agent, which is at
[:, 3, 6] and looks towards [:, 3, 0]. A cell lights one plane of its kind (11), of its colour (6) and of its state (4);
of the last four planes the one of the direction is lit in all cells. docs/families/minigrid.md says why.
"""

from typing import Any, NamedTuple

import numpy as np

from stride.envs_fast.world import NO_LIMIT, Moment
from stride.utils.kernel_cache import njit

LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE, ACTIONS = range(8)
# kinds of things, in the package's order
UNSEEN, EMPTY, WALL, FLOOR, DOOR, KEY, BALL, BOX, GOAL, LAVA, AGENT, KINDS = range(12)
RED, GREEN, BLUE, PURPLE, YELLOW, GREY, COLOURS = range(7)
OPEN, CLOSED, LOCKED = range(3)
STATES, DIRECTIONS = 4, 4  # planes of each; the package numbers states up to 3
# a cell is kind + COLOUR * colour + STATE * state; an empty one is EMPTY, since it is red and open to the package
KIND, COLOUR, STATE = 15, 16, 128
HUE, CELL, BITS = 7, 511, 9  # bit masks of a colour and of a cell; the number of bits of a cell
STONE, FINISH, FIRE = WALL + COLOUR * GREY, GOAL + COLOUR * GREEN, LAVA + COLOUR * RED
NOTHING = 0  # CARRIED of an agent that carries nothing
# indices in the state: the agent's place, its direction (right, down, left, up), the cell that it carries, how many
# random numbers the layout has used, the index of a task's door, and the grid row by row
X, Y, FACING, CARRIED, DRAWN, THE_DOOR, CELLS = range(7)
SIDE, MIDDLE = 7, 3  # cells of a view's side, and the agent's column in it
ALL = (1 << SIDE) - 1  # a bit for each column of the view
VIEW = SIDE * SIDE  # cells of a view
PLANES = KINDS + COLOURS + STATES + DIRECTIONS
LIT = 255
# `show` first writes one byte with kind and colour and one byte with the state of each cell to these places, from which
# `light` makes the planes. The places are those of the direction's planes, which are written last.
PAINTED = VIEW * (PLANES - DIRECTIONS)
STATED = PAINTED + VIEW
# njit options of functions that kernels call; to inline them would make compiling slower
PIECE: dict[str, Any] = {"error_model": "numpy"}


class Parameters(NamedTuple):
    """The numbers of a task. Flags are int 0 or 1, because the fused engine's kernels read no bool here."""

    width: int  # cells of the grid, walls included
    height: int
    most_steps: int  # of an episode; the reward depends on it
    room: int = 0  # cells of a room's side, walls included; of the largest one where they differ
    rooms: int = 0
    anywhere: int = 0  # 1: the agent starts at a random place
    sees_all: int = 0  # 1: walls do not block the view
    time_limit: int = NO_LIMIT


@njit(inline="always")
def step_x(facing: int) -> int:
    """Return the step in x for a direction: 1, 0, -1, 0 for right, down, left, up."""
    return (facing == 0) - (facing == 2)


@njit(inline="always")
def step_y(facing: int) -> int:
    """Return the step in y for a direction: 0, 1, 0, -1 for right, down, left, up."""
    return (facing == 1) - (facing == 3)


@njit(inline="always")
def row_ahead(state: np.ndarray, parameters: Parameters) -> int:
    """Return the index in the state of the cell in front of the agent."""
    x, y = state[X] + step_x(state[FACING]), state[Y] + step_y(state[FACING])
    return CELLS + parameters.width * y + x


@njit(inline="always")
def is_shut(cell: int) -> bool:
    """Say whether a cell is a wall or a door that is not open: the agent cannot see through it or enter it."""
    kind = cell & KIND
    return (kind == WALL) | ((kind == DOOR) & (cell >= STATE))


@njit(inline="always")
def success(moment: Moment, parameters: Parameters) -> float:
    """Return the reward for solving a task in this step: 1 minus 0.9 of the part of `most_steps` that was used."""
    return 1.0 - 0.9 * ((moment.age + 1) / parameters.most_steps)


@njit(**PIECE)
def act(state: np.ndarray, action: int, moment: Moment, parameters: Parameters) -> tuple[float, bool]:
    """Play an action; return reward and end. Goal and lava end the episode."""
    row = row_ahead(state, parameters)
    cell, gain, over = state[row], 0.0, False
    kind = cell & KIND
    if action == LEFT:
        state[FACING] = (state[FACING] + 3) & 3
    elif action == RIGHT:
        state[FACING] = (state[FACING] + 1) & 3
    elif action == FORWARD:
        if kind in (EMPTY, GOAL, LAVA) or (kind == DOOR and not is_shut(cell)):
            state[X] += step_x(state[FACING])
            state[Y] += step_y(state[FACING])
        over = kind in (GOAL, LAVA)
        if kind == GOAL:
            gain = success(moment, parameters)
    elif action == PICK_UP:
        if state[CARRIED] == NOTHING and KEY <= kind <= BOX:
            state[CARRIED], state[row] = cell, EMPTY
    elif action == DROP:
        if state[CARRIED] != NOTHING and cell == EMPTY:
            state[row], state[CARRIED] = state[CARRIED], NOTHING
    elif action == TOGGLE:
        state[row] = toggled(cell, state[CARRIED])
    return gain, over


@njit(inline="always")
def toggled(cell: int, carried: int) -> int:
    """Return a cell after TOGGLE: doors open and close, a key unlocks a door of its colour, an empty box disappears."""
    kind, paint = cell & KIND, COLOUR * (cell // COLOUR & HUE)
    if kind == BOX:
        return EMPTY
    if kind != DOOR:
        return cell
    if cell // STATE == LOCKED:
        return DOOR + paint if carried == KEY + paint else cell
    return DOOR + paint + (STATE * CLOSED if cell // STATE == OPEN else 0)


@njit(inline="always")
def cell_at(state: np.ndarray, x: int, y: int, parameters: Parameters) -> int:
    """Return a cell of the grid; outside the grid it is a wall."""
    if x < 0 or y < 0 or x >= parameters.width or y >= parameters.height:
        return STONE
    return state[CELLS + parameters.width * y + x]


@njit(**PIECE)
def cells_of(state: np.ndarray, x: int, y: int, step_right: int, step_down: int, parameters: Parameters) -> int:
    """Return seven cells from a place on in one number, BITS bits each."""
    cells: Any = 0  # int64 in compiled code
    for i in range(SIDE):
        cells |= np.int64(cell_at(state, x + step_right * i, y + step_down * i, parameters)) << BITS * i
    return cells


@njit(**PIECE)
def light(seen: np.ndarray, direction: int) -> None:
    """Make the planes from the bytes that `show` wrote, in loops over neighbouring bytes, which become vector code."""
    for plane in range(KINDS):
        for place in range(VIEW):
            seen[VIEW * plane + place] = LIT * (seen[PAINTED + place] & np.uint8(KIND) == np.uint8(plane))
    for plane in range(COLOURS):
        for place in range(VIEW):
            seen[VIEW * (KINDS + plane) + place] = LIT * (
                seen[PAINTED + place] & np.uint8(COLOUR * HUE) == np.uint8(COLOUR * plane)
            )
    for plane in range(STATES):
        for place in range(VIEW):
            seen[VIEW * (KINDS + COLOURS + plane) + place] = LIT * (seen[STATED + place] == np.uint8(plane))
    seen[PAINTED:] = 0
    seen[PAINTED + VIEW * direction : PAINTED + VIEW * (direction + 1)] = LIT


@njit(**PIECE)
def show(state: np.ndarray, seen: np.ndarray, parameters: Parameters) -> None:
    """Write what the agent sees, row by row from its own row to the farthest. Bit i of a number means column i.

    Visibility spreads along a row through cells that are not shut, from left to right, then back. From each such cell
    it spreads to the next row: to the cell behind it and to that cell's neighbour.
    """
    facing = state[FACING]
    ahead_x, ahead_y, right_x, right_y = step_x(facing), step_y(facing), -step_y(facing), step_x(facing)
    left_x, left_y = state[X] - right_x * MIDDLE, state[Y] - right_y * MIDDLE  # of the agent's row
    visible = 1 << MIDDLE
    for distance in range(SIDE):
        cells, clear, behind = 0, 0, 0
        if parameters.sees_all:
            visible = ALL
        if visible:
            cells = cells_of(
                state, left_x + ahead_x * distance, left_y + ahead_y * distance, right_x, right_y, parameters
            )
        for i in range(SIDE):
            clear |= (not is_shut(cells >> BITS * i & CELL)) << i
        for _ in range(SIDE - 1):
            visible |= (visible & clear) << 1 & ALL
        through = visible & clear & ALL >> 1
        behind |= through | through << 1
        for _ in range(SIDE - 1):
            visible |= (visible & clear) >> 1
        through = visible & clear & ALL << 1
        behind |= through | through >> 1
        if distance == 0:
            own = EMPTY if state[CARRIED] == NOTHING else state[CARRIED]
            cells = cells & ~(CELL << BITS * MIDDLE) | np.int64(own) << BITS * MIDDLE  # type: ignore[assignment]
        for i in range(SIDE):
            cell, place = cells >> BITS * i & CELL if visible >> i & 1 else UNSEEN, SIDE * (i + 1) - 1 - distance
            seen[PAINTED + place], seen[STATED + place] = cell % STATE, cell // STATE
        visible = behind & ALL
    light(seen, facing)
