"""MiniGrid-MultiRoom: walk through a chain of rooms, opening door after door, to the goal in the last one.

In the id, N4 means four rooms, S5 rooms of at most 5 x 5 cells. MultiRoom-N4-S5-v0 has six rooms, as in the package;
its v1 has four.
"""

from typing import Any

import numpy as np

from stride.envs_fast.kernels import grid_kernels_of
from stride.envs_fast.minigrid import layout, rules, tasks
from stride.envs_fast.minigrid.layout import Area, pick
from stride.envs_fast.minigrid.rules import CELLS, CLOSED, COLOURS, DOOR, STATE, Parameters
from stride.envs_fast.world import NUMBA, Episode, Moment, Tables
from stride.utils.kernel_cache import njit

GRID, SMALLEST, TRIES = 25, 4, 8  # cells of the grid's side and of a room's; tries to go on from a room
ROOMS = CELLS + GRID * GRID  # index in the state where the rooms begin, six numbers each: Area, ENTRY_X, ENTRY_Y
ENTRY_X, ENTRY_Y, NUMBERS = 4, 5, 6
EAST, SOUTH, WEST, NORTH = range(4)


@njit(inline="always")
def step(state: np.ndarray, action: int, moment: Moment, parameters: Parameters, tables: Tables) -> tuple[float, bool]:
    """Play one step by the rules that all tasks share."""
    return rules.act(state, action, moment, parameters)


@njit(inline="always")
def area(state: np.ndarray, k: int) -> Area:
    """Return the area of room k."""
    at = ROOMS + NUMBERS * k
    x: Any = np.int64(state[at])  # int() would leave it as int32
    y: Any = np.int64(state[at + 1])
    width: Any = np.int64(state[at + 2])
    height: Any = np.int64(state[at + 3])
    return Area(x, y, width, height)


@njit(**rules.PIECE)
def add(
    state: np.ndarray, episode: Episode, parameters: Parameters, k: int, wall: int, door_x: int, door_y: int
) -> bool:
    """Try to add room k with a door in one of its walls; return whether it fits. Room 0 has a corner at the door."""
    width = pick(state, episode, SMALLEST, parameters.room + 1)
    height = pick(state, episode, SMALLEST, parameters.room + 1)
    x, y = door_x, door_y
    if k > 0:
        if wall == EAST:
            x = door_x - width + 1
        elif wall == SOUTH:
            y = door_y - height + 1
        if wall in (EAST, WEST):
            y = pick(state, episode, door_y - height + 2, door_y)
        else:
            x = pick(state, episode, door_x - width + 2, door_x)
    if x < 0 or y < 0 or x + width > parameters.width or y + height >= parameters.height:  # as in the package
        return False
    for other in range(k - 1):  # all rooms except the one before, which shares a wall
        room = area(state, other)
        beside = x + width < room.x or room.x + room.width <= x
        if not (beside or y + height < room.y or room.y + room.height <= y):
            return False
    at = ROOMS + NUMBERS * k
    state[at], state[at + 1], state[at + 2], state[at + 3] = x, y, width, height
    state[at + ENTRY_X], state[at + ENTRY_Y] = door_x, door_y
    return True


@njit(**rules.PIECE)
def chain(state: np.ndarray, episode: Episode, parameters: Parameters) -> int:
    """Add rooms, each entered from the one before, until there are enough or TRIES tries fail; return how many."""
    door_x, door_y = pick(state, episode, 0, parameters.width - 2), pick(state, episode, 0, parameters.width - 2)
    entry, tries = WEST, 0
    count = 1 if add(state, episode, parameters, 0, entry, door_x, door_y) else 0
    while 0 < count < parameters.rooms and tries < TRIES:
        room = area(state, count - 1)
        way = pick(state, episode, 0, 3)
        way += way >= entry  # any wall but that of the entry
        door_x, door_y = room.x, room.y
        if way in (EAST, WEST):
            door_x += room.width - 1 if way == EAST else 0
            door_y += pick(state, episode, 1, room.height - 1)
        else:
            door_y += room.height - 1 if way == SOUTH else 0
            door_x += pick(state, episode, 1, room.width - 1)
        tries += 1
        if add(state, episode, parameters, count, (way + 2) & 3, door_x, door_y):
            count, entry, tries = count + 1, (way + 2) & 3, 0
    return count


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Tables) -> None:
    """Build chains until one is long enough; neighbouring doors differ in colour, agent and goal are at the ends."""
    layout.empty(state, parameters, 0)
    while chain(state, episode, parameters) < parameters.rooms:
        pass
    colour = COLOURS
    for k in range(parameters.rooms):
        layout.wall_in(state, parameters, area(state, k))
        if k > 0:
            other = pick(state, episode, 0, COLOURS if k == 1 else COLOURS - 1)
            colour = other + (other >= colour)
            at = ROOMS + NUMBERS * k
            door = layout.painted(DOOR, colour) + STATE * CLOSED
            layout.put(state, parameters, state[at + ENTRY_X], state[at + ENTRY_Y], door)
    layout.place_agent(state, parameters, episode, area(state, 0))
    layout.place(state, parameters, episode, area(state, parameters.rooms - 1), rules.FINISH)


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: Parameters) -> None:
    """Write what the agent sees."""
    rules.show(state, seen, parameters)


KERNELS = {NUMBA: grid_kernels_of(step, reset, observe, rules.PLANES * rules.VIEW)}
CHAINS = {"N2-S4-v0": (2, 4), "N4-S5-v0": (6, 5), "N4-S5-v1": (4, 5), "N6-v0": (6, 10)}
TASKS = {
    f"MiniGrid-MultiRoom-{name}": Parameters(GRID, GRID, 20 * rooms, room=largest, rooms=rooms)
    for name, (rooms, largest) in CHAINS.items()
}
WORLDS = tasks.worlds_of(KERNELS, TASKS, NUMBERS * max(rooms for rooms, _ in CHAINS.values()))
