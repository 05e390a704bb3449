"""Nets of a world model over many rows: hidden layers and a head, there and back, 16 rows side by side.

A layer is Linear without a bias, RMSNorm, SiLU, as in agents/networks/normed.py; a head is Linear. All nets of a pass
read the same rows, N of them, a multiple of 16. What weights' gradients are made of is left as rows, inputs and slopes
of each layer, for one product over all of them (model_products.py). Sums over rows are made of PARTS pieces, whoever
makes them, so that results do not depend on threads.
"""

from agents.engines.fused_cpu.kernels.calls import PIECE, floats, longs
from agents.engines.fused_cpu.kernels.model_cell import add_product, clear, copy, norm_silu, to_lanes, to_rows
from agents.engines.fused_cpu.kernels.model_scan import slope_of_norm_silu
from agents.engines.fused_cpu.kernels.vectors import BYTES, splat, store
from agents.engines.plan.layout import LANES
from agents.engines.plan.numbers import Count, auto
from utils.kernel_cache import njit

PARTS = 8


class Layer(Count):
    """A row of a net's table, int64: hidden layers, then the head where there is one."""

    WEIGHT = auto()  # address of [width, inner]
    SCALE = auto()  # address of [width]: of a hidden layer's norm, or the head's bias
    INNER = auto()
    WIDTH = auto()


class Answer(Count):
    """What becomes of the rows in one net, int64: counts, then addresses. Hidden layers are all W wide."""

    LAYERS = auto()  # [HIDDEN + HEAD, Layer]
    HIDDEN = auto()  # layers, at least 1
    HEAD = auto()  # 1 where there is one
    OUTPUTS = auto()  # O
    OUT = auto()  # [N, O] of the last layer; 0: nobody asks for rows
    ABOVE = auto()  # [HIDDEN + HEAD - 1, N, W] what the layers below it answer
    KEPT = auto()  # [HIDDEN, N / 16, W + 1, 16] normed inputs, and rates; 0: nobody asks for gradients
    SLOPE_OUT = auto()  # [N, O]
    SLOPES = auto()  # [HIDDEN, N, W] at the sums of hidden layers
    SLOPE_SCALES = auto()  # [HIDDEN, PARTS, W, 16], zeros at first


class Pass(Count):
    """The table of a pass, int64: counts, then addresses."""

    NETS = auto()
    ANSWERS = auto()  # [NETS, Answer]
    INNER = auto()  # I
    ROWS = auto()  # N
    THREADS = auto()
    X = auto()  # [N, I]
    SLOPE_X = auto()  # [N, I]; 0: nobody asks
    SCRATCH = auto()  # of each thread: inputs [I], two hidden layers, outputs [O], what a layer keeps [W + 1]
    SCRATCH_SIZE = auto()  # bytes of a thread


LAYER, ANSWER, PASS = len(Layer), len(Answer), len(Pass)


@njit(inline="always")
def head_of(weight: int, bias_at: int, inner: int, width: int, x: int, out: int) -> None:
    """A linear layer's outputs from vectors x."""
    bias = floats(bias_at, width)
    for i in range(width):
        store(out, i, splat(bias[i]))
    add_product(weight, inner, 1, x, out, width, inner)


@njit(**PIECE)
def forward(table: int, thread: int) -> None:
    """This thread's rows."""
    p = longs(table, PASS)
    inner, x = p[Pass.INNER], p[Pass.SCRATCH] + thread * p[Pass.SCRATCH_SIZE]
    for group in range(thread, p[Pass.ROWS] // LANES, p[Pass.THREADS]):
        to_lanes(p[Pass.X] + 4 * LANES * group * inner, inner, x, inner)
        for number in range(p[Pass.NETS]):
            answer_of(p[Pass.ANSWERS] + 8 * ANSWER * number, group, p[Pass.ROWS], x, x + inner * BYTES)


@njit(**PIECE)
def answer_of(answer: int, group: int, rows: int, x: int, scratch: int) -> int:
    """What one net answers to 16 rows, vectors x: where its vectors lie."""
    a = longs(answer, ANSWER)
    hidden, layers, first, below = a[Answer.HIDDEN], a[Answer.HIDDEN] + a[Answer.HEAD], LANES * group, x
    net = longs(a[Answer.LAYERS], LAYER * layers)
    width, count, out = net[Layer.WIDTH], a[Answer.OUTPUTS], scratch + 2 * net[Layer.WIDTH] * BYTES
    for layer in range(hidden):
        at, above, kept = LAYER * layer, scratch + layer % 2 * width * BYTES, out + count * BYTES
        if a[Answer.KEPT]:
            kept = kept_of(answer, layer, group, rows, width)
        clear(above, width)
        add_product(net[at + Layer.WEIGHT], net[at + Layer.INNER], 1, below, above, width, net[at + Layer.INNER])
        norm_silu(above, net[at + Layer.SCALE], kept, width)
        if a[Answer.KEPT] and layer + 1 < layers:
            to_rows(above, a[Answer.ABOVE] + 4 * (layer * rows + first) * width, width, width)
        below = above
    if a[Answer.HEAD]:
        at = LAYER * hidden
        head_of(net[at + Layer.WEIGHT], net[at + Layer.SCALE], width, count, below, out)
        below = out
    if a[Answer.OUT]:
        to_rows(below, a[Answer.OUT] + 4 * first * count, count, count)
    return below


@njit(inline="always")
def kept_of(answer: int, layer: int, group: int, rows: int, width: int) -> int:
    """What a layer keeps of these rows."""
    return longs(answer, ANSWER)[Answer.KEPT] + (layer * (rows // LANES) + group) * (width + 1) * BYTES


@njit(**PIECE)
def backward(table: int, thread: int) -> None:
    """This thread's parts of the rows."""
    p = longs(table, PASS)
    groups = p[Pass.ROWS] // LANES
    for part in range(thread, PARTS, p[Pass.THREADS]):
        for group in range(part * groups // PARTS, (part + 1) * groups // PARTS):
            backward_group(table, thread, group, part)


@njit(**PIECE)
def backward_group(table: int, thread: int, group: int, part: int) -> None:
    """16 rows through all nets, whose slopes at the rows add up."""
    p = longs(table, PASS)
    inner, of_x = p[Pass.INNER], p[Pass.SCRATCH] + thread * p[Pass.SCRATCH_SIZE]
    clear(of_x, inner)
    for number in range(p[Pass.NETS]):
        answer, scratch = p[Pass.ANSWERS] + 8 * ANSWER * number, of_x + inner * BYTES
        count = longs(answer, ANSWER)[Answer.OUTPUTS]
        to_lanes(longs(answer, ANSWER)[Answer.SLOPE_OUT] + 4 * LANES * group * count, count, scratch, count)
        below = slopes_of(answer, scratch, group, part, p[Pass.ROWS], scratch + count * BYTES)
        if p[Pass.SLOPE_X]:
            first = longs(longs(answer, ANSWER)[Answer.LAYERS], LAYER)
            add_product(first[Layer.WEIGHT], 1, inner, below, of_x, inner, first[Layer.WIDTH])
    if p[Pass.SLOPE_X]:
        to_rows(of_x, p[Pass.SLOPE_X] + 4 * LANES * group * inner, inner, inner)


@njit(**PIECE)
def slopes_of(answer: int, out: int, group: int, part: int, rows: int, scratch: int) -> int:
    """Slopes of all layers of one net for 16 rows, where those of the first lie; sums are added to those of a part.

    `out` are those of its answers, vectors.
    """
    a = longs(answer, ANSWER)
    hidden, layers, first = a[Answer.HIDDEN], a[Answer.HIDDEN] + a[Answer.HEAD], LANES * group
    net = longs(a[Answer.LAYERS], LAYER * layers)
    width, slope, other = net[Layer.WIDTH], scratch, scratch + net[Layer.WIDTH] * BYTES
    if a[Answer.HEAD]:
        clear(slope, width)
        add_product(net[LAYER * hidden + Layer.WEIGHT], 1, width, out, slope, width, a[Answer.OUTPUTS])
    else:
        copy(out, slope, width)
    for layer in range(hidden - 1, -1, -1):
        at, sums = LAYER * layer, a[Answer.SLOPE_SCALES] + (layer * PARTS + part) * width * BYTES
        slope_of_norm_silu(slope, net[at + Layer.SCALE], kept_of(answer, layer, group, rows, width), sums, width)
        to_rows(slope, a[Answer.SLOPES] + 4 * (layer * rows + first) * width, width, width)
        if layer:
            clear(other, width)
            add_product(net[at + Layer.WEIGHT], 1, width, slope, other, width, width)
            slope, other = other, slope
    return slope
