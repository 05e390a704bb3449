"""Nets of a world model over many rows: hidden layers and a head, there and back, 16 rows side by side.

A layer is Linear without a bias, RMSNorm, SiLU, as in agents/networks/normed.py; a head is Linear. N rows are lanes
of 16. What weights' gradients are made of, inputs and slopes of each layer, is left as rows for one product over all of
them (model_products.py). Sums over rows are made of PARTS pieces, whoever makes them: results do not hang on threads.
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats, longs
from stride.agents.engines.fused_cpu.kernels.model_cell import add_product, clear, norm_silu, to_rows
from stride.agents.engines.fused_cpu.kernels.model_scan import slope_of_norm_silu
from stride.agents.engines.fused_cpu.kernels.vectors import BYTES, splat, store
from stride.agents.engines.plan.layout import LANES
from stride.agents.engines.plan.numbers import Count, auto
from stride.utils.kernel_cache import njit

PARTS = 8


class Layer(Count):
    """A row of a net's table, int64: hidden layers, then the head."""

    WEIGHT = auto()  # address of [width, inner]
    SCALE = auto()  # address of [width]: of a hidden layer's norm, or the head's bias
    INNER = auto()
    WIDTH = auto()


class Answer(Count):
    """What becomes of the rows in one net, int64: counts, then addresses. Hidden layers are all W wide."""

    LAYERS = auto()  # [HIDDEN + 1, Layer]
    HIDDEN = auto()  # layers, at least 1
    OUTPUTS = auto()  # O
    ABOVE = auto()  # [HIDDEN, N, W] what hidden layers answer
    KEPT = auto()  # [HIDDEN, N / 16, W + 1, 16] normed inputs, and rates; 0: nobody asks for gradients
    SLOPE_OUT = auto()  # [N, O]
    SLOPES = auto()  # [HIDDEN, N, W] at the sums of hidden layers
    SLOPE_SCALES = auto()  # [HIDDEN, PARTS, W, 16], zeros at first


LAYER, ANSWER = len(Layer), len(Answer)


@njit(**PIECE)
def answer_of(answer: int, group: int, rows: int, x: int, scratch: int) -> int:
    """What one net answers to 16 rows, vectors x: where its vectors lie."""
    a = longs(answer, ANSWER)
    hidden, first, below = a[Answer.HIDDEN], LANES * group, x
    net = longs(a[Answer.LAYERS], LAYER * (hidden + 1))
    width, count, out = net[Layer.WIDTH], a[Answer.OUTPUTS], scratch + 2 * net[Layer.WIDTH] * BYTES
    for layer in range(hidden):
        at, above, kept = LAYER * layer, scratch + layer % 2 * width * BYTES, out + count * BYTES
        if a[Answer.KEPT]:
            kept = kept_of(answer, layer, group, rows, width)
        clear(above, width)
        add_product(net[at + Layer.WEIGHT], net[at + Layer.INNER], 1, below, above, width, net[at + Layer.INNER])
        norm_silu(above, net[at + Layer.SCALE], kept, width)
        if a[Answer.KEPT]:
            to_rows(above, a[Answer.ABOVE] + 4 * (layer * rows + first) * width, width, width)
        below = above
    head = LAYER * hidden
    bias = floats(net[head + Layer.SCALE], count)
    for i in range(count):
        store(out, i, splat(bias[i]))
    add_product(net[head + Layer.WEIGHT], width, 1, below, out, count, width)
    return out


@njit(inline="always")
def kept_of(answer: int, layer: int, group: int, rows: int, width: int) -> int:
    """What a layer keeps of these rows."""
    return longs(answer, ANSWER)[Answer.KEPT] + (layer * (rows // LANES) + group) * (width + 1) * BYTES


@njit(**PIECE)
def slopes_of(answer: int, out: int, group: int, part: int, rows: int, scratch: int) -> int:
    """Slopes of all layers of one net for 16 rows, where those of the first lie; sums are added to those of a part.

    `out` are those of its answers, vectors.
    """
    a = longs(answer, ANSWER)
    hidden, first = a[Answer.HIDDEN], LANES * group
    net = longs(a[Answer.LAYERS], LAYER * (hidden + 1))
    width, slope, other = net[Layer.WIDTH], scratch, scratch + net[Layer.WIDTH] * BYTES
    clear(slope, width)
    add_product(net[LAYER * hidden + Layer.WEIGHT], 1, width, out, slope, width, a[Answer.OUTPUTS])
    for layer in range(hidden - 1, -1, -1):
        at, sums = LAYER * layer, a[Answer.SLOPE_SCALES] + (layer * PARTS + part) * width * BYTES
        slope_of_norm_silu(slope, net[at + Layer.SCALE], kept_of(answer, layer, group, rows, width), sums, width)
        to_rows(slope, a[Answer.SLOPES] + 4 * (layer * rows + first) * width, width, width)
        if layer:
            clear(other, width)
            add_product(net[at + Layer.WEIGHT], 1, width, slope, other, width, width)
            slope, other = other, slope
    return slope
