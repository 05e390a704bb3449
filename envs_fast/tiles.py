"""The kernels that all worlds of floating-point state share: worlds in tiles, T steps of one before the next begins.

A world brings its own loop over a tile (`move`) and says how an episode begins (`reset`) and what is seen (`observe`);
its kernels hand these to `play` and `begin`, which Numba compiles into them, so that they can be cached on disk.
A tile is a stretch of worlds, whose state stays where it is; `move` gets a row of it for each component.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.compiler import Compiler
from numba.core.typing.templates import Signature
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from envs_fast.ended import list_ended
from envs_fast.world import KERNEL, TILE
from utils.kernel_cache import njit

_intrinsic: Any = intrinsic  # its results are called with the arguments after the first, which types cannot say


class Apart(Compiler):
    """Compiles functions whose arrays do not overlap: LLVM is told, and need not compare addresses at each call."""

    def define_pipelines(self) -> Any:
        """Numba's, with a flag that its decorators do not offer."""
        self.state.flags.noalias = True
        return super().define_pipelines()


MOVE = {**KERNEL, "pipeline_class": Apart}


def _view(context: Any, builder: Any, kind: Any, data: Any, size: Any) -> Any:
    """A contiguous 1-D array of memory that outlives it: without counting references."""
    result = make_array(kind)(context, builder)
    item = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    shape, strides = (cgutils.pack_array(builder, [value]) for value in (size, item))
    populate_array(result, data=data, shape=shape, strides=strides, itemsize=item, meminfo=None)
    return result._getvalue()


@_intrinsic
def window(typing_context: Any, array: Any, start: Any, size: Any) -> Any:
    """array[start : start + size] of a contiguous 1-D array."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = make_array(array)(context, builder, arguments[0]).data
        return _view(context, builder, array, builder.gep(data, [arguments[1]]), arguments[2])

    return Signature(array, (array, types.intp, types.intp), None), emit


@_intrinsic(prefer_literal=True)
def columns(typing_context: Any, array: Any, start: Any, size: Any, rows: Any) -> Any:
    """array[:, start : start + size] of a contiguous 2-D array, as a tuple of its `rows` rows, which is a literal."""
    kind = types.Array(array.dtype, 1, "C")
    signature = Signature(types.UniTuple(kind, rows.literal_value), (array, types.intp, types.intp, rows), None)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, views = make_array(array)(context, builder, arguments[0]), []
        pitch, place = builder.extract_value(source.shape, 1), arguments[1]
        for _ in range(rows.literal_value):
            views.append(_view(context, builder, kind, builder.gep(source.data, [place]), arguments[2]))
            place = builder.add(place, pitch)
        return context.make_tuple(builder, signature.return_type, views)

    return signature, emit


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
    """array.reshape(-1) of a contiguous array, whatever its dimensions."""
    kind = types.Array(array.dtype, 1, "C", readonly=not array.mutable)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = make_array(array)(context, builder, arguments[0])
        return _view(context, builder, kind, source.data, source.nitems)

    return Signature(kind, (array,), None), emit


@njit(**KERNEL)
def next_episodes(ended: np.ndarray, episodes: np.ndarray, out: np.ndarray) -> int:
    """The number of each ended world's next episode; how many to draw: whole vectors of 8, the rest drawn in vain."""
    for k in range(ended.size):
        out[k] = episodes[ended[k]] + 1
    return (ended.size + 7) // 8 * 8


def _stack_array(element: Any, spare: int) -> Any:
    @_intrinsic(prefer_literal=True)
    def make(typing_context: Any, rows: Any, more: Any) -> Any:
        kind = types.Array(element, 1, "C")
        size = (rows.literal_value + more.literal_value) * TILE + spare

        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            memory = cgutils.alloca_once(builder, ir.ArrayType(context.get_data_type(element), size))
            memory.align = 64  # no vector of it lies in two cache lines
            data = builder.bitcast(memory, context.get_data_type(element).as_pointer())
            return _view(context, builder, kind, data, context.get_constant(types.intp, size))

        return Signature(kind, (rows, more), None), emit

    return make


# (rows, more) -> (rows + more) * TILE numbers of the stack, not set: asking for memory would cost as much as 16 worlds
scratch, scratch_list = _stack_array(types.float64, 0), _stack_array(types.uint32, 8)


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
    state: np.ndarray,
    start: int,
    worlds: int,
    total: np.ndarray,
    age: np.ndarray,
    episodes: np.ndarray,
    obs: np.ndarray,
    final_obs: np.ndarray,
    episode_return: np.ndarray,
    episode_length: np.ndarray,
) -> None:
    """Report the episodes that ended in a tile and put what `draw_first` drew in their place."""
    for k in range(ended.size):
        i = ended[k]  # unsigned: no index of it could count from the end
        episode_return[i], episode_length[i] = total[i], age[i]
        total[i], age[i] = 0.0, 0
        episodes[i] += 1
        spread(gather(fresh, k, TILE, rows), state, start + i, worlds)
        spread(gather(obs, width * i, 1, width), final_obs, width * i, 1)
        spread(gather(fresh, k + rows * TILE, TILE, width), obs, width * i, 1)


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
    worlds, whole = ages.size, flat(state)
    fresh, ended, next_episode = scratch(rows, width), scratch_list(1, 0), scratch_list(1, 0)
    actions, obs, final_obs, reward = flat(actions), flat(obs), flat(final_obs), flat(reward)
    terminated, truncated = flat(terminated), flat(truncated)
    episode_return, episode_length = flat(episode_return), flat(episode_length)
    for start in range(lo, hi, TILE):
        size = min(TILE, hi - start)
        tile, total = columns(state, start, size, rows), window(returns, start, size)
        age, episode = window(ages, start, size), window(episodes, start, size)
        for at in range(start, actions.size, worlds):
            lost, cut = window(terminated, at, size), window(truncated, at, size)
            action, now, gain = (
                window(actions, at, size),
                window(obs, width * at, width * size),
                window(reward, at, size),
            )
            move(*tile, total, age, action, now, gain, lost, cut, parameters)
            over = window(ended, 0, list_ended(lost, cut, ended))
            if over.size > 0:
                drawn = next_episodes(over, episode, next_episode)
                begun, following = window(ended, 0, drawn), window(next_episode, 0, drawn)
                draw_first(reset, observe, rows, width, begun, following, first_world + start, seed_lo, seed_hi, fresh)
                last, sum_ = window(final_obs, width * at, width * size), window(episode_return, at, size)
                length = window(episode_length, at, size)
                begin_next(rows, width, over, fresh, whole, start, worlds, total, age, episode, now, last, sum_, length)


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
