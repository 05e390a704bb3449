"""Nets whose last layers are minGRU (agents/networks/mingru.py): a step of many worlds, or complete sequences.

Gate and candidate depend on the input alone, so a layer's product is made of all samples of a tile at once, then its
states one after the other. In front of a tile's activations is said what precedes each sample: FOLLOWS the state of the
sample before it, FIRST none, as an episode begins there, else the state of a world in `carry`. The tile before is
stored right in front of a tile. A layer has gates and candidates [TILE, 2 * width], then states, then outputs: states
themselves in the first one, in others what the layer read plus its states.
"""

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, FrameFields, fields_at, layer_of, scratch_of
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, flags, floats, ints
from stride.agents.engines.fused_cpu.kernels.nets import through_head
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import exp32, mul_add

F = np.float32
FIRST, FOLLOWS = -1, -2


@njit(inline="always")
def carried(f: FrameFields, net: int, cell: int, world: int, width: int) -> int:
    """The address of a state in `carry`; `world` from N on is room to work with."""
    return f.carry + 4 * ((net * f.cells + cell) * 2 * f.worlds + world) * width


@njit(inline="always")
def state_of(f: FrameFields, net: int, cell: int, hidden: int, sample: int) -> int:
    """The address of a sample's state in a tile; -1 is the last of the tile before."""
    layer = layer_of(f, net, f.layers - f.cells + cell)
    width = layer.width // 2
    state = hidden + 4 * TILE * (layer.hidden + layer.width)
    if sample < 0:
        return state - 4 * TILE * layer_of(f, net, f.layers).hidden + 4 * (TILE - 1) * width
    return state + 4 * sample * width


@njit(inline="always")
def state_before(f: FrameFields, net: int, cell: int, hidden: int, sample: int, code: int, width: int) -> int:
    """The address of the state that precedes a sample; of a FIRST one nobody reads it."""
    if code >= 0:
        return carried(f, net, cell, code, width)
    return state_of(f, net, cell, hidden, sample - 1 if code == FOLLOWS else sample)


@njit(inline="always")
def output_of(f: FrameFields, net: int, cell: int, hidden: int) -> int:
    """The address of a layer's outputs [TILE, width]."""
    layer = layer_of(f, net, f.layers - f.cells + cell)
    return hidden + 4 * TILE * (layer.hidden + layer.width + (layer.width // 2 if cell else 0))


@njit(**PIECE)
def remember(frame: int, net: int, cell: int, inputs: int, hidden: int, samples: int) -> None:
    """States and outputs of a layer from its products, which become gates and candidates.

    h = (1 - z) h' + z c; `inputs` [samples, width] of all layers but the first are added to it.
    """
    f = fields_at(frame)
    layer = layer_of(f, net, f.layers - f.cells + cell)
    width, codes = layer.width // 2, ints(hidden, samples)
    gates, outputs = hidden + 4 * TILE * layer.hidden, output_of(f, net, cell, hidden)
    for s in range(samples):
        z, c = floats(gates + 8 * s * width, width), floats(gates + 4 * (2 * s + 1) * width, width)
        h = floats(state_of(f, net, cell, hidden, s), width)
        before = floats(state_before(f, net, cell, hidden, s, codes[s], width), width)
        for j in range(width):
            z[j] = F(1.0) / (F(1.0) + exp32(-z[j]))
        if codes[s] == FIRST:
            for j in range(width):
                h[j] = z[j] * c[j]
        else:
            for j in range(width):
                h[j] = mul_add(F(1.0) - z[j], before[j], z[j] * c[j])
        if cell:
            source, out = floats(inputs + 4 * s * width, width), floats(outputs + 4 * s * width, width)
            for j in range(width):
                out[j] = source[j] + h[j]


@njit(**PIECE)
def forget(frame: int, net: int, cell: int, hidden: int, samples: int, above: int, later: int, below: int) -> None:
    """below [samples, 2 * width]: the slopes before a layer's gates and candidates, from those at its states, `above`.

    `later` [width]: what the sample behind the tile adds to the slope of the tile's last state; afterwards what the
    tile's first sample adds to the one before it.
    """
    f = fields_at(frame)
    layer = layer_of(f, net, f.layers - f.cells + cell)
    width, codes = layer.width // 2, ints(hidden, samples)
    gates, added = hidden + 4 * TILE * layer.hidden, floats(later, width)
    for s in range(samples - 1, -1, -1):
        z, c = floats(gates + 8 * s * width, width), floats(gates + 4 * (2 * s + 1) * width, width)
        of_gate, of_candidate = floats(below + 8 * s * width, width), floats(below + 4 * (2 * s + 1) * width, width)
        slope = floats(above + 4 * s * width, width)
        before = floats(state_before(f, net, cell, hidden, s, codes[s], width), width)
        is_first, flows = codes[s] == FIRST, F(1.0) if codes[s] == FOLLOWS else F(0.0)
        for j in range(width):
            total = slope[j] + added[j]
            old = F(0.0) if is_first else before[j]
            of_gate[j] = total * (c[j] - old) * (z[j] * (F(1.0) - z[j]))
            of_candidate[j] = total * z[j]
            added[j] = flows * (total * (F(1.0) - z[j]))


@njit(inline="always")
def through_cells(f: FrameFields, frame: int, net: int, x: int, hidden: int, samples: int) -> None:
    """All layers of a net but its head."""
    inputs, width, first_cell = x, f.row, f.layers - f.cells
    for i in range(f.layers):
        layer, kernel = layer_of(f, net, i), f.forward_layer
        weight, row, vector = f.turned + 4 * layer.turned, LANES, LANES * layer.inner
        if i == 0:
            weight, row, vector = f.parameters + 4 * layer.weight, layer.width, LANES
        if i >= first_cell:
            kernel = f.forward_cell
        target, bias = hidden + 4 * TILE * layer.hidden, f.parameters + 4 * layer.bias
        call(kernel, (inputs, width, weight, row, vector, bias, target, samples, layer.width, layer.inner))
        if i < first_cell:
            inputs, width = target, layer.width
        else:
            remember(frame, net, i - first_cell, inputs, hidden, samples)
            inputs, width = output_of(f, net, i - first_cell, hidden), layer.width // 2


@njit(inline="always")
def through_own_head(f: FrameFields, net: int, hidden: int, samples: int, out: int) -> None:
    """The head of a net, from the outputs of its last layer."""
    through_head(f, net, output_of(f, net, f.cells - 1, hidden), layer_of(f, net, f.layers).inner, samples, out)


@njit(**PIECE)
def forward(frame: int, net: int, x: int, hidden: int, samples: int, out: int) -> None:
    """As nets.forward; what precedes each sample is written in front of `hidden`. Reads carry, too."""
    f = fields_at(frame)
    through_cells(f, frame, net, x, hidden, samples)
    through_own_head(f, net, hidden, samples, out)


@njit(**PIECE)
def step(frame: int, thread: int, row: int, start: int, n: int) -> None:
    """The actor's outputs for the next step of n worlds from `start` on; all nets remember it, in `carry`.

    Row `row` of is_first is the first of theirs; scratch has their inputs.
    """
    f = fields_at(frame)
    scratch = scratch_of(f, thread)
    codes, begins = ints(scratch.hidden, n), flags(f.is_first + row, n)
    for s in range(n):
        codes[s] = np.int32(FIRST if begins[s] else start + s)
    for net in range(f.nets - 1, -1, -1):  # the actor last: outputs stay
        call(f.forward, (frame, net, scratch.x, scratch.hidden, n, scratch.outputs))
        for cell in range(f.cells):
            width = layer_of(f, net, f.layers - f.cells + cell).width // 2
            known = floats(carried(f, net, cell, start, width), n * width)
            states = floats(state_of(f, net, cell, scratch.hidden, 0), n * width)
            for k in range(n * width):
                known[k] = states[k]
