"""The loop over steps with autoreset for environments whose observation is a picture or a grid.

These have too many flat_states for tuples (tiles.py), so arrays hold them. The functions of such an environment work in
place, each on one world at one instant (minatar/breakout.py is the shortest to read):
    step(state, action, moment, parameters, tables) -> (reward, terminated)
    reset(state, episode, parameters, tables)
    observe(state, seen, parameters)
One more function reads the action at index `at` of the actions [T, N, ...] of all worlds, which are flat:
    pick(actions, at, tables) -> action
`state` [state_size] is the state of the world, `seen` [width] its flat observation, to write into. Both still contain
old flat_states: `reset` and `observe` must write all of them. Episodes end and begin as in tiles.py.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from stride.envs_fast.views import flat, window
from stride.envs_fast.world import Episode, Moment, Simulation, StepResults, Tables
from stride.utils.kernel_cache import njit


@njit(inline="always")
def pick_number(actions: np.ndarray, at: int, tables: Tables) -> int:
    """Return an action that is one number."""
    return actions[at]


@njit(inline="always")
def pick_vector(actions: np.ndarray, at: int, tables: Any) -> np.ndarray:
    """Return an action that is an array: as many flat_states as `tables.scale` (bodies/physics.py) has columns."""
    return window(actions, at * tables.scale.shape[1], tables.scale.shape[1])


@njit(inline="always")
def play_grids(
    step: Callable, reset: Callable, observe: Callable, pick: Callable, width: int, simulation: Simulation, lo: int,
    hi: int, actions: np.ndarray, results: StepResults,
) -> None:  # fmt: skip
    """Play T steps of the worlds [lo, hi); the body of a world's `advance` (world.py).

    It plays all steps of one world before the next world, so that the state stays in the cache.
    """
    (states, ages, episodes, returns), stream, parameters, tables = simulation
    worlds, rows, flat_states, flat_actions = ages.size, states.shape[1], flat(states), flat(actions)
    obs, reward = flat(results.obs), flat(results.reward)
    terminated, truncated = flat(results.terminated), flat(results.truncated)
    final_obs, episode_return = flat(results.final_obs), flat(results.episode_return)
    episode_length = flat(results.episode_length)
    limit = np.int64(parameters.time_limit)
    for i in range(lo, hi):
        state = window(flat_states, rows * i, rows)
        age: int = np.int64(ages[i])  # type: ignore[assignment]  # Numba's int() would keep it int32
        number: int = np.int64(episodes[i])  # type: ignore[assignment]
        total = returns[i]
        for at in range(i, reward.size, worlds):
            episode = Episode(number, stream.first_world + i, stream.seed_lo, stream.seed_hi)
            gain, over = step(state, pick(flat_actions, at, tables), Moment(age, 0.0, episode), parameters, tables)
            age += 1
            total += gain
            cut = (age >= limit) & (not over)
            reward[at], terminated[at], truncated[at] = gain, over, cut
            if over | cut:
                observe(state, window(final_obs, width * at, width), parameters)
                episode_return[at], episode_length[at] = total, age
                age, total = 0, 0.0
                number += 1
                following = Episode(number, stream.first_world + i, stream.seed_lo, stream.seed_hi)
                reset(state, following, parameters, tables)
            observe(state, window(obs, width * at, width), parameters)
        ages[i], episodes[i], returns[i] = age, number, total


@njit(inline="always")
def begin_grids(
    reset: Callable, observe: Callable, width: int, simulation: Simulation, lo: int, hi: int, mask: np.ndarray,
    obs: np.ndarray,
) -> None:  # fmt: skip
    """Begin the next episodes of the masked worlds of [lo, hi), then observe all; the body of `restart` (world.py)."""
    (states, ages, episodes, returns), stream, parameters, tables = simulation
    rows, flat_states, observations = states.shape[1], flat(states), flat(obs)
    for i in range(lo, hi):
        state = window(flat_states, rows * i, rows)
        if mask[i]:
            ages[i], returns[i] = 0, 0.0
            episode = Episode(episodes[i], stream.first_world + i, stream.seed_lo, stream.seed_hi)
            reset(state, episode, parameters, tables)
        observe(state, window(observations, width * i, width), parameters)
