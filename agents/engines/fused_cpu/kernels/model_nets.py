"""Nets of a world model over many rows: hidden layers and a head, forward and backward, 16 rows side by side.

A layer is Linear without a bias, RMSNorm, SiLU, as in agents/networks/normed.py; a head is Linear. The inputs and
slopes of each layer are written as rows: a weight's gradient is one product over all of them. Sums over rows are made
of PARTS pieces, and products in the order of the rows, so that results do not depend on the number of threads.
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats
from stride.agents.engines.fused_cpu.kernels.lanes import ROWS
from stride.agents.engines.fused_cpu.kernels.layers import accumulate
from stride.agents.engines.fused_cpu.kernels.model_cell import add_product, clear, norm_silu, to_rows
from stride.agents.engines.fused_cpu.kernels.model_scan import slope_of_norm_silu
from stride.agents.engines.fused_cpu.kernels.model_tables import (
    LAYER_BYTES,
    PARTS,
    PRODUCT_BYTES,
    gradients_at,
    layer_at,
    net_at,
    product_at,
    products_at,
)
from stride.agents.engines.fused_cpu.kernels.vectors import BYTES, splat, store
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit

DEEP = 64  # rows at a time, of which 64 columns of both factors fit the innermost cache


@njit(**PIECE)
def net_forward(net: int, index: int, x: int, scratch: int) -> int:
    """The address of a net's outputs for the index-th 16 rows, vectors x."""
    n = net_at(net)
    width = n.width
    below = x
    out = scratch + 2 * width * BYTES
    for number in range(n.hidden):
        layer = layer_at(n.layers + LAYER_BYTES * number)
        above = scratch + number % 2 * width * BYTES
        residuals = residuals_of(net, number, index) if n.gradients else out + n.outputs * BYTES
        clear(above, width)
        add_product(layer.weight, layer.inner, 1, below, above, width, layer.inner)
        norm_silu(above, layer.scale, residuals, width)
        if n.gradients:
            rows = gradients_at(n.gradients).activations + 4 * (number * n.rows + LANES * index) * width
            to_rows(above, rows, width, width)
        below = above
    head = layer_at(n.layers + LAYER_BYTES * n.hidden)
    bias = floats(head.scale, n.outputs)
    for i in range(n.outputs):
        store(out, i, splat(bias[i]))
    add_product(head.weight, width, 1, below, out, n.outputs, width)
    return out


@njit(inline="always")
def residuals_of(net: int, number: int, index: int) -> int:
    """Where a hidden layer keeps what belongs to the index-th 16 rows."""
    n = net_at(net)
    return gradients_at(n.gradients).residuals + (number * (n.rows // LANES) + index) * (n.width + 1) * BYTES


@njit(**PIECE)
def net_backward(net: int, out: int, index: int, part: int, scratch: int) -> int:
    """From slopes of a net's outputs, vectors `out`, to those of its layers: the address of the first layer's.

    Slopes of the norms' scales are added to those of this part.
    """
    n = net_at(net)
    g = gradients_at(n.gradients)
    width = n.width
    slope = scratch
    other = scratch + n.width * BYTES
    to_rows(out, g.slope_out + 4 * LANES * index * n.outputs, n.outputs, n.outputs)
    head = layer_at(n.layers + LAYER_BYTES * n.hidden)
    clear(slope, width)
    add_product(head.weight, 1, width, out, slope, width, n.outputs)
    for number in range(n.hidden - 1, -1, -1):
        layer = layer_at(n.layers + LAYER_BYTES * number)
        sums = g.scales + (number * PARTS + part) * width * BYTES
        slope_of_norm_silu(slope, layer.scale, residuals_of(net, number, index), sums, width)
        to_rows(slope, g.slopes + 4 * (number * n.rows + LANES * index) * width, width, width)
        if number:
            clear(other, width)
            add_product(layer.weight, 1, width, slope, other, width, width)
            slope, other = other, slope
    return slope


@njit(**PIECE)
def products(table: int, thread: int) -> None:
    """This thread's rows of each product."""
    t = products_at(table)
    for number in range(t.row_count):
        product = product_at(t.products + PRODUCT_BYTES * number)
        width = product.width
        inner = product.inner
        pieces = -(-width // ROWS)
        first = ROWS * (pieces * thread // t.threads)
        last = min(width, ROWS * (pieces * (thread + 1) // t.threads))
        out = product.out + 4 * first * inner
        for k in range(0, product.depth, DEEP):
            slope = product.slope + 4 * (k * width + first)
            source = product.input + 4 * k * inner
            accumulate(slope, 1, width, source, out, last - first, inner, min(DEEP, product.depth - k))
