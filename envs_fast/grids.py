"""The autoreset loop of worlds that are seen as a picture or a grid: too many numbers for tuples, so arrays hold them.

Such a world's functions work in place, each on one world at one instant (minatar/breakout.py is the shortest to read):
    step(state, action, moment, parameters, tables) -> (reward, terminated)
    reset(state, episode, parameters, tables)
    observe(state, seen, parameters)
and one function takes an action of the actions [T, N, ...] of all, which lie flat:
    pick(actions, at, tables) -> action
`state` [state_size] are the world's own numbers, `seen` [width] its row of the observations, flat. Whatever they held
before is still there: `reset` and `observe` write all of it. Episodes end and begin as in tiles.py.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from stride.envs_fast.views import flat, window
from stride.envs_fast.world import Episode, Moment, Simulation, Tables, Told
from stride.utils.kernel_cache import njit


@njit(inline="always")
def pick_number(actions: np.ndarray, at: int, tables: Tables) -> int:
    """An action that is one number."""
    return actions[at]


@njit(inline="always")
def pick_vector(actions: np.ndarray, at: int, tables: Any) -> np.ndarray:
    """An action of as many numbers as `tables.scale` has columns."""
    return window(actions, at * tables.scale.shape[1], tables.scale.shape[1])


@njit(inline="always")
def play_grids(
    step: Callable, reset: Callable, observe: Callable, pick: Callable, width: int, simulation: Simulation, lo: int,
    hi: int, actions: np.ndarray, told: Told,
) -> None:  # fmt: skip
    """The body of a world's `advance` (world.py): all steps of a world before the next, whose state stays in cache."""
    (states, ages, episodes, returns), stream, parameters, tables = simulation
    worlds, rows, numbers, taken = ages.size, states.shape[1], flat(states), flat(actions)
    obs, reward, terminated, truncated = flat(told.obs), flat(told.reward), flat(told.terminated), flat(told.truncated)
    final_obs, episode_return = flat(told.final_obs), flat(told.episode_return)
    episode_length = flat(told.episode_length)
    limit = np.int64(parameters.time_limit)
    for i in range(lo, hi):
        state = window(numbers, rows * i, rows)
        age: int = np.int64(ages[i])  # type: ignore[assignment]  # int() would leave it as int32
        number: int = np.int64(episodes[i])  # type: ignore[assignment]
        total = returns[i]
        for at in range(i, reward.size, worlds):
            episode = Episode(number, stream.first_world + i, stream.seed_lo, stream.seed_hi)
            gain, over = step(state, pick(taken, at, tables), Moment(age, 0.0, episode), parameters, tables)
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
    """The body of a world's `restart` (world.py)."""
    (states, ages, episodes, returns), stream, parameters, tables = simulation
    rows, numbers, observations = states.shape[1], flat(states), flat(obs)
    for i in range(lo, hi):
        state = window(numbers, rows * i, rows)
        if mask[i]:
            ages[i], returns[i] = 0, 0.0
            episode = Episode(episodes[i], stream.first_world + i, stream.seed_lo, stream.seed_hi)
            reset(state, episode, parameters, tables)
        observe(state, window(observations, width * i, width), parameters)
