"""Kernels for environments that are a table of transitions (state, action) -> next state, reward, end.

frozen_lake.py, cliff_walking.py and taxi.py contain the rules that fill a table.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.tiles import MOVE, Tile, draw_each, move_each
from stride.envs_fast.world import IN_EPISODE, KERNEL, NO_LIMIT, NUMBA, Episode, Moment, Stream, Worlds, between, draw
from stride.utils.kernel_cache import njit

ROWS, WIDTH = 1, 1  # numbers in a state; numbers in an observation

State = tuple[int]


class Outcome(NamedTuple):
    """One possible result of an action."""

    state: int
    reward: float
    terminated: bool


Rules = Callable[[int, int], Sequence[Outcome]]  # (state, action) -> one outcome, or one per probability


class Parameters(NamedTuple):
    """Numbers that are not in the tables."""

    observations: int  # how many there are; state s >= observations looks like state s - observations (taxi.py)
    actions: int  # how many there are, for GPU kernels, which get a table without its shape
    time_limit: int = NO_LIMIT


class Tables(NamedTuple):
    """The transitions of a world. Outcome k has the same probability for every state and action."""

    next_state: np.ndarray  # int32 [states, actions, outcomes]
    rewards: np.ndarray  # float64 [states, actions, outcomes]
    ends: np.ndarray  # uint8 [states, actions, outcomes]
    thresholds: np.ndarray  # float64 [outcomes - 1]: cumulated probabilities
    starts: np.ndarray  # int32 [starts]: first states of an episode
    start_thresholds: np.ndarray  # float64 [starts - 1]: cumulated probabilities


def tabulate(
    states: int, actions: int, rules: Rules, probabilities: Sequence[float], starts: dict[int, float]
) -> Tables:
    """Fill the tables from rules, `rules(state, action)`: one outcome for each of `probabilities`, or one for all.

    `starts`: first states of an episode, with their weights.
    """
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
    """Return the outcome that a uniform in [0, 1) selects."""
    outcome = 0
    for k in range(thresholds.size):
        outcome += 1 if uniform >= thresholds[k] else 0
    return outcome


@njit(inline="always")
def uniform_of_step(age: int, episode: Episode) -> float:
    """Return the uniform in [0, 1) that decides the outcome of the step after `age` others."""
    return between(draw(IN_EPISODE * (age + 1), episode)[0], 0.0, 1.0)


@njit(inline="always")
def step(
    state: State, action: int, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """Return the next state, the reward, and whether the episode ends."""
    (number,), outcome = state, choose(moment.noise, tables.thresholds)
    ends = tables.ends[number, action, outcome] != 0
    return (tables.next_state[number, action, outcome],), tables.rewards[number, action, outcome], ends


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> State:
    """Draw the first state of an episode."""
    if tables.starts.size == 1:
        return (tables.starts[0],)
    uniform = between(draw(0, episode)[0], 0.0, 1.0)
    return (tables.starts[np.searchsorted(tables.start_thresholds, uniform, side="right")],)


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> State:
    """Return the observation of a state: its number, the same for both copies of a state."""
    (number,) = state
    return (number - parameters.observations if number >= parameters.observations else number,)


@njit(**MOVE)
def move(tile: Tile, stream: Stream, parameters: Parameters, tables: Tables) -> None:
    """Play one step of a tile of worlds; random numbers are drawn only if there are several outcomes."""
    if tables.thresholds.size > 0:
        draw_each(uniform_of_step, tile, stream)
    move_each(step, observe, WIDTH, tile, stream, parameters, tables)


KERNELS = {NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH, move)}


def gym_state(column: np.ndarray) -> dict[str, Any]:
    """Return the attributes that set this state in Gymnasium's environment."""
    return {"s": int(column[0]), "lastaction": None}


@njit(**KERNEL)
def chances(
    worlds: Worlds, stream: Stream, thresholds: np.ndarray, actions: np.ndarray, odds: np.ndarray, out: np.ndarray
) -> None:
    """Write odds[action, outcome] of the outcome that each action [N] is about to have; 1 for an invalid action."""
    ages, episodes = worlds.ages, worlds.episodes
    for i in range(actions.size):
        episode = Episode(episodes[i], stream.first_world + i, stream.seed_lo, stream.seed_hi)
        uniform = uniform_of_step(ages[i], episode)
        valid = (actions[i] >= 0) & (actions[i] < odds.shape[0])
        out[i] = odds[actions[i], choose(uniform, thresholds)] if valid else 1.0
