"""What this processor multiplies and adds at most: the yardstick of the training benchmarks."""

import time

from agents.engines.fused_cpu import layers
from agents.engines.fused_cpu.bound import aligned
from agents.engines.fused_cpu.calls import address_of, call
from agents.engines.fused_cpu.workers import Workers
from utils.kernel_cache import njit

SIDE = 64  # of the matrices whose product measures the limit


@njit(nogil=True)
def _products(accumulate: int, a: int, b: int, c: int, count: int) -> None:
    for _ in range(count):
        call(accumulate, (a, SIDE, 1, b, c, SIDE, SIDE, SIDE))


def multiply_add_limit(threads: int) -> float:
    """FLOP/s of small matrix products out of the innermost cache, on all threads at once."""
    accumulate, matrices = address_of(layers.accumulate), [aligned(3 * SIDE * SIDE) for _ in range(threads)]
    workers, count, best = Workers(threads), 20_000, 0.0

    def job(thread: int) -> None:
        base = matrices[thread].ctypes.data
        _products(accumulate, base, base + 4 * SIDE**2, base + 8 * SIDE**2, count)

    for _ in range(6):
        began = time.perf_counter()
        workers.run(job, threads)
        best = max(best, threads * count * 2 * SIDE**3 / (time.perf_counter() - began))
    return best
