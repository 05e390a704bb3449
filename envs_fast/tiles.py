"""The pieces of a vectorised kernel: a tile of worlds in one small scratch array, and who in it has ended.

One array for everything a tile keeps leaves LLVM few pointers to prove distinct before its vector loop, which is what a
call for 16 worlds would otherwise spend its time on.
"""

from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

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


@njit(**KERNEL)
def copy(source: np.ndarray, target: np.ndarray) -> None:
    """target[:] = source for 1-D arrays of equal length."""
    for i in range(source.size):
        target[i] = source[i]


@njit(**KERNEL)
def load(state: np.ndarray, returns: np.ndarray, start: int, size: int, tile: np.ndarray) -> None:
    """Row k of the state to tile[k * TILE :], the returns to the row after the last."""
    rows, worlds = state.shape
    flat = state.reshape(-1)
    for row in range(rows):
        copy(window(flat, row * worlds + start, size), window(tile, row * TILE, size))
    copy(window(returns, start, size), window(tile, rows * TILE, size))


@njit(**KERNEL)
def store(state: np.ndarray, returns: np.ndarray, start: int, size: int, tile: np.ndarray) -> None:
    """What `load` did, back."""
    rows, worlds = state.shape
    flat = state.reshape(-1)
    for row in range(rows):
        copy(window(tile, row * TILE, size), window(flat, row * worlds + start, size))
    copy(window(tile, rows * TILE, size), window(returns, start, size))


@njit(**KERNEL)
def next_episodes(ended: np.ndarray, episodes: np.ndarray, out: np.ndarray) -> int:
    """The number of each ended world's next episode; how many to draw: whole vectors of 8, the rest drawn in vain."""
    for k in range(ended.size):
        out[k] = episodes[ended[k]] + 1
    return (ended.size + 7) // 8 * 8


@njit(inline="always")
def close_episode(
    i: int,
    rows: int,
    width: int,
    tile: np.ndarray,
    age: np.ndarray,
    episodes: np.ndarray,
    obs: np.ndarray,
    final_obs: np.ndarray,
    episode_return: np.ndarray,
    episode_length: np.ndarray,
) -> None:
    """Report the episode that ended in world i of a tile, whose state has `rows` rows, and set its counters anew."""
    episode_return[i], episode_length[i] = tile[i + rows * TILE], age[i]
    tile[i + rows * TILE], age[i] = 0.0, 0
    episodes[i] += 1
    for k in range(width):
        final_obs[width * i + k] = obs[width * i + k]
