"""Nets of a world model over many rows: hidden layers and a head, there and back, 16 rows side by side.

A layer is Linear without a bias, RMSNorm, SiLU, as in agents/networks/normed.py; a head is Linear. N is a multiple of
16. What weights' gradients are made of is left as rows, inputs and slopes of each layer, for one product over all of
them. Sums over rows are made of PARTS pieces, whoever makes them, so that results do not depend on threads.
"""

from agents.engines.fused_cpu.kernels.calls import PIECE, floats, longs
from agents.engines.fused_cpu.kernels.model_cell import add_product, clear, norm_silu, to_lanes, to_rows
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


class Pass(Count):
    """The table of a pass, int64: counts, then addresses. Hidden layers are W wide, the last one answers I inputs."""

    NET = auto()  # [HIDDEN + HEAD, Layer]
    HIDDEN = auto()  # layers, at least 1
    HEAD = auto()  # 1 where there is one
    ROWS = auto()  # N
    THREADS = auto()
    X = auto()  # [N, I]
    OUT = auto()  # [N, O] of the head
    ABOVE = auto()  # [HIDDEN, N, W] what hidden layers answer
    KEPT = auto()  # [HIDDEN, N / 16, W + 1, 16] normed inputs, and rates
    SLOPE_OUT = auto()  # [N, O], or [N, W] without a head
    SLOPE_X = auto()  # [N, I]; 0: nobody asks
    SLOPES = auto()  # [HIDDEN, N, W] at the sums of hidden layers
    SLOPE_SCALES = auto()  # [HIDDEN, PARTS, W, 16], zeros at first
    SCRATCH = auto()
    SCRATCH_SIZE = auto()  # bytes of a thread


LAYER, PASS = len(Layer), len(Pass)


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
    scratch = p[Pass.SCRATCH] + thread * p[Pass.SCRATCH_SIZE]
    for group in range(thread, p[Pass.ROWS] // LANES, p[Pass.THREADS]):
        forward_group(table, group, scratch)


@njit(**PIECE)
def forward_group(table: int, group: int, scratch: int) -> None:
    """16 rows."""
    p = longs(table, PASS)
    hidden, rows = p[Pass.HIDDEN], p[Pass.ROWS]
    net, first = longs(p[Pass.NET], LAYER * (hidden + p[Pass.HEAD])), 4 * LANES * group
    inner, width = net[Layer.INNER], net[Layer.WIDTH]
    below, above, spare = scratch, scratch + inner * BYTES, scratch + (inner + width) * BYTES
    to_lanes(p[Pass.X] + first * inner, inner, below, inner)
    for layer in range(hidden):
        at = LAYER * layer
        clear(above, width)
        add_product(net[at + Layer.WEIGHT], net[at + Layer.INNER], 1, below, above, width, net[at + Layer.INNER])
        norm_silu(above, net[at + Layer.SCALE], kept_of(table, layer, group, width), width)
        to_rows(above, p[Pass.ABOVE] + 4 * layer * rows * width + first * width, width, width)
        below, above, spare = above, spare, above
    if p[Pass.HEAD]:
        at = LAYER * hidden
        count, out = net[at + Layer.WIDTH], scratch + (inner + 2 * width) * BYTES
        head_of(net[at + Layer.WEIGHT], net[at + Layer.SCALE], width, count, below, out)
        to_rows(out, p[Pass.OUT] + first * count, count, count)


@njit(inline="always")
def kept_of(table: int, layer: int, group: int, width: int) -> int:
    """What a layer keeps of these rows."""
    p = longs(table, PASS)
    return p[Pass.KEPT] + (layer * (p[Pass.ROWS] // LANES) + group) * (width + 1) * BYTES


@njit(**PIECE)
def backward(table: int, thread: int) -> None:
    """This thread's parts of the rows."""
    p = longs(table, PASS)
    groups = p[Pass.ROWS] // LANES
    scratch = p[Pass.SCRATCH] + thread * p[Pass.SCRATCH_SIZE]
    for part in range(thread, PARTS, p[Pass.THREADS]):
        for group in range(part * groups // PARTS, (part + 1) * groups // PARTS):
            backward_group(table, group, part, scratch)


@njit(**PIECE)
def backward_group(table: int, group: int, part: int, scratch: int) -> None:
    """16 rows, whose sums are added to those of a part."""
    p = longs(table, PASS)
    hidden, rows = p[Pass.HIDDEN], p[Pass.ROWS]
    net, first = longs(p[Pass.NET], LAYER * (hidden + p[Pass.HEAD])), 4 * LANES * group
    inner, width = net[Layer.INNER], net[Layer.WIDTH]
    slope, other = scratch + inner * BYTES, scratch + (inner + width) * BYTES
    if p[Pass.HEAD]:
        at = LAYER * hidden
        count, out = net[at + Layer.WIDTH], scratch + (inner + 2 * width) * BYTES
        to_lanes(p[Pass.SLOPE_OUT] + first * count, count, out, count)
        clear(slope, width)
        add_product(net[at + Layer.WEIGHT], 1, width, out, slope, width, count)
    else:
        to_lanes(p[Pass.SLOPE_OUT] + first * width, width, slope, width)
    for layer in range(hidden - 1, -1, -1):
        at = LAYER * layer
        sums = p[Pass.SLOPE_SCALES] + (layer * PARTS + part) * width * BYTES
        slope_of_norm_silu(slope, net[at + Layer.SCALE], kept_of(table, layer, group, width), sums, width)
        to_rows(slope, p[Pass.SLOPES] + 4 * layer * rows * width + first * width, width, width)
        if layer:
            clear(other, width)
            add_product(net[at + Layer.WEIGHT], 1, width, slope, other, width, width)
            slope, other = other, slope
        elif p[Pass.SLOPE_X]:
            clear(scratch, inner)
            add_product(net[at + Layer.WEIGHT], 1, inner, slope, scratch, inner, width)
            to_rows(scratch, p[Pass.SLOPE_X] + first * inner, inner, inner)
