"""Networks that read pictures: convolutions, forward and backward, before the layers of nets.py.

A picture is stored pixel by pixel, row by row, with the channels of a pixel next to one another. What a filter sees at
a pixel, its patch, is then a few runs of neighbouring floats. `_see` copies the patches of all pixels of one sample
next to one another, so that a convolution is a product of layers.py: patches [pixels, side * side * channels] by
weights [side * side * channels, filters]. One sample at a time stays in the level 1 cache, and its sums do not depend
on other samples.
"""

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, FrameFields, conv_of, fields_at, scratch_of
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, flags, floats, ints
from stride.agents.engines.fused_cpu.kernels.lanes import transpose16
from stride.agents.engines.fused_cpu.kernels.nets import back_through_layers, through_layers, turn_layers
from stride.agents.engines.fused_cpu.kernels.vectors import load, store
from stride.agents.engines.plan.layout import LANES, ConvRow
from stride.utils.kernel_cache import njit

F = np.float32


@njit(**PIECE)
def encode(frame: int, base: int, order: int, first: int, count: int, x: int) -> None:
    """Write `count` pictures to x [count, row], pixel by pixel; nets.encode says which rows `base` and `order` mean.

    Bytes are divided by `highest`, floats stay as they are. Rows of x up to the next full vector of samples are 0.
    """
    f = fields_at(frame)
    size, channels = f.features, conv_of(f, 0, 0).channels
    pixels = size // channels
    highest = F(f.highest)
    for s in range(count):
        row, table = first + s, base
        if order:
            row = int(ints(order + 4 * (first + s), 1)[0])
            if row < 0:
                row, table = ~row, f.final_obs
        out = floats(x + 4 * s * f.row, size)
        if f.highest:
            levels = flags(table + row * size, size)
            for k in range(pixels):
                for c in range(channels):
                    out[k * channels + c] = F(levels[c * pixels + k]) / highest
        elif f.planar:
            planes = floats(table + 4 * row * size, size)
            for k in range(pixels):
                for c in range(channels):
                    out[k * channels + c] = planes[c * pixels + k]
        else:
            source = floats(table + 4 * row * size, size)
            for k in range(size):
                out[k] = source[k]
    _clear(x + 4 * count * f.row, (-count % LANES) * f.row)


@njit(inline="always")
def _clear(address: int, count: int) -> None:
    """Set `count` floats to 0."""
    values = floats(address, count)
    for k in range(count):
        values[k] = F(0.0)


@njit(inline="always")
def _see(source: int, across: int, channels: int, side: int, rows: int, columns: int, out: int) -> None:
    """Write the patches of rows x columns pixels to out [rows * columns, side * side * channels].

    `across`: pixels of a row of the picture; a filter has side x side pixels. Full vectors are copied, in order: the
    next run overwrites what a copy has written too much, and behind the last run there is room for one vector.
    """
    run, line = side * channels, across * channels
    vectors = (run + LANES - 1) // LANES
    for y in range(rows):
        for x in range(columns):
            begin = source + 4 * (y * line + x * channels)
            for _ in range(side):
                store(out, 0, load(begin, 0))
                for v in range(1, vectors):
                    store(out, v, load(begin, v))
                out += 4 * run
                begin += 4 * line


@njit(**PIECE)
def convolve(frame: int, net: int, x: int, hidden: int, samples: int) -> None:
    """Write the activations of a net's convolutions to `hidden`, for pictures x [samples, row]; reads parameters."""
    f = fields_at(frame)
    patches = hidden + 4 * TILE * f.patches
    source, source_row = x, f.row
    for number in range(f.convs):
        conv = conv_of(f, net, number)
        rows, columns = conv.height - conv.side + 1, conv.across - conv.side + 1
        inner = conv.side * conv.side * conv.channels
        weight, bias = f.parameters + 4 * conv.weight, f.parameters + 4 * conv.bias
        target = hidden + 4 * TILE * conv.hidden
        for s in range(samples):
            _see(source + 4 * s * source_row, conv.across, conv.channels, conv.side, rows, columns, patches)
            activation = target + 4 * s * conv.row
            out = activation + 4 * TILE * f.raw if conv.normed else activation
            call(
                f.forward_layer,
                (patches, inner, weight, conv.filters, LANES, bias, out, rows * columns, conv.filters, inner),
            )
            if conv.normed:
                call(f.norm, (out, bias, activation, rows * columns, conv.filters, conv.normed))
        source, source_row = target, conv.row


@njit(**PIECE)
def convolve_back(
    frame: int, thread: int, part: int, net: int, x: int, hidden: int, samples: int, slope: int, spare: int
) -> None:
    """Add the gradients of a net's convolutions to this part's `partial`, from the last convolution to the first.

    `slope` [samples, row]: the slopes at the activations of the last convolution. `spare`: memory of the same size, for
    the slopes at the convolution before it.
    """
    f = fields_at(frame)
    gradient, one = f.partial + 4 * part * f.size, scratch_of(f, thread).one
    patches = hidden + 4 * TILE * f.patches
    for number in range(f.convs - 1, -1, -1):
        conv = conv_of(f, net, number)
        rows, columns = conv.height - conv.side + 1, conv.across - conv.side + 1
        inner = conv.side * conv.side * conv.channels
        source, source_row = x, f.row
        if number > 0:
            before = conv_of(f, net, number - 1)
            source, source_row = hidden + 4 * TILE * before.hidden, before.row
        if conv.normed:
            _back_through_norm(f, conv, hidden, samples, slope, gradient)
        # the biases' gradient: slopes are summed over samples, then over pixels; `patches` is free for the first sums
        _clear(patches, conv.row)
        call(f.accumulate, (one, 0, 0, slope, patches, 1, conv.row, samples))
        call(f.accumulate, (one, 0, 0, patches, gradient + 4 * conv.bias, 1, conv.filters, rows * columns))
        to_weight = gradient + 4 * conv.weight
        for s in range(samples):
            _see(source + 4 * s * source_row, conv.across, conv.channels, conv.side, rows, columns, patches)
            here = slope + 4 * s * conv.row
            call(f.accumulate, (patches, 1, inner, here, to_weight, inner, conv.filters, rows * columns))
        if number > 0:
            _slopes_below(f, conv, hidden, samples, slope, source, source_row, spare)
            slope, spare = spare, slope


@njit(inline="always")
def _back_through_norm(f: FrameFields, conv: ConvRow, hidden: int, samples: int, slope: int, gradient: int) -> None:
    """Replace the slopes [samples, row] after a convolution's layer norm by those before it; add its gradients."""
    pixels = (conv.height - conv.side + 1) * (conv.across - conv.side + 1)
    raw, bias = hidden + 4 * TILE * (f.raw + conv.hidden), f.parameters + 4 * conv.bias
    for s in range(samples):
        at = 4 * s * conv.row
        to_bias = gradient + 4 * conv.bias
        call(f.norm_back, (slope + at, raw + at, bias, to_bias, pixels, conv.filters, conv.normed))


@njit(inline="always")
def _slopes_below(
    f: FrameFields, conv: ConvRow, hidden: int, samples: int, slope: int, activation: int, row: int, out: int
) -> None:
    """Write to out [samples, row] the slopes at the activations [samples, row] that a convolution reads.

    An input pixel is part of the patches of the pixels up to side - 1 above and to the left of it, each time with
    another weight. So this is again a convolution: of the slopes with side - 1 zeros around them, by the filters from
    back to front.
    """
    patches, bordered = hidden + 4 * TILE * f.patches, hidden + 4 * TILE * f.bordered
    border, filters = conv.side - 1, conv.filters
    rows, columns, across = conv.height - border, conv.across - border, conv.across + border
    inner = conv.side * conv.side * filters
    weight = f.turned + 4 * conv.turned
    _clear(bordered, (conv.height + border) * across * filters)
    for s in range(samples):
        here = slope + 4 * s * conv.row
        for y in range(rows):
            begin = bordered + 4 * ((y + border) * across + border) * filters
            for v in range(columns * filters // LANES):
                store(begin, v, load(here + 4 * y * columns * filters, v))
        _see(bordered, across, filters, conv.side, conv.height, conv.across, patches)
        at = 4 * s * row
        pixels = conv.height * conv.across
        call(f.backward_layer, (patches, inner, 1, weight, activation + at, out + at, pixels, conv.channels, inner))


@njit(**PIECE)
def forward(frame: int, net: int, x: int, hidden: int, samples: int, out: int) -> None:
    """Write outputs and activations as nets.forward does, with convolutions before the first layer."""
    f = fields_at(frame)
    call(f.convolve, (frame, net, x, hidden, samples))
    last = conv_of(f, net, f.convs - 1)
    through_layers(f, net, hidden + 4 * TILE * last.hidden, last.row, 0, hidden, samples, out)


@njit(**PIECE)
def backward(frame: int, thread: int, part: int, net: int, x: int, hidden: int, samples: int, slope: int) -> None:
    """Add the gradient of a net as nets.backward does, with convolutions before the first layer."""
    f = fields_at(frame)
    scratch = scratch_of(f, thread)
    picture = hidden + 4 * TILE * conv_of(f, net, f.convs - 1).hidden
    at_picture = back_through_layers(f, thread, part, net, x, picture, hidden, samples, slope)
    spare = scratch.below if at_picture == scratch.above else scratch.above
    call(f.convolve_back, (frame, thread, part, net, x, hidden, samples, at_picture, spare))


@njit(**PIECE)
def turn(frame: int, net: int, worker: int, workers: int) -> None:
    """Renew a net's transposed weights as nets.turn does, also those of its first layer and its convolutions.

    A convolution's filters are transposed to [pixels, filters, channels], with the pixels from back to front, as
    `_slopes_below` needs them. The first convolution passes no slope on, so it has no copy.
    """
    f = fields_at(frame)
    turn_layers(f, net, 0, worker, workers)
    for number in range(1, f.convs):
        conv = conv_of(f, net, number)
        channels, filters, pixels = conv.channels, conv.filters, conv.side * conv.side
        for k in range(worker, pixels, workers):
            source = f.parameters + 4 * (conv.weight + k * channels * filters)
            target = f.turned + 4 * (conv.turned + (pixels - 1 - k) * filters * channels)
            for c in range(0, channels, LANES):
                for o in range(0, filters, LANES):
                    transpose16(source + 4 * (c * filters + o), filters, target + 4 * (o * channels + c), channels)
