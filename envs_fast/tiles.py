"""The autoreset loop, once for all compiled worlds: in tiles, T steps of one before the next begins.

`play` and `begin` get a world's `move`, `reset` and `observe` and are compiled into the two kernels of that world
(kernels.py). A tile is a stretch of worlds, whose state stays where it is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.core.compiler import Compiler

from stride.envs_fast.ended import list_ended
from stride.envs_fast.views import columns, flat, gather, put, scratch, scratch_list, spread, take, window
from stride.envs_fast.world import KERNEL, TILE, Episode, Moment, Parameters, Simulation, Stream, Tables, Told
from stride.utils.kernel_cache import njit


class Apart(Compiler):
    """Compiles functions whose arrays do not overlap: LLVM is told, and need not compare addresses at each call."""

    def define_pipelines(self) -> Any:
        """Numba's, with a flag that its decorators do not offer."""
        self.state.flags.noalias = True
        return super().define_pipelines()


MOVE = {**KERNEL, "pipeline_class": Apart}


class Tile(NamedTuple):
    """One step of n neighbouring worlds. The arrays do not overlap."""

    state: tuple[np.ndarray, ...]  # a row for each component
    ages: np.ndarray
    episodes: np.ndarray
    returns: np.ndarray
    noise: np.ndarray  # float64 scratch, not set: for worlds that draw in a loop of their own
    actions: np.ndarray
    obs: np.ndarray  # [n * width]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


@njit(inline="always")
def move_each(
    step: Callable, observe: Callable, width: int, tile: Tile, stream: Stream, parameters: Parameters, tables: Tables
) -> None:
    """The body of a world's `move`: one step of a tile that begins with stream.first_world. It must stay vectorised."""
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
    """Draw noise(age, episode) for a step of a tile: a loop of its own, for worlds whose step would keep it scalar."""
    ages, episodes, out = tile.ages, tile.episodes, tile.noise
    for i in range(ages.size):
        episode = Episode(episodes[i], stream.first_world + i, stream.seed_lo, stream.seed_hi)
        out[i] = noise(ages[i], episode)


@njit(**KERNEL)
def next_episodes(ended: np.ndarray, episodes: np.ndarray, out: np.ndarray) -> int:
    """The number of each ended world's next episode; how many to draw: whole vectors of 8, the rest drawn in vain."""
    for k in range(ended.size):
        out[k] = episodes[ended[k]] + 1
    return (ended.size + 7) // 8 * 8


@njit(inline="always")
def draw_first(
    reset: Callable, observe: Callable, rows: int, ended: np.ndarray, numbers: np.ndarray, stream: Stream,
    parameters: Parameters, tables: Tables, fresh: np.ndarray,
) -> None:  # fmt: skip
    """State and observation that begin episode numbers[k] of world ended[k] of a tile, to column k of `fresh`."""
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
    """Report the episodes that ended in a tile and put what `draw_first` drew in their place."""
    ages, episodes, returns, obs = tile.ages, tile.episodes, tile.returns, tile.obs
    for k in range(ended.size):
        i = ended[k]  # unsigned: no index of it could count from the end
        episode_return[i], episode_length[i] = returns[i], ages[i]
        returns[i], ages[i] = 0.0, 0
        episodes[i] += 1
        spread(gather(fresh, k, TILE, rows), state, start + i, worlds)
        spread(gather(obs, width * i, 1, width), final_obs, width * i, 1)
        spread(gather(fresh, k + rows * TILE, TILE, width), obs, width * i, 1)


@njit(inline="always")
def play(
    move: Callable, reset: Callable, observe: Callable, rows: int, width: int, simulation: Simulation, lo: int, hi: int,
    actions: np.ndarray, told: Told,
) -> None:  # fmt: skip
    """The body of a world's `advance` (world.py), for `rows` rows of state and observations of `width` numbers."""
    (state, ages, episodes, returns), stream, parameters, tables = simulation
    worlds, whole, taken = ages.size, flat(state), flat(actions)
    fresh, noise = scratch(rows, width), scratch(1, 0)
    ended, numbers = scratch_list(1, 0), scratch_list(1, 0)
    obs, reward, terminated, truncated = flat(told.obs), flat(told.reward), flat(told.terminated), flat(told.truncated)
    final_obs, episode_return = flat(told.final_obs), flat(told.episode_return)
    episode_length = flat(told.episode_length)
    for start in range(lo, hi, TILE):
        size = min(TILE, hi - start)
        here = Stream(stream.first_world + start, stream.seed_lo, stream.seed_hi)
        rows_here = columns(state, start, size, rows)
        age, episode, total = window(ages, start, size), window(episodes, start, size), window(returns, start, size)
        for at in range(start, taken.size, worlds):  # where the tile begins in each step's row of N worlds
            lost, cut = window(terminated, at, size), window(truncated, at, size)
            now, gain = window(obs, width * at, width * size), window(reward, at, size)
            tile = Tile(rows_here, age, episode, total, noise, window(taken, at, size), now, gain, lost, cut)
            move(tile, here, parameters, tables)
            over = window(ended, 0, list_ended(lost, cut, ended))
            if over.size > 0:
                # whole vectors of draws: what lies behind those that ended is rubbish, and nobody reads its results
                drawn = next_episodes(over, episode, numbers)
                begun, following = window(ended, 0, drawn), window(numbers, 0, drawn)
                draw_first(reset, observe, rows, begun, following, here, parameters, tables, fresh)
                last, sum_ = window(final_obs, width * at, width * size), window(episode_return, at, size)
                length = window(episode_length, at, size)
                begin_next(rows, width, over, fresh, whole, start, worlds, tile, last, sum_, length)


@njit(inline="always")
def begin(
    reset: Callable, observe: Callable, rows: int, width: int, simulation: Simulation, lo: int, hi: int,
    mask: np.ndarray, obs: np.ndarray,
) -> None:  # fmt: skip
    """The body of a world's `restart` (world.py)."""
    (state, ages, episodes, returns), stream, parameters, tables = simulation
    worlds, whole, observations = ages.size, flat(state), flat(obs)
    for i in range(lo, hi):
        if mask[i]:
            ages[i], returns[i] = 0, 0.0
            episode = Episode(episodes[i], stream.first_world + i, stream.seed_lo, stream.seed_hi)
            spread(reset(episode, parameters, tables), whole, i, worlds)
        spread(observe(gather(whole, i, worlds, rows), parameters), observations, i * width, 1)
