"""MinAtar/Asterix: collect gold that comes in from both sides, and touch none of the enemies among it.

Gold is worth 1. Where difficulty ramps, more comes and all moves faster. The episode ends with the touch of an enemy.
"""

import numpy as np

from stride.envs_fast.kernels import grid_kernels_of
from stride.envs_fast.minatar import game
from stride.envs_fast.minatar.game import BEFORE, EDGE, Parameters, Tables, below, carried_out, darken, light
from stride.envs_fast.world import NUMBA, Episode, Moment, between, draw_now
from stride.utils.kernel_cache import njit

PLAYER, ENEMY, TRAIL, GOLD, PLANES = range(5)
PLAYER_X, PLAYER_Y = 1, 2  # rows of the state
SPAWN_SPEED, SPAWN_TIMER, MOVE_SPEED, MOVE_TIMER, RAMP_TIMER, RAMPS, SLOTS = range(3, 10)
LANES, ROWS = 8, 17  # slot k is lane k + 1 of the picture: EMPTY, or what comes there, x + RIGHTWARDS + IS_GOLD
EMPTY, RIGHTWARDS, IS_GOLD, PLACE = -1, 16, 32, 15
FIRST_SPAWN_SPEED, FIRST_MOVE_SPEED, RAMP_INTERVAL = 10, 5, 100  # steps; a ramp comes 2 later
GOLD_CHANCE = 1 / 3


@njit(inline="always")
def spawn(state: np.ndarray, side: np.uint32, kind: np.uint32, place: np.uint32) -> None:
    """Something comes in at a side, in one of the lanes that are free."""
    free = 0
    for slot in range(SLOTS, SLOTS + LANES):
        free += 1 if state[slot] == EMPTY else 0
    comes = RIGHTWARDS if between(side, 0.0, 1.0) < 0.5 else EDGE
    comes += IS_GOLD if between(kind, 0.0, 1.0) < GOLD_CHANCE else 0
    chosen = below(place, free)
    for slot in range(SLOTS, SLOTS + LANES):
        if state[slot] == EMPTY:
            if chosen == 0:
                state[slot] = comes
            chosen -= 1


@njit(inline="always")
def meet(state: np.ndarray, slot: int) -> tuple[float, bool]:
    """The reward and whether the episode ends, where the player is in the cell of what comes in a slot."""
    comes = state[slot]
    if comes == EMPTY or state[PLAYER_Y] != slot - SLOTS + 1 or state[PLAYER_X] != comes & PLACE:
        return 0.0, False
    if comes & IS_GOLD:
        state[slot] = EMPTY
        return 1.0, False
    return 0.0, True


@njit(inline="always")
def step(state: np.ndarray, action: int, moment: Moment, parameters: Parameters, tables: Tables) -> tuple[float, bool]:
    """Something comes in, the player moves, then all else."""
    word, side, kind, place = draw_now(moment)
    carried = carried_out(state, action, word, parameters, tables)
    if state[SPAWN_TIMER] == 0:
        spawn(state, side, kind, place)
        state[SPAWN_TIMER] = state[SPAWN_SPEED]
    state[PLAYER_X] += 1 if carried == game.RIGHT else -1 if carried == game.LEFT else 0
    state[PLAYER_Y] += 1 if carried == game.DOWN else -1 if carried == game.UP else 0
    state[PLAYER_X] = min(max(state[PLAYER_X], 0), EDGE)
    state[PLAYER_Y] = min(max(state[PLAYER_Y], 1), LANES)
    total, over, moves = 0.0, False, state[MOVE_TIMER] == 0
    if moves:
        state[MOVE_TIMER] = state[MOVE_SPEED]
    for slot in range(SLOTS, SLOTS + LANES):
        gain, lost = meet(state, slot)
        total, over = total + gain, over | lost
        comes = state[slot]
        if moves and comes != EMPTY:
            x = (comes & PLACE) + (1 if comes & RIGHTWARDS else -1)
            state[slot] = (comes & ~PLACE) + x if 0 <= x <= EDGE else EMPTY
            gain, lost = meet(state, slot)
            total, over = total + gain, over | lost
    state[SPAWN_TIMER] -= 1
    state[MOVE_TIMER] -= 1
    if parameters.difficulty_ramping and (state[SPAWN_SPEED] > 1 or state[MOVE_SPEED] > 1):
        state[RAMP_TIMER] -= 1
        if state[RAMP_TIMER] < -1:
            if state[MOVE_SPEED] > 1 and state[RAMPS] & 1:
                state[MOVE_SPEED] -= 1
            state[SPAWN_SPEED] = max(1, state[SPAWN_SPEED] - 1)
            state[RAMPS] += 1
            state[RAMP_TIMER] = RAMP_INTERVAL
    return total, over


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Tables) -> None:
    """The player alone; nothing is left to chance."""
    state[BEFORE], state[PLAYER_X], state[PLAYER_Y] = game.NOTHING, 5, 5
    state[RAMP_TIMER], state[RAMPS] = RAMP_INTERVAL, 0
    state[SPAWN_SPEED], state[SPAWN_TIMER] = FIRST_SPAWN_SPEED, FIRST_SPAWN_SPEED
    state[MOVE_SPEED], state[MOVE_TIMER] = FIRST_MOVE_SPEED, FIRST_MOVE_SPEED
    for slot in range(SLOTS, SLOTS + LANES):
        state[slot] = EMPTY


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: Parameters) -> None:
    """The player, enemies, where each thing comes from, gold."""
    darken(seen)
    light(seen, PLAYER, state[PLAYER_Y], state[PLAYER_X])
    for slot in range(SLOTS, SLOTS + LANES):
        comes = state[slot]
        x = comes & PLACE
        behind = x - 1 if comes & RIGHTWARDS else x + 1
        if comes != EMPTY:
            light(seen, GOLD if comes & IS_GOLD else ENEMY, slot - SLOTS + 1, x)
            if 0 <= behind <= EDGE:
                light(seen, TRAIL, slot - SLOTS + 1, behind)


KERNELS = {NUMBA: grid_kernels_of(step, reset, observe, PLANES * game.CELLS)}
ACTIONS = (game.NOTHING, game.LEFT, game.UP, game.RIGHT, game.DOWN)
WORLDS = game.worlds_of("Asterix", KERNELS, ROWS, PLANES, ACTIONS)
