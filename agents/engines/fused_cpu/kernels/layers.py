"""The three matrix products of a layer over any number of samples, cut into blocks that fit the registers.

Widths are multiples of 16. Arguments are those of `lanes.block`: addresses, and sizes and strides in elements. Each
kernel is called by its address, so that its loops are not compiled again into every caller. nets.py, mingru.py and
pictures.py use them.
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE
from stride.agents.engines.fused_cpu.kernels.lanes import (
    ADD,
    COLUMNS,
    LINEAR,
    RELU,
    RELU_SLOPE,
    ROWS,
    TANH,
    TANH_SLOPE,
    VECTORS_OF_1_ROW,
    VECTORS_OF_2_ROWS,
    VECTORS_OF_4_ROWS,
    block,
)
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit


@njit(inline="always")
def _rows(
    rows: int, vectors: int, kind: int, a: int, a_row: int, a_inner: int, b: int, b_inner: int, b_vector: int, out: int,
    out_row: int, other: int, width: int, inner: int,
) -> None:  # fmt: skip
    """Compute `rows` rows of a product over the whole width: `vectors` vectors of columns at a time, then one."""
    n = 0
    while n + LANES * vectors <= width:
        block(rows, vectors, kind, a, a_row, a_inner, b + 4 * (n // LANES) * b_vector, b_inner, b_vector, out + 4 * n,
              out_row, other + 4 * n, inner)  # fmt: skip
        n += LANES * vectors
    while n < width:
        block(rows, 1, kind, a, a_row, a_inner, b + 4 * (n // LANES) * b_vector, b_inner, b_vector, out + 4 * n,
              out_row, other + 4 * n, inner)  # fmt: skip
        n += LANES


@njit(inline="always")
def _sweep(
    kind: int, a: int, a_row: int, a_inner: int, b: int, b_inner: int, b_vector: int, out: int, out_row: int,
    other: int, other_row: int, samples: int, width: int, inner: int,
) -> None:  # fmt: skip
    """Compute a complete product: full blocks first, one strip of columns after the other, then the rows left over.

    In a strip its columns of b stay in the cache. The rows left over are in blocks of 4, 2 and 1; the fewer rows a
    block has, the more columns, so that there are enough independent sums.
    """
    full = samples - samples % ROWS
    n = 0
    while n + LANES * COLUMNS <= width:
        for m in range(0, full, ROWS):
            block(ROWS, COLUMNS, kind, a + 4 * m * a_row, a_row, a_inner, b + 4 * (n // LANES) * b_vector, b_inner,
                  b_vector, out + 4 * (m * out_row + n), out_row, other + 4 * (m * other_row + n), inner)  # fmt: skip
        n += LANES * COLUMNS
    while n < width:
        for m in range(0, full, ROWS):
            block(ROWS, 1, kind, a + 4 * m * a_row, a_row, a_inner, b + 4 * (n // LANES) * b_vector, b_inner,
                  b_vector, out + 4 * (m * out_row + n), out_row, other + 4 * (m * other_row + n), inner)  # fmt: skip
        n += LANES
    m = full
    if ROWS > 4 and m + 4 <= samples:
        _rows(4, VECTORS_OF_4_ROWS, kind, a + 4 * m * a_row, a_row, a_inner, b, b_inner, b_vector,
              out + 4 * m * out_row, out_row, other + 4 * m * other_row, width, inner)  # fmt: skip
        m += 4
    if m + 2 <= samples:
        _rows(2, VECTORS_OF_2_ROWS, kind, a + 4 * m * a_row, a_row, a_inner, b, b_inner, b_vector,
              out + 4 * m * out_row, out_row, other + 4 * m * other_row, width, inner)  # fmt: skip
        m += 2
    if m < samples:
        _rows(1, VECTORS_OF_1_ROW, kind, a + 4 * m * a_row, a_row, a_inner, b, b_inner, b_vector,
              out + 4 * m * out_row, out_row, other + 4 * m * other_row, width, inner)  # fmt: skip


@njit(**PIECE)
def forward_tanh(
    x: int, x_row: int, weight: int, weight_row: int, weight_vector: int, bias: int, out: int, samples: int, width: int,
    inner: int,
) -> None:  # fmt: skip
    """out [samples, width] = tanh(x @ weight + bias); weight [inner, width] is read by the strides of `lanes.block`."""
    _sweep(TANH, x, x_row, 1, weight, weight_row, weight_vector, out, width, bias, 0, samples, width, inner)


@njit(**PIECE)
def forward_relu(
    x: int, x_row: int, weight: int, weight_row: int, weight_vector: int, bias: int, out: int, samples: int, width: int,
    inner: int,
) -> None:  # fmt: skip
    """out [samples, width] = max(x @ weight + bias, 0)."""
    _sweep(RELU, x, x_row, 1, weight, weight_row, weight_vector, out, width, bias, 0, samples, width, inner)


@njit(**PIECE)
def forward_linear(
    x: int, x_row: int, weight: int, weight_row: int, weight_vector: int, bias: int, out: int, samples: int, width: int,
    inner: int,
) -> None:  # fmt: skip
    """out [samples, width] = x @ weight + bias, without an activation function: a layer norm or minGRU follows."""
    _sweep(LINEAR, x, x_row, 1, weight, weight_row, weight_vector, out, width, bias, 0, samples, width, inner)


@njit(**PIECE)
def backward_tanh(
    slope: int, slope_row: int, slope_inner: int, weight: int, activation: int, out: int, samples: int, width: int,
    inner: int,
) -> None:  # fmt: skip
    """out [samples, width] = (slope @ weight) * (1 - activation^2), the slopes before a tanh; weight [inner, width]."""
    _sweep(TANH_SLOPE, slope, slope_row, slope_inner, weight, width, LANES, out, width, activation, width, samples,
           width, inner)  # fmt: skip


@njit(**PIECE)
def backward_relu(
    slope: int, slope_row: int, slope_inner: int, weight: int, activation: int, out: int, samples: int, width: int,
    inner: int,
) -> None:  # fmt: skip
    """out [samples, width] = slope @ weight where the activation is above 0, else 0: the slopes before a relu."""
    _sweep(RELU_SLOPE, slope, slope_row, slope_inner, weight, width, LANES, out, width, activation, width, samples,
           width, inner)  # fmt: skip


@njit(**PIECE)
def accumulate(a: int, a_row: int, a_inner: int, b: int, out: int, rows: int, width: int, inner: int) -> None:
    """out [rows, width] += a @ b; b is [inner, width]; a is read by strides, so it may be a transposed matrix."""
    _sweep(ADD, a, a_row, a_inner, b, width, LANES, out, width, 0, 0, rows, width, inner)
