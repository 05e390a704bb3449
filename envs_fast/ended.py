"""Which worlds' episodes have just ended: a list made from flags 64 at a time, since most of them are 0."""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from utils.kernel_cache import njit

LANES = 64
_intrinsic: Any = intrinsic  # its results are called with the arguments after the first, which types cannot say


@_intrinsic
def _set_in_either(typing_context: Any, one: Any, other: Any, start: Any) -> Any:
    """Bit k is set where one[start + k] or other[start + k] is not 0, for 64 bytes of two contiguous arrays."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = ir.VectorType(ir.IntType(8), LANES)
        loaded = []
        for kind, argument in zip((one, other), arguments[:2], strict=True):
            place = builder.gep(make_array(kind)(context, builder, argument).data, [arguments[2]])
            loaded.append(builder.load(builder.bitcast(place, lanes.as_pointer()), align=1))
        marked = builder.icmp_unsigned("!=", builder.or_(*loaded), ir.Constant(lanes, None))
        return builder.bitcast(marked, ir.IntType(LANES))

    return Signature(types.uint64, (one, other, types.intp), None), emit


@_intrinsic
def _lowest_bit(typing_context: Any, bits: Any) -> Any:
    """The place of the lowest bit of a uint64 that has one."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return Signature(types.int64, (types.uint64,), None), emit


@njit(inline="always")
def list_ended(terminated: np.ndarray, truncated: np.ndarray, ended: np.ndarray) -> np.int64:
    """Write the positions where an episode ended to the front of `ended`, which is as long; how many they are."""
    count, done = np.int64(0), np.int64(0)
    if terminated.size >= LANES:
        for block in range(terminated.size // LANES):
            bits = _set_in_either(terminated, truncated, LANES * block)
            while bits != np.uint64(0):
                ended[count] = LANES * block + _lowest_bit(bits)
                count += np.int64(1)
                bits &= np.uint64(bits - np.uint64(1))
        done = np.int64(terminated.size // LANES * LANES)
    for i in range(done, terminated.size):  # without branches: nothing to mispredict
        ended[count] = i
        count += np.int64(terminated[i] | truncated[i])
    return count
