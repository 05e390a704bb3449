"""The kernels that all worlds of floating-point state share: worlds in tiles, T steps of one before the next begins.

A world brings its own loop over a tile (`move`) and says how an episode begins (`reset`) and what is seen (`observe`);
its kernels hand these to `play` and `begin`, which Numba compiles into them, so that they can be cached on disk.
A tile is one small aligned array, a row for each row of the state and one for the returns: LLVM has few pointers to
prove distinct before its vector loop, which is what a call for 16 worlds would otherwise spend its time on.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from envs_fast.ended import list_ended
from envs_fast.world import KERNEL, TILE
from utils.kernel_cache import njit

_intrinsic: Any = intrinsic  # its results are called with the arguments after the first, which types cannot say


@_intrinsic
def window(typing_context: Any, array: Any, start: Any, size: Any) -> Any:
    """array[start : start + size] of a contiguous 1-D array that outlives it: without counting references."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, result = make_array(array)(context, builder, arguments[0]), make_array(array)(context, builder)
        start_value, size_value = arguments[1], arguments[2]
        item = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(array.dtype)))
        result.data = builder.gep(source.data, [start_value])
        result.nitems, result.itemsize = size_value, item
        result.shape, result.strides = (cgutils.pack_array(builder, [value]) for value in (size_value, item))
        result.meminfo = cgutils.get_null_value(result.meminfo.type)
        result.parent = cgutils.get_null_value(result.parent.type)
        return result._getvalue()

    return Signature(array, (array, types.intp, types.intp), None), emit


@_intrinsic
def spread(typing_context: Any, values: Any, array: Any, start: Any, pitch: Any) -> Any:
    """array[start + k * pitch] = values[k] for every k of a tuple: unrolled, where a loop would choose at each turn."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, place = make_array(array)(context, builder, arguments[1]).data, arguments[2]
        for kind, value in zip(values, cgutils.unpack_tuple(builder, arguments[0]), strict=True):
            builder.store(context.cast(builder, value, kind, array.dtype), builder.gep(target, [place]))
            place = builder.add(place, arguments[3])
        return context.get_dummy_value()

    return Signature(types.none, (values, array, types.intp, types.intp), None), emit


@_intrinsic(prefer_literal=True)
def gather(typing_context: Any, array: Any, start: Any, pitch: Any, count: Any) -> Any:
    """(array[start], array[start + pitch], ...), a tuple of `count`, which is a literal."""
    kind = types.UniTuple(array.dtype, count.literal_value)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, place, values = make_array(array)(context, builder, arguments[0]).data, arguments[1], []
        for _ in range(kind.count):
            values.append(builder.load(builder.gep(source, [place])))
            place = builder.add(place, arguments[2])
        return context.make_tuple(builder, kind, values)

    return Signature(kind, (array, types.intp, types.intp, count), None), emit


@_intrinsic
def flat(typing_context: Any, array: Any) -> Any:
    """array.reshape(-1) of a contiguous array that outlives it: without counting references or asking for strides."""
    kind = types.Array(array.dtype, 1, "C", readonly=not array.mutable)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, result = make_array(array)(context, builder, arguments[0]), make_array(kind)(context, builder)
        populate_array(
            result,
            data=source.data,
            shape=cgutils.pack_array(builder, [source.nitems]),
            strides=cgutils.pack_array(builder, [source.itemsize]),
            itemsize=source.itemsize,
            meminfo=None,
        )
        return result._getvalue()

    return Signature(kind, (array,), None), emit


@njit(**KERNEL)
def copy(source: np.ndarray, target: np.ndarray) -> None:
    """target[:] = source for 1-D arrays of equal length."""
    for i in range(source.size):
        target[i] = source[i]


@njit(**KERNEL)
def load(state: np.ndarray, returns: np.ndarray, start: int, size: int, tile: np.ndarray) -> None:
    """Row k of the state to tile[k * TILE :], the returns to the row after the last."""
    rows, worlds = state.shape
    rest = flat(state)
    for row in range(rows):
        copy(window(rest, row * worlds + start, size), window(tile, row * TILE, size))
    copy(window(returns, start, size), window(tile, rows * TILE, size))


@njit(**KERNEL)
def store(state: np.ndarray, returns: np.ndarray, start: int, size: int, tile: np.ndarray) -> None:
    """What `load` did, back."""
    rows, worlds = state.shape
    rest = flat(state)
    for row in range(rows):
        copy(window(tile, row * TILE, size), window(rest, row * worlds + start, size))
    copy(window(tile, rows * TILE, size), window(returns, start, size))


@njit(**KERNEL)
def next_episodes(ended: np.ndarray, episodes: np.ndarray, out: np.ndarray) -> int:
    """The number of each ended world's next episode; how many to draw: whole vectors of 8, the rest drawn in vain."""
    for k in range(ended.size):
        out[k] = episodes[ended[k]] + 1
    return (ended.size + 7) // 8 * 8


@_intrinsic
def address(typing_context: Any, array: Any) -> Any:
    """Where the memory of an array begins."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = make_array(array)(context, builder, arguments[0]).data
        return builder.ptrtoint(place, context.get_value_type(types.intp))

    return Signature(types.intp, (array,), None), emit


def _stack_array(element: Any, spare: int) -> Any:
    @_intrinsic(prefer_literal=True)
    def make(typing_context: Any, rows: Any, more: Any) -> Any:
        kind = types.Array(element, 1, "C")
        size = (rows.literal_value + more.literal_value) * TILE + spare

        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            memory = cgutils.alloca_once(builder, ir.ArrayType(context.get_data_type(element), size))
            memory.align = 64  # no vector of it lies in two cache lines
            array = make_array(kind)(context, builder)
            item = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(element)))
            populate_array(
                array,
                data=builder.bitcast(memory, context.get_data_type(element).as_pointer()),
                shape=cgutils.pack_array(builder, [context.get_constant(types.intp, size)]),
                strides=cgutils.pack_array(builder, [item]),
                itemsize=item,
                meminfo=None,
            )
            return array._getvalue()

        return Signature(kind, (rows, more), None), emit

    return make


# (rows, more) -> (rows + more) * TILE numbers of the stack, not set: asking for memory would cost as much as 16 worlds
scratch, scratch_list = _stack_array(types.float64, 0), _stack_array(types.int32, 8)


@njit(inline="always")
def draw_first(
    reset: Any,
    observe: Any,
    rows: int,
    width: int,
    ended: np.ndarray,
    episode: np.ndarray,
    first_world: int,
    seed_lo: int,
    seed_hi: int,
    fresh: np.ndarray,
) -> None:
    """State and observation that begin episode[k] of world ended[k] of a tile, to column k of `fresh`."""
    for k in range(ended.size):
        first = reset(episode[k], first_world + int(ended[k]), seed_lo, seed_hi)
        seen = observe(first)
        spread(first, fresh, k, TILE)
        spread(seen, fresh, k + rows * TILE, TILE)


@njit(inline="always")
def begin_next(
    rows: int,
    width: int,
    ended: np.ndarray,
    fresh: np.ndarray,
    tile: np.ndarray,
    age: np.ndarray,
    episodes: np.ndarray,
    obs: np.ndarray,
    final_obs: np.ndarray,
    episode_return: np.ndarray,
    episode_length: np.ndarray,
) -> None:
    """Report the episodes that ended in a tile and put what `draw_first` drew in their place."""
    for k in range(ended.size):
        i = int(ended[k])
        episode_return[i], episode_length[i] = tile[i + rows * TILE], age[i]
        tile[i + rows * TILE], age[i] = 0.0, 0
        episodes[i] += 1
        for row in range(rows):
            tile[i + row * TILE] = fresh[k + row * TILE]
        for j in range(width):
            final_obs[width * i + j] = obs[width * i + j]
            obs[width * i + j] = fresh[k + (rows + j) * TILE]


@njit(inline="always")
def play(
    move: Any,
    reset: Any,
    observe: Any,
    rows: int,
    width: int,
    state: np.ndarray,
    ages: np.ndarray,
    episodes: np.ndarray,
    returns: np.ndarray,
    lo: int,
    hi: int,
    first_world: int,
    seed_lo: int,
    seed_hi: int,
    parameters: np.ndarray,
    actions: np.ndarray,
    obs: np.ndarray,
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    final_obs: np.ndarray,
    episode_return: np.ndarray,
    episode_length: np.ndarray,
) -> None:
    """The body of a world's `advance` (world.py), for `rows` rows of state and observations of `width` numbers."""
    worlds = ages.size
    tile, fresh = scratch(rows, 1), scratch(rows, width)
    ended, next_episode = scratch_list(1, 0), scratch_list(1, 0)
    actions, obs, final_obs, reward = flat(actions), flat(obs), flat(final_obs), flat(reward)
    terminated, truncated = flat(terminated), flat(truncated)
    episode_return, episode_length = flat(episode_return), flat(episode_length)
    for start in range(lo, hi, TILE):
        size = min(TILE, hi - start)
        load(state, returns, start, size, tile)
        age, episode = window(ages, start, size), window(episodes, start, size)
        for at in range(start, actions.size, worlds):
            lost, cut = window(terminated, at, size), window(truncated, at, size)
            now = window(obs, width * at, width * size)
            move(tile, age, window(actions, at, size), now, window(reward, at, size), lost, cut, parameters)
            over = window(ended, 0, list_ended(lost, cut, ended))
            if over.size > 0:
                drawn = next_episodes(over, episode, next_episode)
                begun, numbers = window(ended, 0, drawn), window(next_episode, 0, drawn)
                draw_first(reset, observe, rows, width, begun, numbers, first_world + start, seed_lo, seed_hi, fresh)
                last, total = window(final_obs, width * at, width * size), window(episode_return, at, size)
                length = window(episode_length, at, size)
                begin_next(rows, width, over, fresh, tile, age, episode, now, last, total, length)
        store(state, returns, start, size, tile)


@njit(inline="always")
def begin(
    reset: Any,
    observe: Any,
    rows: int,
    width: int,
    state: np.ndarray,
    ages: np.ndarray,
    episodes: np.ndarray,
    returns: np.ndarray,
    lo: int,
    hi: int,
    first_world: int,
    seed_lo: int,
    seed_hi: int,
    mask: np.ndarray,
    obs: np.ndarray,
) -> None:
    """The body of a world's `restart` (world.py)."""
    worlds, flat, obs = ages.size, state.reshape(-1), obs.reshape(-1)
    for i in range(lo, hi):
        if mask[i]:
            ages[i], returns[i] = 0, 0.0
            spread(reset(episodes[i], first_world + i, seed_lo, seed_hi), flat, i, worlds)
        spread(observe(gather(flat, i, worlds, rows)), obs, i * width, 1)
