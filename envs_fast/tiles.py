"""The loop over steps with autoreset, written once for all compiled environments whose state is a tuple of numbers.

A tile is TILE neighbouring worlds. The loop plays all T steps of one tile before the next tile begins, so that the
state of a tile stays in the L1 cache. `play` and `begin` get the `move`, `reset` and `observe` of an environment as
arguments; kernels.py compiles them into its two kernels.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.core.compiler import Compiler

from stride.envs_fast.ended import list_ended
from stride.envs_fast.views import columns, flat, gather, put, scratch, scratch_list, spread, take, window
from stride.envs_fast.world import KERNEL, TILE, Episode, Moment, Parameters, Simulation, StepResults, Stream, Tables
from stride.utils.kernel_cache import njit


class NoAlias(Compiler):
    """Numba's compiler for functions whose arrays do not overlap, so that the code need not compare their addresses."""

    def define_pipelines(self) -> Any:
        """Set LLVM's flag `noalias`, for which Numba's decorators have no option, then do what Numba does."""
        self.state.flags.noalias = True
        return super().define_pipelines()


MOVE = {**KERNEL, "pipeline_class": NoAlias}  # options of njit for a world's `move`


class Tile(NamedTuple):
    """One step of n neighbouring worlds: arrays [n], views of `Worlds` and `StepResults`. They do not overlap."""

    state: tuple[np.ndarray, ...]  # one array [n] for each number of the state
    ages: np.ndarray
    episodes: np.ndarray
    returns: np.ndarray
    noise: np.ndarray  # float64 scratch memory, not initialised: `draw_each` writes the random numbers of the step here
    actions: np.ndarray
    obs: np.ndarray  # [n * width]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


@njit(inline="always")
def move_each(
    step: Callable, observe: Callable, width: int, tile: Tile, stream: Stream, parameters: Parameters, tables: Tables
) -> None:
    """Play one step of a tile; the body of a world's `move`. World 0 of the tile is number stream.first_world.

    LLVM must be able to turn the loop into vector code: no calls and no branches in it.
    """
    state, ages, episodes, returns, noise, actions, obs, reward, terminated, truncated = tile
    limit = np.int32(parameters.time_limit)
    for i in range(ages.size):
        episode = Episode(episodes[i], stream.first_world + i, stream.seed_lo, stream.seed_hi)
        moment = Moment(ages[i], noise[i], episode)
        following, gain, over = step(take(state, i), actions[i], moment, parameters, tables)
        put(following, state, i)
        steps = np.int32(ages[i] + np.int32(1))
        returns[i] += gain
        ages[i], reward[i] = steps, gain
        terminated[i], truncated[i] = over, (steps >= limit) & (not over)
        spread(observe(following, parameters), obs, width * i, 1)


@njit(inline="always")
def draw_each(noise: Callable, tile: Tile, stream: Stream) -> None:
    """Write noise(age, episode) of each world to tile.noise, for the next step.

    A loop of its own becomes vector code even where the rest of the step does not.
    """
    ages, episodes, out = tile.ages, tile.episodes, tile.noise
    for i in range(ages.size):
        episode = Episode(episodes[i], stream.first_world + i, stream.seed_lo, stream.seed_hi)
        out[i] = noise(ages[i], episode)


@njit(**KERNEL)
def next_episodes(ended: np.ndarray, episodes: np.ndarray, out: np.ndarray) -> int:
    """Write the number of the next episode of each ended world to `out`; return how many first states to draw.

    That is their number rounded up to a multiple of 8, a flat_state vector; the results of the rest are not used.
    """
    for k in range(ended.size):
        out[k] = episodes[ended[k]] + 1
    return (ended.size + 7) // 8 * 8


@njit(inline="always")
def draw_first(
    reset: Callable, observe: Callable, rows: int, ended: np.ndarray, numbers: np.ndarray, stream: Stream,
    parameters: Parameters, tables: Tables, fresh: np.ndarray,
) -> None:  # fmt: skip
    """Write the first state and observation of episode numbers[k] of world ended[k] of a tile to column k of `fresh`.

    `fresh` is [(rows + width) * TILE], flat: `rows` rows of the state, then `width` rows of the observation.
    """
    for k in range(ended.size):
        episode = Episode(numbers[k], stream.first_world + int(ended[k]), stream.seed_lo, stream.seed_hi)
        first = reset(episode, parameters, tables)
        first_obs = observe(first, parameters)
        spread(first, fresh, k, TILE)
        spread(first_obs, fresh, k + rows * TILE, TILE)


@njit(inline="always")
def begin_next(
    rows: int, width: int, ended: np.ndarray, fresh: np.ndarray, state: np.ndarray, start: int, worlds: int, tile: Tile,
    final_obs: np.ndarray, episode_return: np.ndarray, episode_length: np.ndarray,
) -> None:  # fmt: skip
    """Write the results of the episodes that ended in a tile, and begin the next ones with what `draw_first` drew.

    `start` is the tile's first world, `worlds` is N; `state` is all of the state, [rows * N], flat.
    """
    ages, episodes, returns, obs = tile.ages, tile.episodes, tile.returns, tile.obs
    for k in range(ended.size):
        i = ended[k]  # unsigned, so that Numba makes no code for negative indices
        episode_return[i], episode_length[i] = returns[i], ages[i]
        returns[i], ages[i] = 0.0, 0
        episodes[i] += 1
        spread(gather(fresh, k, TILE, rows), state, start + i, worlds)
        spread(gather(obs, width * i, 1, width), final_obs, width * i, 1)
        spread(gather(fresh, k + rows * TILE, TILE, width), obs, width * i, 1)


@njit(inline="always")
def play(
    move: Callable, reset: Callable, observe: Callable, rows: int, width: int, simulation: Simulation, lo: int, hi: int,
    actions: np.ndarray, results: StepResults,
) -> None:  # fmt: skip
    """Play T steps of the worlds [lo, hi), tile by tile; the body of a world's `advance` (world.py).

    A state has `rows` numbers, an observation `width`.
    """
    (state, ages, episodes, returns), stream, parameters, tables = simulation
    worlds, flat_state, flat_actions = ages.size, flat(state), flat(actions)
    fresh, noise = scratch(rows, width), scratch(1, 0)
    ended, numbers = scratch_list(1, 0), scratch_list(1, 0)
    obs, reward = flat(results.obs), flat(results.reward)
    terminated, truncated = flat(results.terminated), flat(results.truncated)
    final_obs, episode_return = flat(results.final_obs), flat(results.episode_return)
    episode_length = flat(results.episode_length)
    for start in range(lo, hi, TILE):
        size = min(TILE, hi - start)
        here = Stream(stream.first_world + start, stream.seed_lo, stream.seed_hi)
        rows_here = columns(state, start, size, rows)
        age, episode, total = window(ages, start, size), window(episodes, start, size), window(returns, start, size)
        # one turn for each step: `at` is where the tile begins in the flat arrays [T * N]
        for at in range(start, flat_actions.size, worlds):
            lost, cut = window(terminated, at, size), window(truncated, at, size)
            now, gain = window(obs, width * at, width * size), window(reward, at, size)
            tile = Tile(rows_here, age, episode, total, noise, window(flat_actions, at, size), now, gain, lost, cut)
            move(tile, here, parameters, tables)
            over = window(ended, 0, list_ended(lost, cut, ended))
            if over.size > 0:
                # draw flat_state vectors: entries behind those that ended are undefined, and their results are not read
                drawn = next_episodes(over, episode, numbers)
                begun, following = window(ended, 0, drawn), window(numbers, 0, drawn)
                draw_first(reset, observe, rows, begun, following, here, parameters, tables, fresh)
                last, total_return = window(final_obs, width * at, width * size), window(episode_return, at, size)
                length = window(episode_length, at, size)
                begin_next(rows, width, over, fresh, flat_state, start, worlds, tile, last, total_return, length)


@njit(inline="always")
def begin(
    reset: Callable, observe: Callable, rows: int, width: int, simulation: Simulation, lo: int, hi: int,
    mask: np.ndarray, obs: np.ndarray,
) -> None:  # fmt: skip
    """Begin the next episodes of the masked worlds of [lo, hi), then observe all; the body of `restart` (world.py)."""
    (state, ages, episodes, returns), stream, parameters, tables = simulation
    worlds, flat_state, observations = ages.size, flat(state), flat(obs)
    for i in range(lo, hi):
        if mask[i]:
            ages[i], returns[i] = 0, 0.0
            episode = Episode(episodes[i], stream.first_world + i, stream.seed_lo, stream.seed_hi)
            spread(reset(episode, parameters, tables), flat_state, i, worlds)
        spread(observe(gather(flat_state, i, worlds, rows), parameters), observations, i * width, 1)
