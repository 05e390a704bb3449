"""Moves everything but the player in MinAtar/Seaquest: fish, submarines, torpedoes, divers, the player's bullets.

The items of a list (lists.py) move in the package's order: from the end of the list.
"""

import numpy as np

from stride.envs_fast.minatar import lists
from stride.envs_fast.minatar.lists import ABOARD, BULLETS, DIVERS, FISH, GONE, HERE, MOVE, PIECE, PLACE, SHOT, SUBS
from stride.envs_fast.world import between
from stride.utils.kernel_cache import njit

MOST_ABOARD, DIVER_REST, ENEMY_COOL_DOWN = 6, 5, 10  # divers; steps
SUB_CHANCE = 1 / 3


@njit(**PIECE)
def spawn(state: np.ndarray, side: np.uint32, kind: np.uint32, place: np.uint32) -> None:
    """Add an enemy in a random row, unless one in that row goes in the other direction."""
    item = lists.comes_in(side, place)
    for items in (SUBS, FISH):
        for k in range(1, state[items] + 1):
            if (state[items + k] ^ item) & (lists.HEADING - lists.COLUMN) == lists.GOING_RIGHT:
                return
    item += MOVE * state[lists.MOVE_SPEED]
    if between(kind, 0.0, 1.0) < SUB_CHANCE:
        lists.add(state, SUBS, lists.MANY, item + SHOT * ENEMY_COOL_DOWN)
    else:
        lists.add(state, FISH, lists.MANY, item)


@njit(**PIECE)
def move_bullets(state: np.ndarray) -> int:
    """Move the player's bullets; return how many enemies they hit."""
    hits = 0
    for k in range(state[BULLETS], 0, -1):
        item = lists.moved(state[BULLETS + k])
        if item == GONE:
            lists.remove(state, BULLETS, k)
            continue
        state[BULLETS + k] = item
        if lists.hit(state, FISH, item & PLACE) or lists.hit(state, SUBS, item & PLACE):
            lists.remove_equal(state, BULLETS, item)
            hits += 1
    return hits


@njit(**PIECE)
def move_divers(state: np.ndarray) -> None:
    """Move the divers; one at the player's place comes aboard if there is room."""
    for k in range(state[DIVERS], 0, -1):
        item, room = state[DIVERS + k], state[ABOARD] < MOST_ABOARD
        if item & PLACE != state[HERE] or not room:
            if item // MOVE & lists.TIMER:
                item -= MOVE
            else:
                item = lists.moved(item)
                item += MOVE * DIVER_REST if item != GONE else 0
        state[DIVERS + k] = item
        comes = room and item != GONE and item & PLACE == state[HERE]
        if comes or item == GONE:
            lists.remove_equal(state, DIVERS, item)
            state[ABOARD] += 1 if comes else 0


@njit(**PIECE)
def move_enemy(state: np.ndarray, items: int, k: int) -> tuple[int, int, int, bool]:
    """Move item k of a list; return the item, its new k (0: removed), bullets that hit it, if it touched the player."""
    item, at, hits, touched = state[items + k], k, 0, state[items + k] & PLACE == state[HERE]
    if item // MOVE & lists.TIMER:
        return item - MOVE, at, hits, touched
    item = lists.moved(item)
    if item == GONE:
        lists.remove(state, items, k)
        return item, 0, hits, touched
    item += MOVE * state[lists.MOVE_SPEED]
    if item & PLACE == state[HERE]:
        touched = True
    elif lists.hit(state, BULLETS, item & PLACE):
        state[items + k] = item
        at = k - 1 if lists.remove_equal(state, items, item) < k else 0
        hits = 1
    return item, at, hits, touched


@njit(**PIECE)
def move_enemies(state: np.ndarray, items: int, shoot: bool) -> tuple[int, bool]:
    """Move fish or submarines; return how many bullets hit, and whether the player was touched.

    With `shoot` (submarines) each one may fire a torpedo, even one that was just hit.
    """
    hits, lost = 0, False
    for k in range(state[items], 0, -1):
        item, at, shot, touched = move_enemy(state, items, k)
        hits, lost = hits + shot, lost | touched
        if item >= SHOT:
            item -= SHOT
        elif shoot and item != GONE:  # a torpedo from beyond the edge would be gone in this step
            lists.add(state, lists.TORPEDOES, lists.MOST, item & lists.HEADING)
            item += SHOT * ENEMY_COOL_DOWN
        if at > 0:
            state[items + at] = item
    return hits, lost


@njit(**PIECE)
def move_torpedoes(state: np.ndarray) -> bool:
    """Move the torpedoes; return whether one is at the player's place before or after its move."""
    lost = False
    for k in range(state[lists.TORPEDOES], 0, -1):
        item = lists.moved(state[lists.TORPEDOES + k])
        lost |= state[lists.TORPEDOES + k] & PLACE == state[HERE]
        if item == GONE:
            lists.remove(state, lists.TORPEDOES, k)
        else:
            lost |= item & PLACE == state[HERE]
            state[lists.TORPEDOES + k] = item
    return lost
