"""Layer norms of rows, each of the outputs of a layer for one sample or of a convolution for one pixel, and their relu.

Outputs are kept as they were before the norm, so that the way back finds mean and deviation again. A row is filled up
to full vectors with zeros, which mean and deviation do not count; scale and shift are stored behind the layer's bias.
"""

import numpy as np

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats
from stride.agents.engines.fused_cpu.kernels.vectors import first_lanes, larger, load, splat, store, total
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit

F = np.float32
EPS = F(1e-5)  # as torch's own


@njit(inline="always")
def _moments(raw: int, vectors: int, count: int) -> tuple[np.float32, np.float32]:
    """Mean and 1 / deviation of the first `count` numbers of a row."""
    sums = splat(F(0.0))
    for v in range(vectors):
        sums = sums + load(raw, v)
    mean = total(sums) / F(count)
    squares = splat(F(0.0))
    for v in range(vectors):
        centred = (load(raw, v) - mean) * first_lanes(count - LANES * v)
        squares = squares + centred * centred
    return mean, F(1.0) / np.sqrt(total(squares) / F(count) + EPS)


@njit(**PIECE)
def norm_relu(raw: int, bias: int, out: int, rows: int, width: int, count: int) -> None:
    """out [rows, width] = max(scale * (raw - mean) / deviation + shift, 0); of each row the first `count` are real."""
    scale, shift, vectors = bias + 4 * width, bias + 8 * width, width // LANES
    zero = splat(F(0.0))
    for r in range(rows):
        source, target = raw + 4 * r * width, out + 4 * r * width
        mean, inverse = _moments(source, vectors, count)
        for v in range(vectors):
            normal = (load(source, v) - mean) * inverse
            store(target, v, larger(normal * load(scale, v) + load(shift, v), zero))


@njit(**PIECE)
def norm_back(slope: int, raw: int, bias: int, gradient: int, rows: int, width: int, count: int) -> None:
    """The slopes [rows, width] behind a norm, those of its relu included, become those before it, in place.

    With n = (raw - mean) / deviation and d = slope * scale: before it the slope is (d - mean d - n mean(d n)) /
    deviation, to scale goes sum slope * n, to shift sum slope. `gradient` is stored as `bias` is. Rows are added up
    before they are added to it, so that sums of very different sizes do not meet.
    """
    scale, vectors = bias + 4 * width, width // LANES
    own = np.zeros(2 * width, np.float32)
    to_scale, to_shift = own.ctypes.data, own.ctypes.data + 4 * width
    for r in range(rows):
        source, here = raw + 4 * r * width, slope + 4 * r * width
        mean, inverse = _moments(source, vectors, count)
        sums, products = splat(F(0.0)), splat(F(0.0))
        for v in range(vectors):
            normal, given = (load(source, v) - mean) * inverse, load(here, v)
            scaled = given * load(scale, v)
            sums, products = sums + scaled, products + scaled * normal
            store(to_scale, v, load(to_scale, v) + given * normal)
            store(to_shift, v, load(to_shift, v) + given)
        of_sum, of_products = total(sums) / F(count), total(products) / F(count)
        for v in range(vectors):
            normal, scaled = (load(source, v) - mean) * inverse, load(here, v) * load(scale, v)
            below = (scaled - of_sum - normal * of_products) * inverse
            store(here, v, below * first_lanes(count - LANES * v))
    total_gradient = floats(gradient + 4 * width, 2 * width)
    for k in range(2 * width):
        total_gradient[k] += own[k]
