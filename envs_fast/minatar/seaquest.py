"""MinAtar/Seaquest: a submarine shoots fish and enemy submarines, and brings divers to the surface.

Each hit gives 1. Surfacing with six divers aboard gives 1 for each 20 of the oxygen left. The episode ends when an
enemy or a torpedo touches the player, without oxygen, or at the surface with no diver. As in the package, -1 divers are
aboard after six have left. With `difficulty_ramping`, each time at the surface brings more and faster enemies.
"""

import numpy as np

from stride.envs_fast.kernels import grid_kernels_of
from stride.envs_fast.minatar import game, lists, swimmers
from stride.envs_fast.minatar.game import BEFORE, EDGE, Parameters, Tables, carried_out, darken, light
from stride.envs_fast.minatar.lists import ABOARD, COLUMN, FACING, GOING_RIGHT, HERE, LANES, MOVE_SPEED, ROW
from stride.envs_fast.world import IN_EPISODE, NUMBA, Episode, Moment, draw
from stride.utils.kernel_cache import njit

FRONT, BACK, BULLET, TRAIL, TORPEDO, ONE_FISH, ONE_SUB, OXYGEN_BAR, DIVER_BAR, ONE_DIVER, PLANES = range(11)
# indices in the state; the others are in lists.py
OXYGEN, SPAWN_SPEED, SPAWN_TIMER, DIVER_TIMER, RAMPS, SHOT_TIMER, SURFACED = range(5, 12)
FULL, BAR = 200, 10  # most oxygen (1 a step); cells of its bar
FIRST_SPAWN_SPEED, FIRST_MOVE_SPEED, FASTEST, DIVER_SPAWN, COOL_DOWN = 20, 5, 2, 30, 5  # steps


@njit(inline="always")
def act(state: np.ndarray, carried: int) -> None:
    """Let the player shoot or move."""
    x, y = state[HERE] & COLUMN, state[HERE] // ROW
    if carried == game.FIRE and state[SHOT_TIMER] == 0:
        lists.add(state, lists.BULLETS, lists.FEW, state[HERE] + state[FACING])
        state[SHOT_TIMER] = COOL_DOWN
    elif carried == game.LEFT:
        x, state[FACING] = max(0, x - 1), 0
    elif carried == game.RIGHT:
        x, state[FACING] = min(EDGE, x + 1), GOING_RIGHT
    elif carried == game.UP:
        y = max(0, y - 1)
    elif carried == game.DOWN:
        y = min(LANES, y + 1)
    state[HERE] = x + ROW * y


@njit(inline="always")
def surface(state: np.ndarray, ramping: bool) -> int:
    """Fill the oxygen and remove one diver, or all six for a reward, which is returned; may make the game harder."""
    gain = 0
    if state[ABOARD] == swimmers.MOST_ABOARD:
        state[ABOARD], gain = 0, state[OXYGEN] * BAR // FULL
    state[OXYGEN], state[SURFACED] = FULL, 1
    state[ABOARD] -= 1
    if ramping and (state[SPAWN_SPEED] > 1 or state[MOVE_SPEED] > FASTEST):
        if state[MOVE_SPEED] > FASTEST and state[RAMPS] & 1:
            state[MOVE_SPEED] -= 1
        state[SPAWN_SPEED] = max(1, state[SPAWN_SPEED] - 1)
        state[RAMPS] += 1
    return gain


@njit(inline="always")
def step(state: np.ndarray, action: int, moment: Moment, parameters: Parameters, tables: Tables) -> tuple[float, bool]:
    """Play one step: enemies and divers may come in, the player acts, then everything else moves."""
    block = IN_EPISODE * (moment.age + 1)
    word, side, kind, place = draw(block, moment.episode)
    carried = carried_out(state, action, word, parameters, tables)
    if state[SPAWN_TIMER] == 0:
        swimmers.spawn(state, side, kind, place)
        state[SPAWN_TIMER] = state[SPAWN_SPEED]
    if state[DIVER_TIMER] == 0:
        side, place, _, _ = draw(block + 1, moment.episode)
        lists.add(state, lists.DIVERS, lists.FEW, lists.comes_in(side, place) + lists.MOVE * swimmers.DIVER_REST)
        state[DIVER_TIMER] = DIVER_SPAWN
    act(state, carried)
    gain = swimmers.move_bullets(state)
    swimmers.move_divers(state)
    subs, over = swimmers.move_enemies(state, lists.SUBS, True)
    over |= swimmers.move_torpedoes(state)
    fish, touched = swimmers.move_enemies(state, lists.FISH, False)
    gain, over = gain + subs + fish, over | touched | (state[OXYGEN] <= 0)
    for timer in (SPAWN_TIMER, DIVER_TIMER, SHOT_TIMER):
        state[timer] = max(0, state[timer] - 1)
    if state[HERE] >= ROW:
        state[OXYGEN], state[SURFACED] = state[OXYGEN] - 1, 0
    elif state[SURFACED] == 0:
        if state[ABOARD] == 0:
            over = True
        else:
            gain += surface(state, parameters.difficulty_ramping)
    return float(gain), over


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Tables) -> None:
    """Begin with the player alone at the surface; nothing is random."""
    for row in range(lists.ROWS):
        state[row] = 0
    state[BEFORE], state[HERE], state[OXYGEN], state[SURFACED] = game.NOTHING, 5, FULL, 1
    state[SPAWN_SPEED], state[SPAWN_TIMER], state[DIVER_TIMER] = FIRST_SPAWN_SPEED, FIRST_SPAWN_SPEED, DIVER_SPAWN
    state[MOVE_SPEED] = FIRST_MOVE_SPEED


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: Parameters) -> None:
    """Write the player's two cells, all lists, and the bars for oxygen and divers aboard at the bottom."""
    darken(seen)
    x, y = state[HERE] & COLUMN, state[HERE] // ROW
    light(seen, FRONT, y, x)
    light(seen, BACK, y, x - 1 if state[FACING] else x + 1)
    for x in range(max(0, state[OXYGEN]) * BAR // FULL):
        light(seen, OXYGEN_BAR, EDGE, x)
    for x in range(EDGE - max(0, state[ABOARD]), EDGE):
        light(seen, DIVER_BAR, EDGE, x)
    lists.show(state, seen, lists.BULLETS, BULLET, False)
    lists.show(state, seen, lists.TORPEDOES, TORPEDO, False)
    lists.show(state, seen, lists.FISH, ONE_FISH, True)
    lists.show(state, seen, lists.SUBS, ONE_SUB, True)
    lists.show(state, seen, lists.DIVERS, ONE_DIVER, True)


KERNELS = {NUMBA: grid_kernels_of(step, reset, observe, PLANES * game.CELLS)}
ACTIONS = tuple(range(game.ALL_ACTIONS))
WORLDS = game.worlds_of("Seaquest", KERNELS, lists.ROWS, PLANES, ACTIONS)
