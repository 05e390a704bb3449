"""Makes a list of the worlds whose episodes have just ended, from their flags.

Most flags are 0, so 64 or 16 of them are tested at a time, as the bits of one number.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.core.cpu import CPUContext
from numba.core.typing.context import BaseContext as Typing
from numba.core.typing.templates import Signature
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from stride.envs_fast.views import Emitted
from stride.utils.kernel_cache import njit

_intrinsic: Any = (
    intrinsic  # as Any: an intrinsic is called without its first argument, which type checkers cannot know
)


@_intrinsic(prefer_literal=True)
def _set_in_either(
    typing_context: Typing, one: types.Array, other: types.Array, start: types.Type, lanes: types.Literal
) -> Emitted:
    """Return a uint64 whose bit k says if one[start + k] or other[start + k] is not 0.

    The arrays are contiguous uint8; `lanes` (a literal, 16 or 64) is how many bytes of each are tested.
    """
    bits = ir.IntType(lanes.literal_value)
    start = types.intp

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        vector = ir.VectorType(ir.IntType(8), bits.width)
        loaded = []
        for numba_type, argument in zip((one, other), arguments[:2], strict=True):
            position = builder.gep(make_array(numba_type)(context, builder, argument).data, [arguments[2]])
            loaded.append(builder.load(builder.bitcast(position, vector.as_pointer()), align=1))
        marked = builder.bitcast(builder.icmp_unsigned("!=", builder.or_(*loaded), ir.Constant(vector, None)), bits)
        return marked if bits.width == 64 else builder.zext(marked, ir.IntType(64))

    return Signature(types.uint64, (one, other, start, lanes), None), emit


@_intrinsic
def _lowest_bit(typing_context: Typing, bits: types.Type) -> Emitted:
    """Return the number of the lowest set bit of a uint64 that is not 0."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return Signature(types.int64, (types.uint64,), None), emit


@njit(inline="always")
def _list_set(bits: np.uint64, first: int, ended: np.ndarray, count: np.uint64) -> np.uint64:
    """Write the numbers of the set bits, plus `first`, to ended[count:]; return the new count."""
    while bits != np.uint64(0):
        ended[count] = first + _lowest_bit(bits)
        count += np.uint64(1)
        bits &= np.uint64(bits - np.uint64(1))  # clears the lowest set bit
    return count


@njit(inline="always")
def list_ended(terminated: np.ndarray, truncated: np.ndarray, ended: np.ndarray) -> np.int64:
    """Write the positions where an episode ended to the front of `ended`, and return how many there are.

    `ended` is uint32, as long as the flags.
    """
    count = np.uint64(0)
    size = terminated.size
    wide = size & -64
    narrow = size & -16
    for start in range(0, wide, 64):
        count = _list_set(_set_in_either(terminated, truncated, start, 64), start, ended, count)
    for start in range(wide, narrow, 16):
        count = _list_set(_set_in_either(terminated, truncated, start, 16), start, ended, count)
    for i in range(narrow, size):  # the last ones, without a branch: it always writes, but counts only if a flag is set
        ended[count] = i
        count += np.uint64(terminated[i] | truncated[i])
    return np.int64(count)
