"""The stated error bounds against NumPy's 80-bit arithmetic, under every allowed set of fastmath flags."""

from functools import cache

import mpmath
import numpy as np
import pytest
from numba import njit

from stride.utils import simd_math

FLAGS = [False, {"contract", "nsz", "arcp"}]
N = 200_000
RNG = np.random.default_rng(0)
MULTIPLES = np.arange(1, 30_000) * (np.pi / 2)
NEAR_MULTIPLES = np.concatenate([MULTIPLES, np.nextafter(MULTIPLES, 0), np.nextafter(MULTIPLES, 1e9), -MULTIPLES])

pytestmark = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="NumPy has no 80-bit floats here")


@njit(inline="always")
def sin32(x):
    return simd_math.sincos32(x)[0]


@njit(inline="always")
def cos32(x):
    return simd_math.sincos32(x)[1]


@njit(inline="always")
def sin_near_zero(x):
    return simd_math.sincos_near_zero(x)[0]


@njit(inline="always")
def cos_near_zero(x):
    return simd_math.sincos_near_zero(x)[1]


def between(low: float, high: float) -> np.ndarray:
    return RNG.uniform(low, high, N)


def apply(function, x: np.ndarray, flags=False) -> np.ndarray:
    """The function over an array, in a loop of a caller with these flags."""
    out = np.empty_like(x)
    loop_over(function, flags if isinstance(flags, bool) else tuple(sorted(flags)))(x, out)
    return out


@cache
def loop_over(function, flags):
    """Compiled, half a second, once for all tests."""

    @njit(error_model="numpy", fastmath=flags if isinstance(flags, bool) else {*flags})
    def run(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    return run


def ulps(got: np.ndarray, exact: np.ndarray) -> float:
    unit = np.spacing(np.abs(exact).astype(got.dtype)).astype(np.longdouble)
    return float((np.abs(got.astype(np.longdouble) - exact) / unit).max())


SINE = np.concatenate([between(-50_000, 50_000), between(-4, 4), NEAR_MULTIPLES])
POLE = np.concatenate([between(-0.21, 0.21), 10 ** between(-20, -1)])
DOUBLE = {
    "sin": (simd_math.sin, np.sin, SINE, 0.8),
    "cos": (simd_math.cos, np.cos, SINE, 0.8),
    "sin_near_zero": (sin_near_zero, np.sin, POLE, 0.8),
    "cos_near_zero": (cos_near_zero, np.cos, POLE, 0.6),
    "exp": (simd_math.exp, np.exp, np.concatenate([between(-745, 709.7), between(-1, 1)]), 0.9),
    "log": (
        simd_math.log,
        np.log,
        np.concatenate([np.exp(between(-700, 700)), between(0.5, 2), between(0.99, 1.01), between(1e-310, 1e-307)]),
        0.9,
    ),
    "tanh": (simd_math.tanh, np.tanh, np.concatenate([between(-25, 25), between(-1, 1), 10 ** between(-15, 0)]), 2.4),
}
SINGLE = {
    "exp32": (simd_math.exp32, np.exp, np.concatenate([between(-103, 88.7), between(-1, 1)]), 1.0),
    "log32": (simd_math.log32, np.log, np.concatenate([np.exp(between(-85, 85)), between(0.5, 2)]), 1.0),
    "tanh32": (simd_math.tanh32, np.tanh, np.concatenate([between(-10, 10), 10 ** between(-7, 0)]), 2.4),
}


@pytest.mark.parametrize("flags", FLAGS, ids=["strict", "allowed flags"])
@pytest.mark.parametrize("name", DOUBLE)
def test_double_precision(name, flags):
    function, exact, x, bound = DOUBLE[name]
    assert ulps(apply(function, x, flags), exact(x.astype(np.longdouble))) <= bound


@pytest.mark.parametrize("flags", FLAGS, ids=["strict", "allowed flags"])
@pytest.mark.parametrize("name", SINGLE)
def test_single_precision(name, flags):
    function, exact, x, bound = SINGLE[name]
    x = x.astype(np.float32)
    assert ulps(apply(function, x, flags), exact(x.astype(np.longdouble))) <= bound


@pytest.mark.parametrize("flags", FLAGS, ids=["strict", "allowed flags"])
def test_single_precision_angles(flags):
    x = between(-8000, 8000).astype(np.float32)
    assert np.abs(apply(sin32, x, flags) - np.sin(x.astype(float))).max() <= 1e-7
    assert np.abs(apply(cos32, x, flags) - np.cos(x.astype(float))).max() <= 1e-7


def test_against_mpmath():
    """NumPy's long double is itself a library; this one is not."""
    x = np.concatenate([between(-700, 700)[:150], NEAR_MULTIPLES[:50]])
    for name in ("sin", "cos", "exp", "tanh"):
        with mpmath.workdps(40):
            exact = [float(getattr(mpmath, name)(mpmath.mpf(float(each)))) for each in x]
        got = apply(getattr(simd_math, name), x)
        np.testing.assert_array_max_ulp(got, np.array(exact), 2)


def test_special_values():
    inf, nan = np.inf, np.nan
    cases = [
        (simd_math.exp, [0, -inf, inf, nan, 710, -746, -745.1], [1, 0, inf, nan, inf, 0, 5e-324]),
        (simd_math.log, [0, 1, -1, inf, nan, 5e-324], [-inf, 0, nan, inf, nan, np.log(5e-324)]),
        (simd_math.tanh, [0, inf, -inf, nan, 1e-320], [0, 1, -1, nan, 1e-320]),
        (simd_math.sin, [0, inf, nan, 1e-320], [0, nan, nan, 1e-320]),
        (simd_math.exp32, [0, -inf, inf, nan], [1, 0, inf, nan]),
        (simd_math.log32, [0, 1, -1, inf, nan], [-inf, 0, nan, inf, nan]),
        (simd_math.tanh32, [0, inf, -inf, nan], [0, 1, -1, nan]),
    ]
    for function, x, expected in cases:
        dtype = np.float32 if function.__name__.endswith("32") else np.float64
        np.testing.assert_array_equal(apply(function, np.array(x, dtype)), np.array(expected, dtype))


def test_odd_functions_are_odd():
    x = between(-30, 30)
    for function in (simd_math.sin, simd_math.tanh):
        np.testing.assert_array_equal(apply(function, -x), -apply(function, x))


@pytest.mark.slow
def test_a_callers_flags_do_not_change_a_bit():
    for function, _, x, _ in DOUBLE.values():
        np.testing.assert_allclose(apply(function, x, FLAGS[1]), apply(function, x, False), rtol=3e-16, atol=0)


def test_rounding_survives_reassociation():
    """Adding and subtracting 1.5 * 2**52 does not: LLVM cancels the two."""
    x = np.array([0.4, 0.6, 1.5, 2.5, -0.5, -1.6, 1e6 + 0.7])
    for flags in (False, True, {"reassoc"}):
        np.testing.assert_array_equal(apply(simd_math.nearest_integer, x, flags), np.rint(x))
        np.testing.assert_array_equal(apply(simd_math.round_down, x, flags), np.floor(x))
