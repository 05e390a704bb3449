"""Draws random states of the compiled MinAtar games, for lab.parity and the tests of their GPU versions.

Not all of them can be reached by playing, but the package's game can be set to each.
"""

from collections.abc import Callable

import numpy as np

from stride.envs_fast.minatar import asterix, breakout, freeway, lists, seaquest, space_invaders
from stride.envs_fast.minatar.game import ALL_ACTIONS, BEFORE, EDGE, SIDE

Fill = Callable[[np.ndarray, np.random.Generator], None]
LOWEST = 0.2  # fraction of numbers set to their lowest value: a timer has ended, a wall is gone


def random_states(env_id: str, number: int, rng: np.random.Generator) -> np.ndarray:
    """Return random states, int32 [state_size, number], of a game such as MinAtar/Breakout-v1."""
    rows, fill = GAMES[env_id.removeprefix("MinAtar/").rpartition("-")[0]]
    states = np.zeros((rows, number), np.int32)
    states[BEFORE] = rng.integers(0, ALL_ACTIONS, number)
    fill(states, rng)
    return states


def _draw(states: np.ndarray, rng: np.random.Generator, ranges: dict[int, tuple[int, int]]) -> None:
    """Fill rows of the states with whole numbers in [low, high); `ranges` is row -> (low, high)."""
    for row, (low, high) in ranges.items():
        drawn = rng.integers(low, high, states.shape[1])
        states[row] = np.where(rng.random(states.shape[1]) < LOWEST, low, drawn)


def _few_bits(rng: np.random.Generator, bits: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers of so many bits, of which about one in eight is set."""
    parts = [rng.integers(0, 1 << bits, shape) for _ in range(3)]
    return parts[0] & parts[1] & parts[2]


def _breakout(states: np.ndarray, rng: np.random.Generator) -> None:
    b = breakout
    places = dict.fromkeys((b.POSITION, b.BALL_X, b.LAST_X, b.LAST_Y), (0, SIDE))
    _draw(states, rng, {**places, b.BALL_Y: (0, EDGE), b.DIRECTION: (0, 4), b.IN_WALL: (0, 2)})
    walls = _few_bits(rng, 30, (states.shape[1],))
    states[b.WALL] = np.where(
        rng.random(len(walls)) < LOWEST, 0, np.where(rng.random(len(walls)) < 0.5, walls, b.WHOLE)
    )


def _asterix(states: np.ndarray, rng: np.random.Generator) -> None:
    a = asterix
    ranges = {
        a.PLAYER_X: (0, SIDE), a.PLAYER_Y: (1, a.LANES + 1), a.SPAWN_SPEED: (1, 11), a.SPAWN_TIMER: (0, 11),
        a.MOVE_SPEED: (1, 6), a.MOVE_TIMER: (0, 6), a.RAMP_TIMER: (-1, 101), a.RAMPS: (0, 9),
    }  # fmt: skip
    _draw(states, rng, ranges)
    shape = (a.LANES, states.shape[1])
    items = rng.integers(0, SIDE, shape) + a.RIGHTWARDS * rng.integers(0, 2, shape)
    items += a.IS_GOLD * rng.integers(0, 2, shape)
    states[a.SLOTS :] = np.where(rng.random(shape) < rng.random(shape[1]), a.EMPTY, items)


def _freeway(states: np.ndarray, rng: np.random.Generator) -> None:
    f = freeway
    _draw(states, rng, {f.POSITION: (1, SIDE), f.MOVE_TIMER: (0, 4), f.TIME_LEFT: (0, 2501)})
    for car in range(f.CARS, f.ROWS, f.NUMBERS):
        _draw(states, rng, {car + f.COLUMN: (0, SIDE), car + f.TIMER: (0, 6), car + f.REST: (1, 6)})
        states[car + f.REST] *= rng.choice([-1, 1], states.shape[1])


def _space_invaders(states: np.ndarray, rng: np.random.Generator) -> None:
    s = space_invaders
    ranges = {
        s.POSITION: (0, SIDE), s.INTERVAL: (6, 13), s.MOVE_TIMER: (0, 13), s.ALIEN_TIMER: (0, 11), s.SHOT_TIMER: (0, 6),
    }  # fmt: skip
    _draw(states, rng, ranges)
    states[s.DIRECTION] = rng.choice([-1, 1], states.shape[1])
    for first in (s.ALIENS, s.BULLETS, s.ALIEN_BULLETS):
        states[first : first + SIDE] = _few_bits(rng, SIDE, (SIDE, states.shape[1]))
    few = np.flatnonzero(rng.random(states.shape[1]) < 0.5)  # all but one row are empty
    states[s.ALIENS : s.ALIENS + SIDE, few] = 0
    states[s.ALIENS + rng.integers(0, SIDE, len(few)), few] = 1 << rng.integers(0, SIDE, len(few))
    states[s.ALIENS] |= np.where((states[s.ALIENS : s.ALIENS + SIDE] == 0).all(axis=0), 1, 0)  # at least one alien


def _seaquest(states: np.ndarray, rng: np.random.Generator) -> None:
    q, number = seaquest, states.shape[1]
    ranges = {
        q.OXYGEN: (0, 201), lists.ABOARD: (-2, 7), q.SPAWN_SPEED: (1, 21), q.SPAWN_TIMER: (0, 21),
        q.DIVER_TIMER: (0, 31), lists.MOVE_SPEED: (2, 6), q.RAMPS: (0, 9), q.SHOT_TIMER: (0, 6), q.SURFACED: (0, 2),
    }  # fmt: skip
    _draw(states, rng, ranges)
    x = rng.integers(0, SIDE, number)
    states[lists.HERE] = x + lists.ROW * rng.integers(0, lists.LANES + 1, number)
    right = np.where(x == 0, 0, np.where(x == EDGE, 1, rng.integers(0, 2, number)))  # its back is on the screen, too
    states[lists.FACING] = lists.GOING_RIGHT * right
    # room is left for items that come within 50 steps
    for first, count, timers in (  # first row, most items, timers of an item
        (lists.BULLETS, 3, 0), (lists.DIVERS, 2, 1), (lists.TORPEDOES, 9, 0), (lists.FISH, 12, 1), (lists.SUBS, 12, 2),
    ):  # fmt: skip
        shape = (count, number)
        items = rng.integers(0, SIDE, shape) + lists.ROW * rng.integers(1, lists.LANES + 1, shape)
        items += lists.GOING_RIGHT * rng.integers(0, 2, shape)
        items += lists.MOVE * rng.integers(0, 6, shape) if timers else 0
        items += lists.SHOT * rng.integers(0, 11, shape) if timers == 2 else 0
        states[first] = rng.integers(0, count + 1, number)
        states[first + 1 : first + 1 + count] = items


GAMES: dict[str, tuple[int, Fill]] = {
    "Asterix": (asterix.ROWS, _asterix),
    "Breakout": (breakout.ROWS, _breakout),
    "Freeway": (freeway.ROWS, _freeway),
    "Seaquest": (lists.ROWS, _seaquest),
    "SpaceInvaders": (space_invaders.ROWS, _space_invaders),
}
