"""The stated error bounds against NumPy's 80-bit arithmetic, under every allowed set of fastmath flags; and
utils/device_math.cuh has the same bits."""

from functools import cache

import mpmath
import numpy as np
import pytest
import torch
from host_kernels import compile_host
from numba import njit

from stride.envs_fast.world import KERNEL
from stride.utils import simd_math
from stride.utils.cuda_kernels import read_source

FLAGS = {"strict": (), "allowed flags": ("arcp", "contract", "nsz")}
N = 200_000
RNG = np.random.default_rng(0)
MULTIPLES = np.arange(1, 30_000) * (np.pi / 2)
NEAR_MULTIPLES = np.concatenate([MULTIPLES, np.nextafter(MULTIPLES, 0), np.nextafter(MULTIPLES, 1e9), -MULTIPLES])
long_floats = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="NumPy has no 80-bit floats here")
CODE = """
#include "utils/device_math.cuh"
#define KERNEL(NAME, FLOAT, CALL)                                                \\
  extern "C" __global__ void NAME##_each(const FLOAT* xs, FLOAT* out, int n) {   \\
    int i = blockIdx.x * blockDim.x + threadIdx.x;                               \\
    if (i >= n) return;                                                          \\
    FLOAT x = xs[i], one = 0, two = 0;                                           \\
    simd_math::CALL;                                                             \\
    out[i] = one;                                                                \\
  }
KERNEL(sin_near_zero, double, sincos_near_zero(x, one, two))
KERNEL(cos_near_zero, double, sincos_near_zero(x, two, one))
KERNEL(sin32, float, sincos32(x, one, two))
KERNEL(cos32, float, sincos32(x, two, one))
#define SINGLE(NAME, FLOAT) KERNEL(NAME, FLOAT, NAME(x); one = simd_math::NAME(x))
SINGLE(sin, double)
SINGLE(cos, double)
SINGLE(exp, double)
SINGLE(log, double)
SINGLE(tanh, double)
SINGLE(exp32, float)
SINGLE(log32, float)
SINGLE(tanh32, float)
"""


def half(pair, which):
    """The sine or the cosine alone, of a function that returns both."""

    @njit(inline="always")
    def single(x):
        return pair(x)[which]

    return single


def between(low, high):
    return RNG.uniform(low, high, N)


def apply(function, x, flags=()):
    """The function over an array, in a loop of a caller with these flags."""
    out = np.empty_like(x)
    loop_over(function, flags)(x, out)
    return out


@cache
def loop_over(function, flags):
    """Compiled, half a second, once for all tests."""

    @njit(error_model="numpy", fastmath=set(flags) if flags else False)
    def run(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    return run


def ulps(got, exact):
    unit = np.spacing(np.abs(exact).astype(got.dtype)).astype(np.longdouble)
    return float((np.abs(got.astype(np.longdouble) - exact) / unit).max())


SINE = [between(-50_000, 50_000), between(-4, 4), NEAR_MULTIPLES]
POLE = [between(-0.21, 0.21), 10 ** between(-20, -1)]
LOG = [np.exp(between(-700, 700)), between(0.5, 2), between(0.99, 1.01), between(1e-310, 1e-307)]
TANH = [between(-25, 25), between(-1, 1), 10 ** between(-15, 0)]
CASES = {  # ours, NumPy's, where they are compared, units in the last place that are allowed
    "sin": (simd_math.sin, np.sin, SINE, 0.8),
    "cos": (simd_math.cos, np.cos, SINE, 0.8),
    "sin_near_zero": (half(simd_math.sincos_near_zero, 0), np.sin, POLE, 0.8),
    "cos_near_zero": (half(simd_math.sincos_near_zero, 1), np.cos, POLE, 0.6),
    "exp": (simd_math.exp, np.exp, [between(-745, 709.7), between(-1, 1)], 0.9),
    "log": (simd_math.log, np.log, LOG, 0.9),
    "tanh": (simd_math.tanh, np.tanh, TANH, 2.4),
    "exp32": (simd_math.exp32, np.exp, [between(-103, 88.7), between(-1, 1)], 1.0),
    "log32": (simd_math.log32, np.log, [np.exp(between(-85, 85)), between(0.5, 2)], 1.0),
    "tanh32": (simd_math.tanh32, np.tanh, [between(-10, 10), 10 ** between(-7, 0)], 2.4),
}
INF, NAN = np.inf, np.nan
SPECIAL = [
    (simd_math.exp, [0, -INF, INF, NAN, 710, -746, -745.1], [1, 0, INF, NAN, INF, 0, 5e-324]),
    (simd_math.log, [0, 1, -1, INF, NAN, 5e-324], [-INF, 0, NAN, INF, NAN, np.log(5e-324)]),
    (simd_math.tanh, [0, INF, -INF, NAN, 1e-320], [0, 1, -1, NAN, 1e-320]),
    (simd_math.sin, [0, INF, NAN, 1e-320], [0, NAN, NAN, 1e-320]),
    (simd_math.exp32, [0, -INF, INF, NAN], [1, 0, INF, NAN]),
    (simd_math.log32, [0, 1, -1, INF, NAN], [-INF, 0, NAN, INF, NAN]),
    (simd_math.tanh32, [0, INF, -INF, NAN], [0, 1, -1, NAN]),
]


ODD = [0.0, -0.0, 1.0, -1.0, 5e-324, 1e-310, 1e-40, 2.2250738585072014e-308, INF, -INF, NAN]
TURNS = [between(-8_000, 8_000), between(-4, 4)]
WHOLE_RANGE = {  # beyond what the bounds are stated for
    "exp": [between(-750, 715)], "exp32": [between(-106, 90)], "log": [between(0, 1e-307), between(-2, 2)],
    "log32": [np.exp(between(-103, 88)), between(0, 1e-38), between(-2, 2)],
}  # fmt: skip
TWINS = {name: (case[0], [*case[2], *WHOLE_RANGE.get(name, [])]) for name, case in CASES.items()}
TWINS |= {"sin32": (half(simd_math.sincos32, 0), TURNS), "cos32": (half(simd_math.sincos32, 1), TURNS)}


def joined(name, pieces):
    return np.concatenate(pieces).astype(np.float32 if name.endswith("32") else np.float64)


def values(name):
    return joined(name, CASES[name][2])


@long_floats
@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
@pytest.mark.parametrize("name", CASES)
def test_worst_errors(name, flags):
    function, exact, _, bound = CASES[name]
    x = values(name)
    assert ulps(apply(function, x, flags), exact(x.astype(np.longdouble))) <= bound


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
def test_single_precision_angles(flags):
    x = between(-8000, 8000).astype(np.float32)
    for which, exact in enumerate((np.sin, np.cos)):
        assert np.abs(apply(half(simd_math.sincos32, which), x, flags) - exact(x.astype(float))).max() <= 1e-7


def test_against_mpmath():
    """NumPy's long double is itself a library; this one is not."""
    x = np.concatenate([between(-700, 700)[:150], NEAR_MULTIPLES[:50]])
    for name in ("sin", "cos", "exp", "tanh"):
        with mpmath.workdps(40):
            exact = [float(getattr(mpmath, name)(mpmath.mpf(float(value)))) for value in x]
        np.testing.assert_array_max_ulp(apply(getattr(simd_math, name), x), np.array(exact), 2)


@pytest.mark.parametrize(("function", "x", "expected"), SPECIAL, ids=[case[0].__name__ for case in SPECIAL])
def test_special_values(function, x, expected):
    dtype = np.float32 if function.__name__.endswith("32") else np.float64
    np.testing.assert_array_equal(apply(function, np.array(x, dtype)), np.array(expected, dtype))


def test_odd_functions_are_odd():
    x = between(-30, 30)
    for function in (simd_math.sin, simd_math.tanh):
        np.testing.assert_array_equal(apply(function, -x), -apply(function, x))


def test_rounding_survives_reassociation():
    """Adding and subtracting 1.5 * 2**52 does not: LLVM cancels the two."""
    x = np.array([0.4, 0.6, 1.5, 2.5, -0.5, -1.6, 1e6 + 0.7])
    for flags in ((), ("fast",), ("reassoc",)):
        np.testing.assert_array_equal(apply(simd_math.nearest_integer, x, flags), np.rint(x))
        np.testing.assert_array_equal(apply(simd_math.round_down, x, flags), np.floor(x))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    file = tmp_path_factory.mktemp("device") / "functions.cu"
    file.write_text(CODE)
    return compile_host(read_source(file), torch.device("cpu"))


@pytest.mark.parametrize("name", TWINS)
def test_every_function_on_a_device_has_the_bits_of_its_python_twin(kernels, name):
    """As the kernels of the worlds call it."""
    function, pieces = TWINS[name]
    x = joined(name, [*pieces, ODD])
    assert KERNEL["error_model"] == "numpy"
    expected, result = (
        apply(function, x, tuple(KERNEL["fastmath"])),
        torch.zeros(x.size, dtype=torch.from_numpy(x).dtype),
    )
    kernels.launch(f"{name}_each", x.size, torch.from_numpy(x), result, np.int32(x.size))
    same = (result.numpy() == expected) | (np.isnan(result.numpy()) & np.isnan(expected))  # zero has lost its sign
    assert np.isfinite(expected).sum() > x.size / 2 and same.all(), x[~same][:5]
