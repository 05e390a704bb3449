"""Layer norm followed by relu, forward and backward, for PQN.

A row is the outputs of a layer for one sample, or of a convolution for one pixel. The numbers before the norm ("raw")
are kept, so that the way back computes mean and deviation from them again. A row is padded with zeros to full vectors;
mean and deviation do not count these. Scale and shift [width] each are stored after the layer's bias [width].
"""

import numpy as np

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats
from stride.agents.engines.fused_cpu.kernels.vectors import first_lanes, larger, load, splat, store, total
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit

F = np.float32
EPS = F(1e-5)  # added to the variance, as in torch


@njit(inline="always")
def _moments(raw: int, vectors: int, count: int) -> tuple[np.float32, np.float32]:
    """Return mean and 1 / deviation of the first `count` numbers of a row of so many vectors."""
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
    """out [rows, width] = max(scale * (raw - mean) / deviation + shift, 0), over the first `count` numbers of a row."""
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
    """Replace the slopes [rows, width] after a norm (before its relu) by the slopes before it; add to `gradient`.

    With n = (raw - mean) / deviation and d = slope * scale, the slope before the norm is
    (d - mean d - n mean(d n)) / deviation; the gradient of scale is sum slope * n, that of shift is sum slope.
    `gradient` has the same layout as `bias`. These rows are summed first and then added to it, so that small numbers
    are not lost in a large sum.
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
        mean_scaled, mean_product = total(sums) / F(count), total(products) / F(count)
        for v in range(vectors):
            normal, scaled = (load(source, v) - mean) * inverse, load(here, v) * load(scale, v)
            below = (scaled - mean_scaled - normal * mean_product) * inverse
            store(here, v, below * first_lanes(count - LANES * v))
    total_gradient = floats(gradient + 4 * width, 2 * width)
    for k in range(2 * width):
        total_gradient[k] += own[k]
