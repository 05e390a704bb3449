"""Seaquest's lists of what moves by itself, each item one number: where it is, which way it goes, its timers.

A list is its length, then its items, in rows of the state; item k is k rows behind the length. An item is
    x + 16 y + 256 (going right) + 512 (steps to its next move) + 8192 (steps to its next shot)
The package removes the first item that equals another while it goes through a list from its end, and so does this:
that decides, once in a long time, which of two is where afterwards.
"""

from typing import Any

import numpy as np

from stride.envs_fast.minatar.game import EDGE, below, light
from stride.envs_fast.world import between
from stride.utils.kernel_cache import njit

ROW, GOING_RIGHT, MOVE, SHOT = 16, 256, 512, 8192  # what one more of each adds to an item
COLUMN, PLACE, HEADING, TIMER = 15, 255, 511, 15  # bits: x, x and y, these with the direction; of a timer
GONE = -1
HERE, FACING, ABOARD, MOVE_SPEED = range(1, 5)  # rows of the state that lists depend on; the player as an item's parts
# rows of the state where the lists begin. No list gets longer than its room: an enemy crosses the picture within 34
# steps once one comes in every step, a bullet within 10; the player shoots every 5 steps, a diver comes every 30
BULLETS, DIVERS, TORPEDOES, FISH, SUBS, ROWS = 13, 18, 23, 72, 109, 146
FEW, MANY, MOST = 4, 36, 48  # rooms: of bullets and of divers, of fish and of subs, of torpedoes
LANES = 8  # rows of the picture below the surface, in which all but the player stay
TRAIL = 3  # the plane of where things come from
PIECE: dict[str, Any] = {"error_model": "numpy"}  # of functions that kernels call: inlined they compile longer


@njit(inline="always")
def add(state: np.ndarray, items: int, room: int, item: int) -> None:
    """Put an item behind the others."""
    if state[items] < room:
        state[items] += 1
        state[items + state[items]] = item


@njit(**PIECE)
def remove(state: np.ndarray, items: int, k: int) -> None:
    """Take item k out; those behind it move up."""
    for row in range(items + k, items + state[items]):
        state[row] = state[row + 1]
    state[items] -= 1


@njit(**PIECE)
def remove_equal(state: np.ndarray, items: int, item: int) -> int:
    """Take the first item that equals this one out, which is there; the k it had."""
    k = 1
    while state[items + k] != item:
        k += 1
    remove(state, items, k)
    return k


@njit(**PIECE)
def hit(state: np.ndarray, items: int, place: int) -> bool:
    """Take the first item of a place out, if there is one."""
    for k in range(1, state[items] + 1):
        if state[items + k] & PLACE == place:
            remove(state, items, k)
            return True
    return False


@njit(inline="always")
def moved(item: int) -> int:
    """An item one column on, GONE beyond the edge."""
    x = (item & COLUMN) + (1 if item & GOING_RIGHT else -1)
    return (item & ~COLUMN) + x if 0 <= x <= EDGE else GONE


@njit(inline="always")
def comes_in(side: np.uint32, place: np.uint32) -> int:
    """An item at a side, on its way to the other."""
    lane = ROW * (1 + below(place, LANES))
    return lane + GOING_RIGHT if between(side, 0.0, 1.0) < 0.5 else lane + EDGE


@njit(**PIECE)
def show(state: np.ndarray, seen: np.ndarray, items: int, plane: int, trail: bool) -> None:
    """All of a list in their plane, and behind them where they come from."""
    for k in range(1, state[items] + 1):
        x, y = state[items + k] & COLUMN, (state[items + k] & PLACE) // ROW
        behind = x - 1 if state[items + k] & GOING_RIGHT else x + 1
        light(seen, plane, y, x)
        if trail and 0 <= behind <= EDGE:
            light(seen, TRAIL, y, behind)
