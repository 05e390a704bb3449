"""Gradients of a world model's weights: products over all rows, whose outputs are shared among threads.

Whoever makes a number adds it up in the order of the rows, so that results do not depend on threads.
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, longs
from stride.agents.engines.fused_cpu.kernels.lanes import ROWS
from stride.agents.engines.fused_cpu.kernels.layers import accumulate
from stride.agents.engines.plan.numbers import Count, auto
from stride.utils.kernel_cache import njit

DEEP = 64  # rows at a time, of which 64 columns of both factors fit the innermost cache


class Product(Count):
    """A row of the table of products, int64: addresses, then counts. I is a multiple of 16."""

    SLOPE = auto()  # [N, O]
    INPUT = auto()  # [N, I]
    OUT = auto()  # [O, I], zeros at first
    DEPTH = auto()  # N
    WIDTH = auto()  # O
    INNER = auto()  # I


class Products(Count):
    """The table of all of them, int64."""

    ROWS = auto()  # [COUNT, Product]
    COUNT = auto()
    THREADS = auto()


PRODUCT, PRODUCTS = len(Product), len(Products)


@njit(**PIECE)
def products(table: int, thread: int) -> None:
    """This thread's rows of each of them."""
    t = longs(table, PRODUCTS)
    for number in range(t[Products.COUNT]):
        row = longs(t[Products.ROWS] + 8 * PRODUCT * number, PRODUCT)
        depth, width, inner = row[Product.DEPTH], row[Product.WIDTH], row[Product.INNER]
        pieces = -(-width // ROWS)
        first = ROWS * (pieces * thread // t[Products.THREADS])
        last = min(width, ROWS * (pieces * (thread + 1) // t[Products.THREADS]))
        for k in range(0, depth, DEEP):
            slope, given = row[Product.SLOPE] + 4 * (k * width + first), row[Product.INPUT] + 4 * k * inner
            out, rows = row[Product.OUT] + 4 * first * inner, last - first
            accumulate(slope, 1, width, given, out, rows, inner, min(DEEP, depth - k))
