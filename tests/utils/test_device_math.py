"""utils/device_math.cuh against utils/simd_math.py and counter_rng.py: no bit differs in a million values each."""

import numpy as np
import pytest
import torch
from host_kernels import HostKernels, compile_host
from numba import njit

from stride.envs_fast.world import KERNEL
from stride.utils import simd_math
from stride.utils.counter_rng import Key, counters, uniforms, words_numpy
from stride.utils.cuda_kernels import read_source

N = 1_000_000
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
extern "C" __global__ void words(u32* out, float* uniforms, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1, int blocks) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= blocks) return;
  Words w = philox(i, c1, c2, c3, k0, k1);
  u32 lanes[4] = {w.a, w.b, w.c, w.d};
  for (int k = 0; k < 4; k++) out[4 * i + k] = lanes[k], uniforms[4 * i + k] = to_uniform(lanes[k]);
}
"""
SPECIAL = [0.0, -0.0, 1.0, -1.0, 5e-324, 1e-310, 1e-40, 2.2250738585072014e-308, np.inf, -np.inf, np.nan]


def values(*ranges: tuple[float, float]) -> np.ndarray:
    """A million, as many of each range, and what is special."""
    rng = np.random.default_rng(0)
    return np.concatenate([*(rng.uniform(low, high, N // len(ranges)) for low, high in ranges), SPECIAL])


TURNS, TURNS_32, POLE = values((-50_000, 50_000), (-4, 4)), values((-8_000, 8_000), (-4, 4)), values((-0.21, 0.21))
LOGS = np.exp(values((-745, 709))), values((0, 1e-307), (-2, 2))
LOGS_32 = np.exp(values((-103, 88))), values((0, 1e-38), (-2, 2))
WHERE = {  # each function, and where it is compared
    "sin": TURNS, "cos": TURNS, "sin32": TURNS_32, "cos32": TURNS_32, "sin_near_zero": POLE, "cos_near_zero": POLE,
    "exp": values((-750, 715), (-1, 1)), "exp32": values((-106, 90), (-1, 1)),
    "log": np.concatenate(LOGS), "log32": np.concatenate(LOGS_32),
    "tanh": values((-25, 25), (-1, 1)), "tanh32": values((-10, 10), (-1, 1)),
}  # fmt: skip
PAIRS = {"sin_near_zero": (simd_math.sincos_near_zero, 0), "cos_near_zero": (simd_math.sincos_near_zero, 1)}
PAIRS |= {"sin32": (simd_math.sincos32, 0), "cos32": (simd_math.sincos32, 1)}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory) -> HostKernels:
    file = tmp_path_factory.mktemp("device") / "functions.cu"
    file.write_text(CODE)
    return compile_host(read_source(file), torch.device("cpu"))


def python(name):
    """The function as a kernel of the worlds calls it, over an array."""
    pair, which = PAIRS.get(name, (None, 0))
    single = None if pair else getattr(simd_math, name)

    @njit(error_model=KERNEL["error_model"], fastmath=KERNEL["fastmath"])
    def run(x, out):
        for i in range(x.size):
            out[i] = single(x[i]) if pair is None else pair(x[i])[which]

    return run


@pytest.mark.parametrize("name", WHERE)
def test_every_function_has_the_bits_of_its_python_twin(kernels, name):
    x = WHERE[name].astype(np.float32 if name.endswith("32") else np.float64)
    expected, got = np.empty_like(x), torch.zeros(x.size, dtype=torch.from_numpy(x).dtype)
    python(name)(x, expected)
    kernels.launch(f"{name}_each", x.size, torch.from_numpy(x), got, np.int32(x.size))
    same = (got.numpy() == expected) | (np.isnan(got.numpy()) & np.isnan(expected))  # zero has lost its sign
    assert np.isfinite(expected).sum() > N / 2
    assert (~same).sum() == 0, x[~same][:5]


def test_words_and_uniforms_are_those_of_the_python_twin(kernels):
    key = Key(2**63 - 5, 7, 2**31, 2**32 - 1)
    words, floats = torch.zeros(N, dtype=torch.uint32), torch.zeros(N)
    kernels.launch("words", N // 4, words, floats, *map(np.uint32, counters(key)), np.int32(N // 4))
    np.testing.assert_array_equal(words.numpy(), words_numpy(key, N))
    assert torch.equal(floats, uniforms(key, (N,)))
