"""What a device moves and multiplies at most, as torch and a kernel of ours reach it: the yardstick of every speed."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lab.gpu.driven import settle
from stride.utils.device_source import Compile, read_source

BYTES, SIDE = 4 << 30, 8192  # of a copy; of square matrices
SMALL_BYTES, SMALL_SIDE = 1 << 22, 256
PEAK, PEAK_STEPS, PEAK_CHAINS = Path(__file__).with_name("peak.cu"), 1024, 8  # as it says
THREADS, SMALL_THREADS = 1 << 21, 1 << 8
WARM, REPEATS = 3, 10
PRECISIONS = {"32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}


def ceilings(device: torch.device, small: bool) -> dict[str, Any]:
    """Bytes per second of a copy, read and written; FLOP per second of a product, by precision."""
    size, side = (SMALL_BYTES, SMALL_SIDE) if small else (BYTES, SIDE)
    source, flops = torch.ones(size // 4, device=device), dict[str, float]()
    copied = 2 * size / seconds_of(device, partial(torch.empty_like(source).copy_, source))
    for precision, dtype in PRECISIONS.items():
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        with rounded(precision):
            flops[precision] = 2 * side**3 / seconds_of(device, partial(torch.matmul, a, b, out=torch.empty_like(a)))
    return {"copy_bytes_per_second": copied, "flops": flops, "copy_bytes": size, "side": side}


def fma_peak(device: torch.device, compile: Compile, small: bool) -> float:
    """FLOP per second of fused multiply-adds in registers, two for each."""
    threads = SMALL_THREADS if small else THREADS
    kernels, out = compile(read_source(PEAK), device), torch.empty(threads, device=device)
    given = out, np.float32(0.999), np.float32(0.001), np.int32(threads)
    return 2 * threads * PEAK_STEPS * PEAK_CHAINS / seconds_of(device, lambda: kernels.launch("peak", threads, *given))


@contextmanager
def rounded(precision: str) -> Iterator[None]:
    """How float32 products are rounded meanwhile."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def seconds_of(device: torch.device, work: Callable[[], object], repeats: int = REPEATS) -> float:
    """The median of some calls, each waited for, after some that warm up."""
    for _ in range(WARM):
        work()
    found = []
    for _ in range(repeats):
        settle(device)
        began = time.perf_counter()
        work()
        settle(device)
        found.append(time.perf_counter() - began)
    return statistics.median(found)
