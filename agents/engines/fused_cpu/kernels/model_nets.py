"""The nets of a world model (hidden layers and a head) over many rows, forward and backward, 16 rows at once.

A hidden layer is Linear without a bias, RMSNorm, SiLU, as in agents/networks/normed.py; a head is Linear. Inputs and
slopes of each layer are written as rows, so that a weight's gradient is one product over all rows, `products`. Sums
over rows are made in PARTS parts, and products in the order of the rows, so that results do not depend on the number of
threads.
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

PRODUCT_ROWS = 64  # rows of a product at a time: 64 columns of both factors then fit the level 1 cache


@njit(**PIECE)
def net_forward(net: int, index: int, x: int, scratch: int) -> int:
    """Compute a net's outputs for 16 rows, number `index` of such groups; return the address of the output vectors.

    `x`: the inputs of these rows, as vectors. Where gradients are wanted, also keep what the backward pass needs.
    """
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
    """Return the address where hidden layer `number` keeps the residuals of group `index` of 16 rows."""
    n = net_at(net)
    return gradients_at(n.gradients).residuals + (number * (n.rows // LANES) + index) * (n.width + 1) * BYTES


@njit(**PIECE)
def net_backward(net: int, out: int, index: int, part: int, scratch: int) -> int:
    """Compute the slopes at all layers of a net from those at its outputs, vectors `out`, for 16 rows.

    Returns the address of the slopes at the first layer's sums. Slopes of the norms' scales are added up in this part.
    """
    n = net_at(net)
    g = gradients_at(n.gradients)
    width = n.width
    slope = scratch
    below = scratch + n.width * BYTES
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
            clear(below, width)
            add_product(layer.weight, 1, width, slope, below, width, width)
            slope, below = below, slope
    return slope


@njit(**PIECE)
def products(table: int, thread: int) -> None:
    """Compute this thread's rows of each product in the table."""
    t = products_at(table)
    for number in range(t.row_count):
        product = product_at(t.products + PRODUCT_BYTES * number)
        width = product.width
        inner = product.inner
        pieces = -(-width // ROWS)
        first = ROWS * (pieces * thread // t.threads)
        last = min(width, ROWS * (pieces * (thread + 1) // t.threads))
        out = product.out + 4 * first * inner
        for k in range(0, product.depth, PRODUCT_ROWS):
            slope = product.slope + 4 * (k * width + first)
            source = product.input + 4 * k * inner
            accumulate(slope, 1, width, source, out, last - first, inner, min(PRODUCT_ROWS, product.depth - k))
