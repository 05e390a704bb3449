"""What this processor multiplies and adds at most: the yardstick of the training benchmarks."""

import time

import numpy as np

from stride.agents.engines.fused_cpu.frame import aligned
from stride.agents.engines.fused_cpu.kernels import layers
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, address_of, call, longs
from stride.agents.engines.fused_cpu.workers import Workers
from stride.utils.kernel_cache import njit

SIDE = 64  # of the matrices whose product measures the limit


@njit(**PIECE)
def _products(given: int, thread: int) -> None:
    """`given`: the kernel's address, the first thread's three matrices, how many products."""
    accumulate, matrices, count = longs(given, 3)
    a = matrices + thread * 12 * SIDE**2
    for _ in range(count):
        call(accumulate, (a, SIDE, 1, a + 4 * SIDE**2, a + 8 * SIDE**2, SIDE, SIDE, SIDE))


def multiply_add_limit(threads: int) -> float:
    """FLOP/s of small matrix products out of the innermost cache, on all threads at once."""
    matrices, workers, best = aligned(threads * 3 * SIDE**2), Workers(threads), 0.0
    count = 500  # 2 ms, which other programs may leave alone
    given = np.array([address_of(layers.accumulate), matrices.ctypes.data, count])
    products = address_of(_products)
    for _ in range(240):
        began = time.perf_counter()
        workers.run(products, given.ctypes.data, threads)
        best = max(best, threads * count * 2 * SIDE**3 / (time.perf_counter() - began))
    return best
