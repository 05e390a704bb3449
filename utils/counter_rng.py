"""All random numbers of Stride: a function (Philox4x32-10) of seed, purpose, rank, iteration and index, without state.

A number depends only on its Key and its index, never on how many others were drawn before. Numba, torch and the CUDA
kernels of counter_rng.cu give the same bits. Environments call `philox` with other counters: block, episode, world,
purpose (envs_fast/world.py).
Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stride.utils.cuda_kernels import Compile, DeviceKernels, compile_cuda, read_source
from stride.utils.kernel_cache import njit

ACT, SHUFFLE, SAMPLE, WORLD, EVALUATE, TEST, EXPLORE, PLAY = range(1, 9)  # what a draw is for

# constants of Philox, from the paper
MULTIPLIER_0, MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
WEYL_0, WEYL_1 = 0x9E3779B9, 0xBB67AE85
MASK = 0xFFFFFFFF


class Key(NamedTuple):
    """Names one table of random numbers. Two keys have independent tables; one key has the same each time."""

    seed: int  # [0, 2**63)
    purpose: int  # one of ACT .. PLAY above
    rank: int = 0  # of the process, in a training with several
    iteration: int | Tensor = 0  # a tensor, int64 [], if a replayed CUDA graph must read it from the device


@njit(inline="always")
def philox(c0: int, c1: int, c2: int, c3: int, k0: int, k1: int) -> tuple[np.uint32, np.uint32, np.uint32, np.uint32]:
    """Return four random uint32 for the counter (c0..c3) and the key (k0, k1).

    Each operation is cast to uint32 or uint64, because Numba would use int64 otherwise.
    """
    x0, x1, x2, x3 = np.uint32(c0), np.uint32(c1), np.uint32(c2), np.uint32(c3)
    y0, y1 = np.uint32(k0), np.uint32(k1)
    for _ in range(10):
        product_0 = np.uint64(x0) * np.uint64(MULTIPLIER_0)
        product_1 = np.uint64(x2) * np.uint64(MULTIPLIER_1)
        high_0, high_1 = np.uint32(product_0 >> np.uint64(32)), np.uint32(product_1 >> np.uint64(32))
        x0, x2 = np.uint32(high_1 ^ x1 ^ y0), np.uint32(high_0 ^ x3 ^ y1)
        x1, x3 = np.uint32(product_1 & np.uint64(MASK)), np.uint32(product_0 & np.uint64(MASK))
        y0, y1 = np.uint32(y0 + np.uint32(WEYL_0)), np.uint32(y1 + np.uint32(WEYL_1))
    return x0, x1, x2, x3


@njit(inline="always")
def to_uniform(word: int | np.uint32) -> np.float32:
    """Return the upper 24 bits of a uint32 as a float32 in [0, 1); no value is rounded."""
    return np.float32(np.uint32(word) >> np.uint32(8)) * np.float32(1.0 / (1 << 24))


@njit(cache=True)
def fill_words(out: np.ndarray, c1: int, c2: int, c3: int, k0: int, k1: int) -> None:
    """Fill the uint32 array `out`; element i is number i % 4 of the four that counter c0 = i // 4 gives."""
    blocks = out.size // 4
    for block in range(blocks):
        i = 4 * block
        out[i], out[i + 1], out[i + 2], out[i + 3] = philox(block, c1, c2, c3, k0, k1)
    if 4 * blocks < out.size:
        lanes = philox(blocks, c1, c2, c3, k0, k1)
        for i in range(4 * blocks, out.size):
            out[i] = lanes[i - 4 * blocks]


@njit(cache=True)
def _fill_uniforms(out: np.ndarray, c1: int, c2: int, c3: int, k0: int, k1: int) -> None:
    """Fill the float32 array `out` with uniforms, in the order of `fill_words`."""
    words = out.view(np.uint32)  # the same memory: each word is replaced by its uniform
    fill_words(words, c1, c2, c3, k0, k1)
    for i in range(out.size):
        out[i] = to_uniform(words[i])


def counters(key: Key) -> tuple[Any, int, int, int, int]:
    """Return the words (c1, c2, c3, k0, k1) of a key: iteration, purpose, rank, low and high half of the seed.

    The iteration stays a tensor if it is one. ValueError for a seed outside [0, 2**63).
    """
    if not 0 <= key.seed < 1 << 63:
        raise ValueError(f"the seed of a key must be in [0, 2**63), got {key.seed}")
    return key.iteration & MASK, key.purpose & MASK, key.rank & MASK, key.seed & MASK, key.seed >> 32


def words_numpy(key: Key, n: int) -> np.ndarray:
    """Return the first `n` numbers of the key's table as uint32, by the Numba kernel."""
    out = np.empty(n, np.uint32)
    fill_words(out, *counters(key))
    return out


def _multiply(word: Tensor, constant: int) -> tuple[Tensor, Tensor]:
    """Return high and low 32 bits of word * constant, both of 32 bits, in int64 arithmetic.

    The constant is multiplied in halves of 16 bits, so that nothing overflows.
    """
    low = word * (constant & 0xFFFF)
    high = word * (constant >> 16) + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def words_torch(key: Key, n: int, device: torch.device | str) -> Tensor:
    """Return the first `n` numbers of the key's table as int64 in [0, 2**32), by torch operations on `device`."""
    c1_, c2_, c3_, k0, k1 = counters(key)
    c0 = torch.arange((n + 3) // 4, dtype=torch.int64, device=device)
    c1, c2, c3 = torch.zeros_like(c0) + c1_, torch.full_like(c0, c2_), torch.full_like(c0, c3_)
    for _ in range(10):
        high_0, low_0 = _multiply(c0, MULTIPLIER_0)
        high_1, low_1 = _multiply(c2, MULTIPLIER_1)
        c0, c1, c2, c3 = high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0
        k0, k1 = (k0 + WEYL_0) & MASK, (k1 + WEYL_1) & MASK
    return torch.stack((c0, c1, c2, c3), dim=1).view(-1)[:n]


def uniforms_torch(key: Key, n: int, device: torch.device | str) -> Tensor:
    """Return the first `n` uniforms of the key's table, float32 in [0, 1), by torch operations on `device`."""
    return (words_torch(key, n, device) >> 8).to(torch.float32) * (1.0 / (1 << 24))


@cache
def _kernels(compile: Compile, device: torch.device) -> DeviceKernels:
    """Compile counter_rng.cu for a device, once."""
    return compile(read_source(Path(__file__).with_suffix(".cu")), device)


def launch(kernel: str, key: Key, out: Tensor, compile: Compile = compile_cuda) -> None:
    """Fill the contiguous `out` by a kernel of counter_rng.cu, `draw_words` (int64) or `draw_uniforms` (float32)."""
    count = key.iteration
    if not isinstance(count, Tensor):
        count = torch.full((), count, dtype=torch.int64, device=out.device)
    words = [np.uint32(word) for word in counters(key._replace(iteration=0))[1:]]
    kernels = _kernels(compile, out.device)
    kernels.launch(kernel, (out.numel() + 3) // 4, out, count, np.int64(out.numel()), *words)


def fill_uniforms(key: Key, out: Tensor) -> Tensor:
    """Overwrite the contiguous float32 tensor `out` with the first uniforms of the key's table; returns `out`."""
    if out.dtype != torch.float32 or not out.is_contiguous():
        raise ValueError(f"uniforms need a contiguous float32 tensor, got {out.dtype} with strides {out.stride()}")
    if out.device.type == "cpu" and not isinstance(key.iteration, Tensor):
        _fill_uniforms(out.view(-1).numpy(), *counters(key))
    elif out.device.type == "cuda":
        launch("draw_uniforms", key, out)
    else:
        out.view(-1).copy_(uniforms_torch(key, out.numel(), out.device))
    return out


def uniforms(key: Key, shape: tuple[int, ...], device: torch.device | str = "cpu") -> Tensor:
    """Return uniforms, float32 in [0, 1); a larger table of the same key begins with the same numbers.

    Only the key and the index decide, so each device and each number of threads gives the same bits. A number has 24
    bits: 0 may be drawn, 1 never, and values are multiples of 2**-24, too coarse to pick one of a million rows evenly.
    """
    return fill_uniforms(key, torch.empty(shape, dtype=torch.float32, device=device))


def normal(uniform: Tensor) -> Tensor:
    """Return standard normals (float32) made from uniforms in [0, 1) by the inverse distribution function.

    Half a step of the grid, 2**-25, is added first, so that 0 gives a finite number; in float64, because in float32 the
    largest uniform would round up to 1. So all results are in +-5.42.
    """
    return torch.special.ndtri(uniform.double() + 2.0**-25).float()


def integers(key: Key, n: int, high: int) -> list[int]:
    """Return `n` integers in [0, high), high <= 2**32, for seeds of environments; element i does not depend on `n`."""
    if not 0 < high <= 1 << 32:
        raise ValueError(f"integers are drawn in [0, high) with 1 <= high <= 2**32, got high={high}")
    words = words_numpy(key, 2 * n).tolist()  # 64 bits for each, so that the bias is at most 2**-32
    return [((words[2 * i] << 32 | words[2 * i + 1]) * high) >> 64 for i in range(n)]


def permutation(key: Key, n: int, device: torch.device | str = "cpu") -> Tensor:
    """Return a random order of 0..n-1, int64 [n]: the indices sorted by their random words, equal words by index.

    It is the same on every device, because no two sort keys are equal. Another `n` gives an unrelated order.
    """
    kind = torch.device(device).type
    if kind == "cpu" and not isinstance(key.iteration, Tensor):
        words = torch.from_numpy(words_numpy(key, n).astype(np.int64))
    elif kind == "cuda":
        launch("draw_words", key, words := torch.empty(n, dtype=torch.int64, device=device))
    else:
        words = words_torch(key, n, device)
    index = torch.arange(n, device=device)
    return torch.argsort(((words - (1 << 31)) << 32) | index)  # word - 2**31 fits into 32 signed bits
