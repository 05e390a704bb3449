"""MinAtar/Asterix: collect gold that thing in from both sides, and avoid the enemies that come in with it.

Gold gives 1. With `difficulty_ramping` things come more often and move faster. Touching an enemy ends the episode.
"""

import numpy as np

from stride.envs_fast.kernels import grid_kernels_of
from stride.envs_fast.minatar import game
from stride.envs_fast.minatar.game import BEFORE, EDGE, Parameters, Tables, below, carried_out, darken, light
from stride.envs_fast.world import NUMBA, Episode, Moment, between, draw_now
from stride.utils.kernel_cache import njit

PLAYER, ENEMY, TRAIL, GOLD, PLANES = range(5)  # planes of the observation
PLAYER_X, PLAYER_Y = 1, 2  # indices in the state
SPAWN_SPEED, SPAWN_TIMER, MOVE_SPEED, MOVE_TIMER, RAMP_TIMER, RAMPS, SLOTS = range(3, 10)
# one slot for each lane, slot k is row k + 1 of the picture: EMPTY, or a thing as x + RIGHTWARDS + IS_GOLD
LANES, ROWS = 8, 17
EMPTY, RIGHTWARDS, IS_GOLD, PLACE = -1, 16, 32, 15
FIRST_SPAWN_SPEED, FIRST_MOVE_SPEED, RAMP_INTERVAL = 10, 5, 100  # steps; a ramp comes 2 later
GOLD_CHANCE = 1 / 3


@njit(inline="always")
def spawn(state: np.ndarray, side: np.uint32, kind: np.uint32, lane: np.uint32) -> None:
    """Put gold or an enemy into a random free lane, at a random side."""
    free = 0
    for slot in range(SLOTS, SLOTS + LANES):
        free += 1 if state[slot] == EMPTY else 0
    thing = RIGHTWARDS if between(side, 0.0, 1.0) < 0.5 else EDGE
    thing += IS_GOLD if between(kind, 0.0, 1.0) < GOLD_CHANCE else 0
    chosen = below(lane, free)
    for slot in range(SLOTS, SLOTS + LANES):
        if state[slot] == EMPTY:
            if chosen == 0:
                state[slot] = thing
            chosen -= 1


@njit(inline="always")
def meet(state: np.ndarray, slot: int) -> tuple[float, bool]:
    """Return reward and end for a slot: (0.0, False) unless the player is in the cell of its thing."""
    thing = state[slot]
    if thing == EMPTY or state[PLAYER_Y] != slot - SLOTS + 1 or state[PLAYER_X] != thing & PLACE:
        return 0.0, False
    if thing & IS_GOLD:
        state[slot] = EMPTY
        return 1.0, False
    return 0.0, True


@njit(inline="always")
def step(state: np.ndarray, action: int, moment: Moment, parameters: Parameters, tables: Tables) -> tuple[float, bool]:
    """Play one step: a thing may come in, the player moves, then the things move."""
    word, side, kind, lane = draw_now(moment)
    carried = carried_out(state, action, word, parameters, tables)
    if state[SPAWN_TIMER] == 0:
        spawn(state, side, kind, lane)
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
        thing = state[slot]
        if moves and thing != EMPTY:
            x = (thing & PLACE) + (1 if thing & RIGHTWARDS else -1)
            state[slot] = (thing & ~PLACE) + x if 0 <= x <= EDGE else EMPTY
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
    """Begin with the player alone; nothing is random."""
    state[BEFORE], state[PLAYER_X], state[PLAYER_Y] = game.NOTHING, 5, 5
    state[RAMP_TIMER], state[RAMPS] = RAMP_INTERVAL, 0
    state[SPAWN_SPEED], state[SPAWN_TIMER] = FIRST_SPAWN_SPEED, FIRST_SPAWN_SPEED
    state[MOVE_SPEED], state[MOVE_TIMER] = FIRST_MOVE_SPEED, FIRST_MOVE_SPEED
    for slot in range(SLOTS, SLOTS + LANES):
        state[slot] = EMPTY


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: Parameters) -> None:
    """Write the player, enemies, the cell behind each thing (TRAIL), and gold."""
    darken(seen)
    light(seen, PLAYER, state[PLAYER_Y], state[PLAYER_X])
    for slot in range(SLOTS, SLOTS + LANES):
        thing = state[slot]
        x = thing & PLACE
        behind = x - 1 if thing & RIGHTWARDS else x + 1
        if thing != EMPTY:
            light(seen, GOLD if thing & IS_GOLD else ENEMY, slot - SLOTS + 1, x)
            if 0 <= behind <= EDGE:
                light(seen, TRAIL, slot - SLOTS + 1, behind)


KERNELS = {NUMBA: grid_kernels_of(step, reset, observe, PLANES * game.CELLS)}
ACTIONS = (game.NOTHING, game.LEFT, game.UP, game.RIGHT, game.DOWN)
WORLDS = game.worlds_of("Asterix", KERNELS, ROWS, PLANES, ACTIONS)
