"""A whole network forward and backward over one tile of samples, and what it reads: features and parameters.

Activations lie row by row, one sample after the other, layer behind layer; the outputs of a head lie output by output,
so that losses find neighbouring samples in neighbouring lanes.
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.frame import ENTRIES, LAYER_ROW, LIVES, TENSOR_ROW, TILE, At
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, doubles, floats, ints, longs
from stride.agents.engines.fused_cpu.kernels.lanes import dot16, transpose16
from stride.agents.engines.plan.layout import LANES, Entry, Layer
from stride.agents.engines.plan.numbers import Live
from stride.utils.kernel_cache import njit


@njit(**PIECE)
def encode(frame: int, base: int, order: int, first: int, count: int, x: int) -> None:
    """Features of `count` observations at `base` to x [count, ROW]: those of order[first:], or in their own order if 0.

    Reads CENTRE, SCALE; an order below 0 is the complement of a row of FINAL_OBS. Rows of x up to the next whole vector
    of samples become zero.
    """
    f = longs(frame, ENTRIES)
    size, width, stride = f[At.FEATURES], f[At.OBS_WIDTH], f[At.ROW]
    centre, scale = floats(f[At.CENTRE], size), floats(f[At.SCALE], size)
    bound = np.float32(doubles(f[At.LIVE], LIVES)[Live.BOUND])
    for s in range(count):
        row, table = first + s, base
        if order:
            row = int(ints(order + 4 * (first + s), 1)[0])
            if row < 0:
                row, table = ~row, f[At.FINAL_OBS]
        out = floats(x + 4 * s * stride, size)
        if width:
            seen = floats(table + 4 * row * width, size)
            for k in range(size):
                value = (seen[k] - centre[k]) * scale[k]
                value = -bound if value < -bound else value
                out[k] = bound if value > bound else value
        else:
            for k in range(size):
                out[k] = 0.0
            out[longs(table + 8 * row, 1)[0]] = 1.0
    rest = floats(x + 4 * count * stride, (-count % LANES) * stride)
    for k in range(rest.size):
        rest[k] = 0.0


@njit(**PIECE)
def forward(frame: int, net: int, x: int, hidden: int, samples: int, out: int) -> None:
    """Writes outputs [outputs, TILE] of net number `net` for x [samples, ROW]; its activations stay in `hidden`.

    Reads PARAMETERS and TURNED. Of the last vector of outputs only the lanes of samples mean something.
    """
    f = longs(frame, ENTRIES)
    layers, parameters = f[At.LAYERS], f[At.PARAMETERS]
    table = longs(f[At.NET_TABLE] + 8 * net * (layers + 1) * LAYER_ROW, (layers + 1) * LAYER_ROW)
    seen, row = x, f[At.ROW]
    for i in range(layers):
        at = i * LAYER_ROW
        weight = f[At.TURNED] + 4 * table[at + Layer.TURNED] if i else parameters + 4 * table[at + Layer.WEIGHT]
        target, width = hidden + 4 * TILE * table[at + Layer.HIDDEN], table[at + Layer.WIDTH]
        bias = parameters + 4 * table[at + Layer.BIAS]
        call(f[At.FORWARD_LAYER], (seen, row, weight, bias, target, samples, width, table[at + Layer.INNER]))
        seen, row = target, width
    at = layers * LAYER_ROW
    for o in range(table[at + Layer.WIDTH]):
        weight = parameters + 4 * (table[at + Layer.WEIGHT] + o * row)
        for m in range(0, samples, LANES):
            bias = parameters + 4 * (table[at + Layer.BIAS] + o)
            dot16(seen + 4 * m * row, row, weight, row, out + 4 * (o * TILE + m), bias)


@njit(**PIECE)
def backward(
    frame: int, net: int, x: int, hidden: int, samples: int, slope: int, gradient: int, one: int, above: int, below: int
) -> None:
    """Add to `gradient` what slope [outputs, TILE] at the head asks for; `above`, `below` [TILE, widest] are scratch.

    With slope d at a layer W x + b: to W goes sum d x^T, to b sum d, and below it the slope is W^T d act', which the
    activation x itself says. `samples` is a whole number of vectors; those that do not count have slope 0. `one` is the
    address of a 1.0: a matrix of it, by strides of 0, makes b of hidden layers with the product that makes W.
    """
    f = longs(frame, ENTRIES)
    layers, parameters, add, down = f[At.LAYERS], f[At.PARAMETERS], f[At.ACCUMULATE], f[At.BACKWARD_LAYER]
    table = longs(f[At.NET_TABLE] + 8 * net * (layers + 1) * LAYER_ROW, (layers + 1) * LAYER_ROW)
    at = layers * LAYER_ROW
    outputs, width = table[at + Layer.WIDTH], table[at + Layer.INNER]
    activation = hidden + 4 * TILE * table[at - LAYER_ROW + Layer.HIDDEN]
    weight = 4 * table[at + Layer.WEIGHT]
    call(add, (slope, TILE, 1, activation, gradient + weight, outputs, width, samples))
    biases = floats(gradient + 4 * table[at + Layer.BIAS], outputs)
    for o in range(outputs):
        total = np.float32(0.0)
        row = floats(slope + 4 * o * TILE, samples)
        for s in range(samples):
            total += row[s]
        biases[o] += total
    call(down, (slope, 1, TILE, parameters + weight, activation, above, samples, width, outputs))
    for i in range(layers - 1, -1, -1):
        at = i * LAYER_ROW
        inner, width = table[at + Layer.INNER], table[at + Layer.WIDTH]
        weight = 4 * table[at + Layer.WEIGHT]
        call(add, (one, 0, 0, above, gradient + 4 * table[at + Layer.BIAS], 1, width, samples))
        if i == 0:
            call(add, (x, 1, f[At.ROW], above, gradient + weight, inner, width, samples))
        else:
            activation = hidden + 4 * TILE * table[at - LAYER_ROW + Layer.HIDDEN]
            call(add, (above, 1, width, activation, gradient + weight, width, inner, samples))
            call(down, (above, width, 1, parameters + weight, activation, below, samples, inner, width))
            above, below = below, above


@njit(**PIECE)
def to_inputs(
    frame: int, net: int, hidden: int, samples: int, slope: int, first: int, count: int, out: int, zero: int,
    above: int, below: int,
) -> None:  # fmt: skip
    """out [count, TILE]: what slope [outputs, TILE] at the head means for the inputs from number `first` on.

    No weight gets a gradient: so a policy learns from critics that stay. `zero` is the address of a 0.0, the bias of
    what has none.
    """
    f = longs(frame, ENTRIES)
    layers, parameters, down = f[At.LAYERS], f[At.PARAMETERS], f[At.BACKWARD_LAYER]
    table = longs(f[At.NET_TABLE] + 8 * net * (layers + 1) * LAYER_ROW, (layers + 1) * LAYER_ROW)
    slope_row, slope_inner = 1, TILE
    for i in range(layers, 0, -1):
        at = i * LAYER_ROW
        inner, width = table[at + Layer.INNER], table[at + Layer.WIDTH]
        activation = hidden + 4 * TILE * table[at - LAYER_ROW + Layer.HIDDEN]
        weight = parameters + 4 * table[at + Layer.WEIGHT]
        call(down, (slope, slope_row, slope_inner, weight, activation, above, samples, inner, width))
        slope, slope_row, slope_inner = above, inner, 1
        above, below = below, above
    width = table[Layer.WIDTH]
    for k in range(count):
        weight = parameters + 4 * (table[Layer.WEIGHT] + (first + k) * width)
        for m in range(0, samples, LANES):
            dot16(slope + 4 * m * width, width, weight, width, out + 4 * (k * TILE + m), zero)


@njit(**PIECE)
def turn(frame: int, net: int, share: int, shares: int) -> None:
    """Renew from PARAMETERS a share of TURNED: a net's hidden layers, transposed, which `forward` reads."""
    f = longs(frame, ENTRIES)
    layers = f[At.LAYERS]
    table = longs(f[At.NET_TABLE] + 8 * net * (layers + 1) * LAYER_ROW, (layers + 1) * LAYER_ROW)
    for i in range(1, layers):
        at = i * LAYER_ROW
        inner, width = table[at + Layer.INNER], table[at + Layer.WIDTH]
        source, target = f[At.PARAMETERS] + 4 * table[at + Layer.WEIGHT], f[At.TURNED] + 4 * table[at + Layer.TURNED]
        for n in range(LANES * share, width, LANES * shares):
            for k in range(0, inner, LANES):
                transpose16(source + 4 * (n * inner + k), inner, target + 4 * (k * width + n), width)


@njit(inline="always")
def temperature(frame: int) -> float:
    """What weighs the entropy: learnt, or as it is set."""
    f = longs(frame, ENTRIES)
    alpha = doubles(f[At.LIVE], LIVES)[Live.ENTROPY]
    if f[At.LEARNT_ALPHA]:
        alpha = math.exp(np.float64(floats(f[At.PARAMETERS] + 4 * f[At.LOG_ALPHA], 1)[0]))
    return alpha


@njit(**PIECE)
def fetch_parameters(frame: int) -> None:
    """Torch's parameters and moments, by TENSOR_TABLE, into PARAMETERS and moments; the padding between stays 0."""
    _exchange(frame, True)


@njit(**PIECE)
def give_parameters(frame: int) -> None:
    """PARAMETERS and moments into torch's."""
    _exchange(frame, False)


@njit(**PIECE)
def _exchange(frame: int, inwards: bool) -> None:
    f = longs(frame, ENTRIES)
    for i in range(f[At.TENSORS]):
        row = longs(f[At.TENSOR_TABLE] + 8 * i * TENSOR_ROW, TENSOR_ROW)
        for theirs, ours in (
            (row[Entry.VALUE], f[At.PARAMETERS]),
            (row[Entry.FIRST], f[At.FIRST_MOMENT]),
            (row[Entry.SECOND], f[At.SECOND_MOMENT]),
        ):
            at, step, columns = ours + 4 * row[Entry.OFFSET], row[Entry.COLUMN], row[Entry.COLUMNS]
            for r in range(row[Entry.ROWS]):
                theirs_r, ours_r = theirs + 4 * r * columns, at + 4 * r * row[Entry.ROW]
                if inwards:
                    _copy(ours_r, step, theirs_r, 1, columns)
                else:
                    _copy(theirs_r, 1, ours_r, step, columns)


@njit(**PIECE)
def _copy(target: int, step: int, source: int, source_step: int, count: int) -> None:
    to, given = floats(target, (count - 1) * step + 1), floats(source, (count - 1) * source_step + 1)
    if step == 1 and source_step == 1:
        for i in range(count):
            to[i] = given[i]
    else:
        for i in range(count):
            to[i * step] = given[i * source_step]
