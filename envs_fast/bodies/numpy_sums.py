"""NumPy's arithmetic for kernels, equal bit for bit: sums in NumPy's order, `clip`, the length of a vector."""

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from stride.utils.kernel_cache import njit

EXACT: dict[str, Any] = {
    "error_model": "numpy"
}  # of compiled pieces: no fastmath, every operation is rounded as it is written
EIGHT = 8  # NumPy adds up to 128 numbers in eight separate sums, and these at the end


def summing(kind: type[np.floating[Any]]) -> Any:
    """Return a function for kernels: np.sum(np.square(numbers)) of up to 128 numbers of type `kind`."""

    @njit(**EXACT)
    def sum_of_squares(numbers: np.ndarray) -> Any:
        size = numbers.size
        lanes = (kind(0), kind(0), kind(0), kind(0), kind(0), kind(0), kind(0), kind(0))
        if size < EIGHT:
            total = kind(0)
            for k in range(size):
                total += kind(numbers[k]) * kind(numbers[k])
            return total
        lane0, lane1, lane2, lane3, lane4, lane5, lane6, lane7 = lanes
        whole = size - size % EIGHT
        for k in range(0, whole, EIGHT):
            lane0 += kind(numbers[k]) * kind(numbers[k])
            lane1 += kind(numbers[k + 1]) * kind(numbers[k + 1])
            lane2 += kind(numbers[k + 2]) * kind(numbers[k + 2])
            lane3 += kind(numbers[k + 3]) * kind(numbers[k + 3])
            lane4 += kind(numbers[k + 4]) * kind(numbers[k + 4])
            lane5 += kind(numbers[k + 5]) * kind(numbers[k + 5])
            lane6 += kind(numbers[k + 6]) * kind(numbers[k + 6])
            lane7 += kind(numbers[k + 7]) * kind(numbers[k + 7])
        total = ((lane0 + lane1) + (lane2 + lane3)) + ((lane4 + lane5) + (lane6 + lane7))
        for k in range(whole, size):
            total += kind(numbers[k]) * kind(numbers[k])
        return total

    return sum_of_squares


# as Gymnasium sums the squares of float32 actions, and those of MuJoCo's numbers
squares_of_singles, squares_of_doubles = summing(np.float32), summing(np.float64)


@njit(**EXACT)
def clip(x: float, low: float, high: float) -> float:
    """Return np.clip(x, low, high): NaN stays NaN."""
    if x < low:
        return low
    return high if x > high else x


def _fma(_context: Any, _x: Any, _y: Any, _z: Any) -> Any:
    """x * y + z, rounded once; of doubles."""

    def code(_context: Any, builder: Any, _signature: Any, numbers: Any) -> Any:
        return builder.fma(*numbers)

    return types.float64(types.float64, types.float64, types.float64), code


fma: Any = intrinsic(_fma)  # called by kernels with three numbers


def dot_is_fused() -> int:
    """Return 1 if NumPy's dot product of short vectors uses fused multiply-add, as its BLAS does with AVX-512."""
    vector = np.array([0.1, 0.4, 0.8])
    return int(np.dot(vector, vector) != 0.1 * 0.1 + 0.4 * 0.4 + 0.8 * 0.8)


@njit(**EXACT)
def length(x: float, y: float, z: float, is_fused: int) -> float:
    """Return np.linalg.norm of (x, y, z); `is_fused` is dot_is_fused()."""
    if is_fused:
        return math.sqrt(fma(z, z, fma(y, y, x * x)))
    return math.sqrt((x * x + y * y) + z * z)


@njit(**EXACT)
def all_finite(numbers: np.ndarray) -> bool:
    """Return np.isfinite(numbers).all()."""
    finite = True
    for k in range(numbers.size):
        finite &= math.isfinite(numbers[k])
    return finite
