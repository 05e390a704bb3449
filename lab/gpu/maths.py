"""Every function that device code computes with, over numbers of every size: by kernels of a device, and by Numba."""

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stride.utils import simd_math
from stride.utils.counter_rng import ACT, Key, counters, words_numpy, words_torch
from stride.utils.device_source import Compile, read_source
from stride.utils.kernel_cache import njit

SIZE = 1 << 16
KEY = Key(20, ACT, 3, 1)
DOUBLES = ("sin near zero", "cos near zero", "sin", "cos", "exp", "log", "tanh")
SINGLES = ("sin32", "cos32", "exp32", "log32", "tanh32")
EDGES = (
    0.0, -0.0, 1.0, -1.0, 0.5, 22.0, -22.0, 9.1, 1e-300, -1e-300, 5e-324, 1e300, 709.7, 710.0, -745.2, -746.0, 88.7,
    89.0, -103.9, -104.0, 1.17549435e-38, 1e-45, 2.2250738585072014e-308, math.inf, -math.inf, math.nan,
)  # fmt: skip


def spread(place: int, size: float) -> Tensor:
    """float64 [SIZE] in +-size, from 32 bits each."""
    words = words_torch(Key(20, ACT, place), SIZE, "cpu")
    return (words.double() * 2.0**-31 - 1.0) * size


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of every size with the edges among them, near 0, and angles."""
    signs, sizes = spread(0, 1.0).sign(), torch.tensor(2.0).double() ** spread(1, 1060.0).round()
    mixed = torch.where(spread(2, 1.0) > 0, spread(3, 60.0), signs * sizes * spread(4, 1.0).abs())
    mixed[: len(EDGES)] = torch.tensor(EDGES, dtype=torch.float64)
    return mixed, spread(5, 0.21), spread(6, 50_000.0)


def computed(compile: Compile, device: torch.device) -> dict[str, Tensor]:
    """By kernels."""
    kernels = compile(read_source(Path(__file__).with_suffix(".cu")), device)
    x, small, turns = (each.to(device) for each in inputs())
    doubles = torch.empty(len(DOUBLES), SIZE, dtype=torch.float64, device=device)
    kernels.launch("maths_doubles", SIZE, x, small, turns, doubles, np.int32(SIZE))
    singles = torch.empty(len(SINGLES), SIZE, device=device)
    kernels.launch("maths_singles", SIZE, x.float(), (turns / 8).float(), singles, np.int32(SIZE))
    words, key = torch.empty(SIZE, dtype=torch.int32, device=device), [np.uint32(each) for each in counters(KEY)]
    kernels.launch("maths_philox", SIZE, *key, words.view(torch.uint32), np.int32(SIZE))
    return named(doubles, singles, words)


def expected() -> dict[str, Tensor]:
    """By Numba."""
    x, small, turns = (each.numpy() for each in inputs())
    doubles, singles = np.empty((len(DOUBLES), SIZE)), np.empty((len(SINGLES), SIZE), np.float32)
    _doubles(x, small, turns, doubles)
    with np.errstate(over="ignore"):  # of what is too large for 32 bits
        _singles(x.astype(np.float32), (turns / 8).astype(np.float32), singles)
    words = words_numpy(KEY, SIZE).view(np.int32)
    return named(*(torch.from_numpy(each) for each in (doubles, singles, words)))


def named(doubles: Tensor, singles: Tensor, words: Tensor) -> dict[str, Tensor]:
    rows = [*zip(DOUBLES, doubles, strict=True), *zip(SINGLES, singles, strict=True)]
    # which of the many bit patterns of NaN comes out is each processor's own
    found = {name: torch.where(row.isnan(), torch.full_like(row, math.nan), row) for name, row in rows}
    return {**found, "philox": words}


@njit(cache=True)
def _doubles(x: np.ndarray, small: np.ndarray, turns: np.ndarray, out: np.ndarray) -> None:
    for i in range(x.size):
        out[0, i], out[1, i] = simd_math.sincos_near_zero(small[i])
        out[2, i], out[3, i] = simd_math.sincos(turns[i])
        out[4, i], out[5, i], out[6, i] = simd_math.exp(x[i]), simd_math.log(x[i]), simd_math.tanh(x[i])


@njit(cache=True)
def _singles(x: np.ndarray, turns: np.ndarray, out: np.ndarray) -> None:
    for i in range(x.size):
        out[0, i], out[1, i] = simd_math.sincos32(turns[i])
        out[2, i], out[3, i], out[4, i] = simd_math.exp32(x[i]), simd_math.log32(x[i]), simd_math.tanh32(x[i])
