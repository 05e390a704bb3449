"""A complete network, forward and backward over one tile of samples; its features, and copies of its parameters.

Activations of a layer are [samples, width], one sample after the other, and the layers follow one another. Outputs of a
head are [outputs, TILE], one output after the other, so that losses find neighbouring samples in neighbouring lanes.
Addresses are in bytes: 4 * (number of floats).
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.frame import (
    TENSOR_ROW_BYTES,
    TILE,
    FrameFields,
    fields_at,
    layer_of,
    live_at,
    scratch_of,
    tensor_row_at,
)
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, floats, ints, longs
from stride.agents.engines.fused_cpu.kernels.lanes import dot16, transpose16
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit


@njit(**PIECE)
def encode(frame: int, base: int, order: int, first: int, count: int, x: int) -> None:
    """Write the features of `count` observations to x [count, row], ready for a network.

    Sample s is row order[first + s] of the observations at address `base`, or row first + s where `order` is 0. A
    negative order is the complement ~r of a row r of final_obs. A feature is (observation - centre) * scale, limited to
    +-bound; an observation that is an index becomes one-hot. Rows of x up to the next full vector of samples are 0.
    """
    f = fields_at(frame)
    size, width, stride = f.features, f.obs_width, f.row
    centre, scale = floats(f.centre, size), floats(f.scale, size)
    bound = np.float32(live_at(f.live).bound)
    for s in range(count):
        row, table = first + s, base
        if order:
            row = int(ints(order + 4 * (first + s), 1)[0])
            if row < 0:
                row, table = ~row, f.final_obs
        out = floats(x + 4 * s * stride, size)
        if width:
            source = floats(table + 4 * row * width, size)
            for k in range(size):
                value = (source[k] - centre[k]) * scale[k]
                value = -bound if value < -bound else value
                out[k] = bound if value > bound else value
        else:
            for k in range(size):
                out[k] = 0.0
            out[longs(table + 8 * row, 1)[0]] = 1.0
    filling = floats(x + 4 * count * stride, (-count % LANES) * stride)
    for k in range(filling.size):
        filling[k] = 0.0


@njit(**PIECE)
def forward(frame: int, net: int, x: int, hidden: int, samples: int, out: int) -> None:
    """Write the outputs [outputs, TILE] of net number `net` for x [samples, row] to `out`, its activations to `hidden`.

    Reads parameters and turned. Where `samples` is not a multiple of 16, the lanes behind the last sample are garbage.
    """
    f = fields_at(frame)
    through_layers(f, net, x, f.row, 1, hidden, samples, out)


@njit(inline="always")
def through_layers(
    f: FrameFields, net: int, inputs: int, width: int, turned: int, hidden: int, samples: int, out: int
) -> None:
    """Compute the layers and the head of a net from inputs [samples, width].

    Layers from number `turned` on are read from their transposed copies, those before it from the parameters.
    """
    for i in range(f.layers):
        layer = layer_of(f, net, i)
        # f.turned is in panels of 16 columns, each [inner, 16], so that a product reads memory from end to end
        weight, row, vector = f.turned + 4 * layer.turned, LANES, LANES * layer.inner
        if i < turned:
            weight, row, vector = f.parameters + 4 * layer.weight, layer.width, LANES
        target = hidden + 4 * TILE * layer.hidden
        out_of_layer = target + 4 * TILE * f.raw if layer.normed else target
        bias = f.parameters + 4 * layer.bias
        call(
            f.forward_layer,
            (inputs, width, weight, row, vector, bias, out_of_layer, samples, layer.width, layer.inner),
        )
        if layer.normed:
            call(f.norm, (out_of_layer, bias, target, samples, layer.width, layer.normed))
        inputs, width = target, layer.width
    through_head(f, net, inputs, width, samples, out)


@njit(inline="always")
def through_head(f: FrameFields, net: int, inputs: int, width: int, samples: int, out: int) -> None:
    """Compute the head of a net from the last activations [samples, width]."""
    head = layer_of(f, net, f.layers)
    for o in range(head.width):
        weight = f.parameters + 4 * (head.weight + o * width)
        bias = f.parameters + 4 * (head.bias + o)
        for m in range(0, samples, LANES):
            dot16(inputs + 4 * m * width, width, weight, width, out + 4 * (o * TILE + m), bias)


@njit(**PIECE)
def backward(frame: int, thread: int, part: int, net: int, x: int, hidden: int, samples: int, slope: int) -> None:
    """Add to this part's `partial` the gradient of a net, from the slopes `slope` [outputs, TILE] at its head.

    For a layer W x + b with slopes d: the gradient of W is sum d x^T, that of b is sum d, and the slope before it is
    (W^T d) act', where act' follows from the activation x. `samples` is a multiple of 16; filling has slope 0. The
    gradient of a hidden layer's b is the same product as that of W, with a matrix of ones: the 1.0 in scratch, read
    with strides of 0.
    """
    f = fields_at(frame)
    back_through_layers(f, thread, part, net, x, 0, hidden, samples, slope)


@njit(inline="always")
def back_through_layers(
    f: FrameFields, thread: int, part: int, net: int, x: int, picture: int, hidden: int, samples: int, slope: int
) -> int:
    """Add the gradients of head and layers to `partial`.

    `picture`: address of the activations of the last convolution, which the first layer reads. The result is then
    the address of the slopes at them, scratch.above or scratch.below. Where `picture` is 0 the first layer reads x, at
    which no slope is needed.
    """
    scratch, gradient = scratch_of(f, thread), f.partial + 4 * part * f.size
    above, below = scratch.above, scratch.below
    head, layer = layer_of(f, net, f.layers), layer_of(f, net, f.layers - 1)
    outputs, width = head.width, head.inner
    activation = hidden + 4 * TILE * layer.hidden
    learn_head(f, net, gradient, activation, slope, samples)
    weight = f.parameters + 4 * head.weight
    call(f.backward_layer, (slope, 1, TILE, weight, activation, above, samples, width, outputs))
    return back_through_hidden(f, thread, part, net, f.layers - 1, x, picture, hidden, samples, above, below)


@njit(inline="always")
def learn_head(f: FrameFields, net: int, gradient: int, activation: int, slope: int, samples: int) -> None:
    """Add the gradient of a head to `gradient`, from its inputs `activation` and the slopes at its outputs."""
    head = layer_of(f, net, f.layers)
    outputs = head.width
    call(f.accumulate, (slope, TILE, 1, activation, gradient + 4 * head.weight, outputs, head.inner, samples))
    biases = floats(gradient + 4 * head.bias, outputs)
    for o in range(outputs):
        total = np.float32(0.0)
        row = floats(slope + 4 * o * TILE, samples)
        for s in range(samples):
            total += row[s]
        biases[o] += total


@njit(inline="always")
def back_through_hidden(
    f: FrameFields, thread: int, part: int, net: int, last: int, x: int, picture: int, hidden: int, samples: int,
    above: int, below: int,
) -> int:  # fmt: skip
    """Add the gradients of the hidden layers from number `last` down to 0.

    `above`: the slopes at layer `last`, before its activation function; `below` is memory for the slopes at the layer
    before it. `picture` and the result are those of back_through_layers.
    """
    scratch, gradient = scratch_of(f, thread), f.partial + 4 * part * f.size
    for i in range(last, -1, -1):
        layer = layer_of(f, net, i)
        inner, width = layer.inner, layer.width
        to_weight = gradient + 4 * layer.weight
        if layer.normed:
            raw, at = hidden + 4 * TILE * (f.raw + layer.hidden), 4 * layer.bias
            call(f.norm_back, (above, raw, f.parameters + at, gradient + at, samples, width, layer.normed))
        call(f.accumulate, (scratch.one, 0, 0, above, gradient + 4 * layer.bias, 1, width, samples))
        if i == 0 and picture == 0:
            call(f.accumulate, (x, 1, f.row, above, to_weight, inner, width, samples))
        else:
            activation = picture
            if i > 0:
                activation = hidden + 4 * TILE * layer_of(f, net, i - 1).hidden
            weight = f.parameters + 4 * layer.weight
            call(f.accumulate, (above, 1, width, activation, to_weight, width, inner, samples))
            call(f.backward_layer, (above, width, 1, weight, activation, below, samples, inner, width))
            above, below = below, above
    return above


@njit(**PIECE)
def to_inputs(frame: int, thread: int, net: int, hidden: int, samples: int, slope: int, out: int) -> None:
    """Write to `out` [A, TILE] the slopes at a net's action inputs, from the slopes [outputs, TILE] at its head.

    No weight gets a gradient: a policy learns through critics, which it must not change.
    """
    f = fields_at(frame)
    scratch = scratch_of(f, thread)
    above, below = scratch.above, scratch.below
    zero = scratch.one + 4  # address of 0.0, the bias of products without one
    slope_row, slope_inner = 1, TILE
    for i in range(f.layers, 0, -1):
        layer = layer_of(f, net, i)
        inner, width = layer.inner, layer.width
        activation = hidden + 4 * TILE * layer_of(f, net, i - 1).hidden
        weight = f.parameters + 4 * layer.weight
        call(f.backward_layer, (slope, slope_row, slope_inner, weight, activation, above, samples, inner, width))
        slope, slope_row, slope_inner = above, inner, 1
        above, below = below, above
    first = layer_of(f, net, 0)
    width = first.width
    for k in range(f.actions):
        weight = f.parameters + 4 * (first.weight + (f.features + k) * width)
        for m in range(0, samples, LANES):
            dot16(slope + 4 * m * width, width, weight, width, out + 4 * (k * TILE + m), zero)


@njit(**PIECE)
def turn(frame: int, net: int, worker: int, workers: int) -> None:
    """Renew a net's transposed layers in `turned` from `parameters`; this is share `worker` of `workers` of the work.

    A layer [width, inner] becomes width / 16 panels [inner, 16], one after the other. The first layer is not in
    `turned`, as it is stored [inner, width] in the parameters.
    """
    f = fields_at(frame)
    turn_layers(f, net, 1, worker, workers)


@njit(inline="always")
def turn_layers(f: FrameFields, net: int, first: int, worker: int, workers: int) -> None:
    """Renew the transposed layers of a net from number `first` on, a worker's share of them."""
    for i in range(first, f.layers):
        layer = layer_of(f, net, i)
        inner, width = layer.inner, layer.width
        source, target = f.parameters + 4 * layer.weight, f.turned + 4 * layer.turned
        for n in range(LANES * worker, width, LANES * workers):
            for k in range(0, inner, LANES):
                transpose16(source + 4 * (n * inner + k), inner, target + 4 * (n * inner + k * LANES), LANES)


@njit(inline="always")
def temperature(f: FrameFields) -> float:
    """Return the coefficient of the entropy in the loss (alpha): the learnt one, or the one that is set."""
    alpha = live_at(f.live).entropy
    if f.learnt_alpha:
        alpha = math.exp(np.float64(floats(f.parameters + 4 * f.log_alpha, 1)[0]))
    return alpha


@njit(inline="always")
def moves_actor(f: FrameFields, number: int) -> bool:
    """Return whether update `number` of those that were drawn also changes a delayed actor and all targets."""
    return f.actor_every > 0 and (int(live_at(f.live).made) + number + 1) % f.actor_every == 0


@njit(**PIECE)
def fetch_parameters(frame: int) -> None:
    """Copy torch's parameters and moments to the flat memory, by tensor_table; padding between them stays 0."""
    _exchange(frame, True)


@njit(**PIECE)
def give_parameters(frame: int) -> None:
    """Copy parameters and moments from the flat memory back to torch's tensors."""
    _exchange(frame, False)


@njit(**PIECE)
def _exchange(frame: int, inwards: bool) -> None:
    """Copy row by row, to the flat memory (inwards) or to torch's."""
    f = fields_at(frame)
    for i in range(f.tensors):
        tensor = tensor_row_at(f.tensor_table + TENSOR_ROW_BYTES * i)
        columns = tensor.columns
        for torch_at, flat in (
            (tensor.value, f.parameters),
            (tensor.first, f.first_moment),
            (tensor.second, f.second_moment),
        ):
            if torch_at == 0:  # a target net has no moments
                continue
            for r in range(tensor.rows):
                source, target = torch_at + 4 * r * columns, flat + 4 * (tensor.offset + r * tensor.row)
                step, target_step = 1, tensor.column
                if not inwards:
                    source, target, step, target_step = target, source, target_step, step
                _copy(target, target_step, source, step, columns)


@njit(**PIECE)
def _copy(target: int, target_step: int, source: int, step: int, count: int) -> None:
    """Copy `count` floats; the steps are floats from one number to the next."""
    to, values = floats(target, (count - 1) * target_step + 1), floats(source, (count - 1) * step + 1)
    if target_step == 1 and step == 1:
        for i in range(count):
            to[i] = values[i]
    else:
        for i in range(count):
            to[i * target_step] = values[i * step]
