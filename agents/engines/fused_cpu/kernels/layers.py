"""One layer's three products over any number of samples, cut into register blocks. Widths are multiples of 16.

Arguments are those of `lanes.block`: addresses, strides and counts in elements. Each function is compiled by itself and
called by its address, so that its block loops are not compiled again into every caller.
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE
from stride.agents.engines.fused_cpu.kernels.lanes import (
    ADD,
    COLUMNS,
    RELU,
    RELU_SLOPE,
    ROWS,
    TANH,
    TANH_SLOPE,
    block,
)
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit


@njit(inline="always")
def _strip(
    vectors: int, kind: int, a: int, a_row: int, a_inner: int, b: int, b_inner: int, out: int, out_row: int,
    other: int, other_row: int, samples: int, inner: int,
) -> None:  # fmt: skip
    """`vectors` columns of vectors, all rows: as many as fit into the registers at a time, then the rows left over.

    Blocks of few rows wait for their own sums, so those of AVX2 (64 rows are 10 blocks of 6, and 4) are 4, 2 and 1.
    """
    m = 0
    while m + ROWS <= samples:
        block(ROWS, vectors, kind, a + 4 * m * a_row, a_row, a_inner, b, b_inner, out + 4 * m * out_row, out_row,
              other + 4 * m * other_row, inner)  # fmt: skip
        m += ROWS
    if ROWS > 4 and m + 4 <= samples:
        block(4, vectors, kind, a + 4 * m * a_row, a_row, a_inner, b, b_inner, out + 4 * m * out_row, out_row,
              other + 4 * m * other_row, inner)  # fmt: skip
        m += 4
    if m + 2 <= samples:
        block(2, vectors, kind, a + 4 * m * a_row, a_row, a_inner, b, b_inner, out + 4 * m * out_row, out_row,
              other + 4 * m * other_row, inner)  # fmt: skip
        m += 2
    if m < samples:
        block(1, vectors, kind, a + 4 * m * a_row, a_row, a_inner, b, b_inner, out + 4 * m * out_row, out_row,
              other + 4 * m * other_row, inner)  # fmt: skip


@njit(inline="always")
def _sweep(
    kind: int, a: int, a_row: int, a_inner: int, b: int, b_inner: int, out: int, out_row: int,
    other: int, other_row: int, samples: int, width: int, inner: int,
) -> None:  # fmt: skip
    n = 0
    while n + LANES * COLUMNS <= width:
        at = 4 * n
        _strip(COLUMNS, kind, a, a_row, a_inner, b + at, b_inner, out + at, out_row, other + at, other_row, samples,
               inner)  # fmt: skip
        n += LANES * COLUMNS
    while n < width:
        at = 4 * n
        _strip(1, kind, a, a_row, a_inner, b + at, b_inner, out + at, out_row, other + at, other_row, samples, inner)
        n += LANES


@njit(**PIECE)
def forward_tanh(x: int, x_row: int, weight_t: int, bias: int, out: int, samples: int, width: int, inner: int) -> None:
    """out = tanh(x @ weight_t + bias); weight_t is [inner, width]."""
    _sweep(TANH, x, x_row, 1, weight_t, width, out, width, bias, 0, samples, width, inner)


@njit(**PIECE)
def forward_relu(x: int, x_row: int, weight_t: int, bias: int, out: int, samples: int, width: int, inner: int) -> None:
    """out = max(x @ weight_t + bias, 0)."""
    _sweep(RELU, x, x_row, 1, weight_t, width, out, width, bias, 0, samples, width, inner)


@njit(**PIECE)
def backward_tanh(
    slope: int, slope_row: int, slope_inner: int, weight: int, activation: int, out: int, samples: int, width: int,
    inner: int,
) -> None:  # fmt: skip
    """out = (slope @ weight) * (1 - activation^2); weight is [inner, width]."""
    _sweep(TANH_SLOPE, slope, slope_row, slope_inner, weight, width, out, width, activation, width, samples, width,
           inner)  # fmt: skip


@njit(**PIECE)
def backward_relu(
    slope: int, slope_row: int, slope_inner: int, weight: int, activation: int, out: int, samples: int, width: int,
    inner: int,
) -> None:  # fmt: skip
    """out = (slope @ weight) where the activation is above 0."""
    _sweep(RELU_SLOPE, slope, slope_row, slope_inner, weight, width, out, width, activation, width, samples, width,
           inner)  # fmt: skip


@njit(**PIECE)
def accumulate(a: int, a_row: int, a_inner: int, b: int, out: int, rows: int, width: int, inner: int) -> None:
    """out += a @ b; b is [inner, width], a is read by strides, so that its transpose costs nothing."""
    _sweep(ADD, a, a_row, a_inner, b, width, out, width, 0, 0, rows, width, inner)
