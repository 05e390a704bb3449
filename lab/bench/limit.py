"""Measures how fast this processor can multiply and add, and what share of that our matrix products reach.

    python -m lab.bench.limit --threads 2

It measures on one thread and on all. The limit is a loop of fused multiply-adds of float32 on values that stay in
registers, in the widest vectors of the instruction set in use. It does not depend on our kernels. The products are
those of 64 x 64 matrices in the innermost cache, by the kernel that trains. Both are measured in turns of a few
milliseconds, and the best turns count.
"""

import time
from typing import NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types

from lab.bench.measure import machine
from stride.agents.engines.fused_cpu.frame import aligned
from stride.agents.engines.fused_cpu.kernels import layers
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, address_of, call, longs
from stride.agents.engines.fused_cpu.kernels.vectors import FLOAT, INT64, compiled
from stride.agents.engines.fused_cpu.workers import Workers
from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.kernel_cache import njit
from stride.utils.kernel_folder import FEATURES

# independent sums: a core starts two multiply-adds a cycle and each takes 4 or 5 cycles, so 10 keep it busy; 12 sums
# with factor and addend fit the 16 registers of AVX2
SUMS = 12
VECTOR_FLOATS = 16 if "avx512f" in FEATURES else 8  # float32 numbers in a vector register
THREAD_FLOATS = 16 * (SUMS + 2)  # float32 that a thread reads before the loop: the sums' first values, factor, addend
ROUNDS = 1 << 19  # additions to each sum in a turn: 1 to 2 ms, short enough to be undisturbed by other programs
SIDE, PRODUCTS = 64, 500  # rows and columns of a matrix; products in a turn, which take about as long
N_TURNS = 240


class Limit(NamedTuple):
    """FLOP/s of all threads together."""

    threads: int
    registers: float  # multiply-adds that stay in registers: the limit
    products: float  # products of 64 x 64 by our kernel

    def __str__(self) -> str:
        share = self.products / self.registers
        words = f"{self.registers / 1e9:,.0f} GFLOP/s in registers on {self.threads} thread(s)"
        return f"{words}; our products of {SIDE} x {SIDE} {self.products / 1e9:,.0f}, {share:.0%} of it"


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="CPU threads beside one")
    threads = parser.parse_args(argv).threads
    if threads < 1:
        parser.error("--threads takes a number from 1")
    print(machine(threads))
    for count in sorted({1, threads}):
        print(f"limit: {limit_of(count)}", flush=True)
    return 0


def write_loop(builder: ir.IRBuilder, data: ir.Value, rounds: ir.Value, lanes: int) -> None:
    """Write the loop: each round multiplies each sum by the factor and adds the addend.

    `data`: the address of SUMS + 2 vectors, 64 bytes apart: the sums, which are stored there afterwards, then factor
    and addend. They begin with different values, as equal sums would be computed once.
    """
    vector = ir.VectorType(FLOAT, lanes)
    kind = ir.FunctionType(vector, [vector] * 3)
    multiply_add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{lanes}f32")
    pointers = []
    for i in range(SUMS + 2):
        address = builder.add(data, ir.Constant(INT64, 64 * i))
        pointers.append(builder.inttoptr(address, vector.as_pointer()))
    *first, factor, addend = (builder.load(pointer, align=4) for pointer in pointers)
    before = builder.block
    loop, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.branch(loop)
    builder.position_at_end(loop)
    turn = builder.phi(INT64)
    turn.add_incoming(ir.Constant(INT64, 0), before)
    sums = [builder.phi(vector) for _ in first]
    results = [builder.call(multiply_add, [total, factor, addend]) for total in sums]
    for total, begin, result in zip(sums, first, results, strict=True):
        total.add_incoming(begin, before)
        total.add_incoming(result, loop)
    following = builder.add(turn, ir.Constant(INT64, 1))
    turn.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, rounds), loop, after)
    builder.position_at_end(after)
    for pointer, result in zip(pointers, results, strict=False):
        builder.store(result, pointer, align=4)


@compiled(types.void, types.int64, types.int64)
def in_registers(builder: ir.IRBuilder, data: ir.Value, rounds: ir.Value) -> None:
    """Run `rounds` of multiply-adds in the widest vectors, from `data` and back to it."""
    write_loop(builder, data, rounds, VECTOR_FLOATS)


@njit(**{**PIECE, "cache": False})  # kernels loaded from the cache keep no assembly, which a test reads
def multiply_adds(arguments: int, thread: int) -> None:
    """Run the loop in one thread; `arguments`: address of [the address of the first thread's data, rounds]."""
    data, rounds = longs(arguments, 2)
    in_registers(data + thread * 4 * THREAD_FLOATS, rounds)


@njit(**PIECE)
def products(arguments: int, thread: int) -> None:
    """Multiply matrices in one thread; `arguments`: address of [kernel, first thread's three matrices, products]."""
    accumulate, matrices, count = longs(arguments, 3)
    a = matrices + thread * 12 * SIDE**2
    for _ in range(count):
        call(accumulate, (a, SIDE, 1, a + 4 * SIDE**2, a + 8 * SIDE**2, SIDE, SIDE, SIDE))


def limit_of(threads: int) -> Limit:
    """Return the best of many short turns, with all `threads` at once."""
    workers, values, matrices = Workers(threads), aligned(threads * THREAD_FLOATS), aligned(threads * 3 * SIDE**2)
    for row in values.reshape(threads, SUMS + 2, 16):
        row[:SUMS] = np.arange(SUMS)[:, None]
        row[SUMS:] = 0.5  # x / 2 + 1 / 2 stays finite
    first = np.array([values.ctypes.data, ROUNDS])
    second = np.array([address_of(layers.accumulate), matrices.ctypes.data, PRODUCTS])
    contenders = (
        (address_of(multiply_adds), first, threads * ROUNDS * SUMS * VECTOR_FLOATS * 2),
        (address_of(products), second, threads * PRODUCTS * 2 * SIDE**3),
    )
    best = [0.0, 0.0]
    for _ in range(N_TURNS):
        for i, (kernel, arguments, flop) in enumerate(contenders):
            began = time.perf_counter()
            workers.run(kernel, arguments.ctypes.data, threads)
            best[i] = max(best[i], flop / (time.perf_counter() - began))
    return Limit(threads, *best)


if __name__ == "__main__":
    entry.run(main)
