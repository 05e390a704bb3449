"""Worlds that are a table of transitions: how the table is stored, looked up, and stepped for many worlds at once.

The rules that fill a table live with their world (frozen_lake, cliff_walking, taxi).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.tiles import MOVE, Tile, draw_each, move_each
from stride.envs_fast.world import IN_EPISODE, KERNEL, NO_LIMIT, NUMBA, Episode, Moment, Stream, Worlds, between, draw
from stride.utils.kernel_cache import njit

ROWS, WIDTH = 1, 1  # numbers of a state and of what is seen of it

Place = tuple[int]


class Outcome(NamedTuple):
    """Where an action may lead."""

    state: int
    reward: float
    terminated: bool


Rules = Callable[[int, int], Sequence[Outcome]]  # (state, action) -> one outcome, or one per probability


class Parameters(NamedTuple):
    """Numbers that a table does not hold."""

    observations: int  # that differ: states from here on are a second copy
    actions: int  # to choose from, for kernels that get a table without its shape
    time_limit: int = NO_LIMIT


class Tables(NamedTuple):
    """A world for the kernel; outcome k of (state, action) has the same probability everywhere."""

    next_state: np.ndarray  # int32 [states, actions, outcomes]
    rewards: np.ndarray  # float64 [states, actions, outcomes]
    ends: np.ndarray  # uint8 [states, actions, outcomes]
    thresholds: np.ndarray  # float64 [outcomes - 1]: where a uniform passes on to the next outcome
    starts: np.ndarray  # int32 [starts]
    start_thresholds: np.ndarray  # float64 [starts - 1]


def tabulate(
    states: int, actions: int, rules: Rules, probabilities: Sequence[float], starts: dict[int, float]
) -> Tables:
    """Write the rules down; a single outcome stands for all of them, `starts` are weights by state."""
    shape = (states, actions, len(probabilities))
    tables = Tables(
        np.empty(shape, np.int32),
        np.empty(shape, np.float64),
        np.empty(shape, np.uint8),
        np.cumsum(probabilities)[:-1],
        np.fromiter(starts, np.int32),
        (np.cumsum(list(starts.values())) / sum(starts.values()))[:-1],
    )
    for state in range(states):
        for action in range(actions):
            next_state, reward, terminated = zip(*rules(state, action), strict=True)
            tables.next_state[state, action] = next_state
            tables.rewards[state, action] = reward
            tables.ends[state, action] = terminated
    return tables


@njit(inline="always")
def choose(uniform: float, thresholds: np.ndarray) -> int:
    """Which outcome a uniform stands for."""
    outcome = 0
    for k in range(thresholds.size):
        outcome += 1 if uniform >= thresholds[k] else 0
    return outcome


@njit(inline="always")
def uniform_of_step(age: int, episode: Episode) -> float:
    """The uniform that decides the step after `age` others."""
    return between(draw(IN_EPISODE * (age + 1), episode)[0], 0.0, 1.0)


@njit(inline="always")
def step(
    state: Place, action: int, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[Place, float, bool]:
    """Where an action leads, its reward, and whether that ends the episode."""
    (place,), outcome = state, choose(moment.noise, tables.thresholds)
    ends = tables.ends[place, action, outcome] != 0
    return (tables.next_state[place, action, outcome],), tables.rewards[place, action, outcome], ends


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> Place:
    """The first state of an episode."""
    if tables.starts.size == 1:
        return (tables.starts[0],)
    uniform = between(draw(0, episode)[0], 0.0, 1.0)
    return (tables.starts[np.searchsorted(tables.start_thresholds, uniform, side="right")],)


@njit(inline="always")
def observe(state: Place, parameters: Parameters) -> Place:
    """The observation of a state: a second copy of all states looks like the first."""
    (place,) = state
    return (place - parameters.observations if place >= parameters.observations else place,)


@njit(**MOVE)
def move(tile: Tile, stream: Stream, parameters: Parameters, tables: Tables) -> None:
    """One step of a tile of worlds; what is certain needs no draws."""
    if tables.thresholds.size > 0:
        draw_each(uniform_of_step, tile, stream)
    move_each(step, observe, WIDTH, tile, stream, parameters, tables)


KERNELS = {NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH, move)}


def gym_state(column: np.ndarray) -> dict[str, Any]:
    """The attributes with which Gymnasium's environment draws this state."""
    return {"s": int(column[0]), "lastaction": None}


@njit(**KERNEL)
def chances(
    worlds: Worlds, stream: Stream, thresholds: np.ndarray, actions: np.ndarray, odds: np.ndarray, out: np.ndarray
) -> None:
    """Write the probability, odds[action, outcome], of the outcome each action is about to have; 1 for no action."""
    ages, episodes = worlds.ages, worlds.episodes
    for i in range(actions.size):
        episode = Episode(episodes[i], stream.first_world + i, stream.seed_lo, stream.seed_hi)
        uniform = uniform_of_step(ages[i], episode)
        valid = (actions[i] >= 0) & (actions[i] < odds.shape[0])
        out[i] = odds[actions[i], choose(uniform, thresholds)] if valid else 1.0
