"""What MiniGrid's compiled tasks share: their numbers, cells, the seven actions, and what the agent sees.

Rules step for step those of the package minigrid 3.2.0 (Chevalier-Boisvert et al. 2023), random numbers our own: how
layouts are drawn is in layout.py.

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
HUE, CELL, BITS = 7, 511, 9  # bits of a colour, those of a cell, and how many these are
STONE, FINISH, FIRE = WALL + COLOUR * GREY, GOAL + COLOUR * GREEN, LAVA + COLOUR * RED
NOTHING = 0  # carried
# rows of the state: where the agent is, which way it looks (right, down, left, up), the cell that it carries, how many
# random numbers the layout has taken, the row of a task's door, and the grid row by row
X, Y, FACING, CARRIED, DRAWN, THE_DOOR, CELLS = range(7)
SIDE, MIDDLE = 7, 3  # cells of a view's side, and the agent's column in it
ALL = (1 << SIDE) - 1
VIEW = SIDE * SIDE
PLANES = KINDS + COLOURS + STATES + DIRECTIONS
LIT = 255
# where a view is noted before its planes are lit, in what the planes of the direction take then: kinds and colours of
# its cells, a byte each, and their states
PAINTED = VIEW * (PLANES - DIRECTIONS)
STATED = PAINTED + VIEW
PIECE: dict[str, Any] = {"error_model": "numpy"}  # of functions that kernels call: inlined they compile longer


class Parameters(NamedTuple):
    """The numbers of a task, flags 0 or 1: the fused engine's kernels read no bool here."""

    width: int  # cells of the grid, walls included
    height: int
    most_steps: int  # of an episode, in the rule for the reward
    room: int = 0  # cells of a room's side, walls included; of the largest one where they differ
    rooms: int = 0
    anywhere: int = 0  # whether the agent begins at any place
    sees_all: int = 0  # walls hide nothing
    time_limit: int = NO_LIMIT


@njit(inline="always")
def step_x(facing: int) -> int:
    """1, 0, -1, 0 for right, down, left, up."""
    return (facing == 0) - (facing == 2)


@njit(inline="always")
def step_y(facing: int) -> int:
    """0, 1, 0, -1 for right, down, left, up."""
    return (facing == 1) - (facing == 3)


@njit(inline="always")
def row_ahead(state: np.ndarray, parameters: Parameters) -> int:
    """The row of the state with the cell in front of the agent."""
    x, y = state[X] + step_x(state[FACING]), state[Y] + step_y(state[FACING])
    return CELLS + parameters.width * y + x


@njit(inline="always")
def is_shut(cell: int) -> bool:
    """Whether it is a wall or a door that is not open: nobody sees through it or walks in."""
    kind = cell & KIND
    return (kind == WALL) | ((kind == DOOR) & (cell >= STATE))


@njit(inline="always")
def success(moment: Moment, parameters: Parameters) -> float:
    """The reward for the end of a task: the earlier, the more."""
    return 1.0 - 0.9 * ((moment.age + 1) / parameters.most_steps)


@njit(**PIECE)
def act(state: np.ndarray, action: int, moment: Moment, parameters: Parameters) -> tuple[float, bool]:
    """Carry an action out; goal and lava end the episode."""
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
    """What becomes of a cell: doors open and close, the key of its colour unlocks one, and an empty box is gone."""
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
    """A cell of the grid; beyond it all is wall."""
    if x < 0 or y < 0 or x >= parameters.width or y >= parameters.height:
        return STONE
    return state[CELLS + parameters.width * y + x]


@njit(**PIECE)
def cells_of(state: np.ndarray, x: int, y: int, step_right: int, step_down: int, parameters: Parameters) -> int:
    """Seven cells from a place on, in BITS bits each."""
    cells: Any = 0  # int64 in compiled code
    for i in range(SIDE):
        cells |= np.int64(cell_at(state, x + step_right * i, y + step_down * i, parameters)) << BITS * i
    return cells


@njit(**PIECE)
def light(seen: np.ndarray, direction: int) -> None:
    """From what `show` has noted of each cell to planes, in loops over neighbouring bytes, which vectors do."""
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
    """The view, row by row from the agent's own to the farthest. Bit i of a number stands for column i.

    What is seen spreads along a row through cells that are not shut, from left to right, then back, and from each cell
    that it has come through on to the next row: to the one behind, and to those beside that.
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
