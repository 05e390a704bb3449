"""Lists of the moving things in Seaquest (bullets, divers, torpedoes, fish, submarines) inside the state array.

A list is its length, then its items, in neighbouring entries of the state; item k is k entries behind the length.
An item is one number:
    x + 16 y + 256 (going right) + 512 (steps to its next move) + 8192 (steps to its next shot)
Like the package, `remove_equal` removes the first item that equals another one while a list is read from its end. In
rare cases that decides which of two items is where afterwards.
"""

from typing import Any

import numpy as np

from stride.envs_fast.minatar.game import EDGE, below, light
from stride.envs_fast.world import between
from stride.utils.kernel_cache import njit

ROW, GOING_RIGHT, MOVE, SHOT = 16, 256, 512, 8192  # what an item grows by for one of each
COLUMN, PLACE, HEADING, TIMER = 15, 255, 511, 15  # bit masks: x; x and y; x, y and direction; a timer
GONE = -1  # an item that has left the picture
HERE, FACING, ABOARD, MOVE_SPEED = range(1, 5)  # indices in the state; the player's place and direction as in an item
# indices in the state where the lists begin. No list gets longer than its room: an enemy crosses the picture within 34
# steps once one comes in every step, a bullet within 10; the player shoots every 5 steps, a diver comes every 30
BULLETS, DIVERS, TORPEDOES, FISH, SUBS, ROWS = 13, 18, 23, 72, 109, 146
FEW, MANY, MOST = 4, 36, 48  # rooms (most items): of bullets and divers; of fish and submarines; of torpedoes
LANES = 8  # rows of the picture below the surface, in which all but the player stay
TRAIL = 3  # the plane of the cells behind moving things
# njit options of functions that kernels call; to inline them would make compiling slower
PIECE: dict[str, Any] = {"error_model": "numpy"}


@njit(inline="always")
def add(state: np.ndarray, items: int, room: int, item: int) -> None:
    """Append an item if there is room; `items`: index where the list begins."""
    if state[items] < room:
        state[items] += 1
        state[items + state[items]] = item


@njit(**PIECE)
def remove(state: np.ndarray, items: int, k: int) -> None:
    """Remove item k (from 1); those behind it move up."""
    for row in range(items + k, items + state[items]):
        state[row] = state[row + 1]
    state[items] -= 1


@njit(**PIECE)
def remove_equal(state: np.ndarray, items: int, item: int) -> int:
    """Remove the first item that equals this one, and return its k; there must be one."""
    k = 1
    while state[items + k] != item:
        k += 1
    remove(state, items, k)
    return k


@njit(**PIECE)
def hit(state: np.ndarray, items: int, place: int) -> bool:
    """Remove the first item at a place, and return whether there was one."""
    for k in range(1, state[items] + 1):
        if state[items + k] & PLACE == place:
            remove(state, items, k)
            return True
    return False


@njit(inline="always")
def moved(item: int) -> int:
    """Return an item moved by one column in its direction, GONE beyond the edge."""
    x = (item & COLUMN) + (1 if item & GOING_RIGHT else -1)
    return (item & ~COLUMN) + x if 0 <= x <= EDGE else GONE


@njit(inline="always")
def comes_in(side: np.uint32, place: np.uint32) -> int:
    """Return a new item at a random side and row, going to the other side."""
    lane = ROW * (1 + below(place, LANES))
    return lane + GOING_RIGHT if between(side, 0.0, 1.0) < 0.5 else lane + EDGE


@njit(**PIECE)
def show(state: np.ndarray, seen: np.ndarray, items: int, plane: int, trail: bool) -> None:
    """Light the items of a list in a plane, and if `trail`, the cells behind them in the plane TRAIL."""
    for k in range(1, state[items] + 1):
        x, y = state[items + k] & COLUMN, (state[items + k] & PLACE) // ROW
        behind = x - 1 if state[items + k] & GOING_RIGHT else x + 1
        light(seen, plane, y, x)
        if trail and 0 <= behind <= EDGE:
            light(seen, TRAIL, y, behind)
