"""Nets whose last layers are minGRU, a recurrent layer (agents/networks/mingru.py): for one step, or for sequences.

Gate z and candidate c depend on the input alone. So a layer first computes the product for all samples of a tile at
once, then the states h = (1 - z) h' + z c one after the other, where h' is the state before. Which state that is says a
code for each sample, int32 [samples] at the begin of the tile's activations:
  FOLLOWS   the state of the sample before it; that of sample 0 is the last one of the tile before
  FIRST     no state, because an episode begins
  i >= 0    the state of world i in `carry`
Consecutive tiles are stored one after the other. A layer's memory is gates and candidates [TILE, 2 * width] (for each
sample z, then c), states [TILE, width], outputs [TILE, width]. The outputs are input + state; in the first minGRU layer
they are the states themselves and have no memory of their own.
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
    """Return the address of a world's state in `carry`; world N + i is working memory for world i."""
    return f.carry + 4 * ((net * f.cells + cell) * 2 * f.worlds + world) * width


@njit(inline="always")
def state_of(f: FrameFields, net: int, cell: int, hidden: int, sample: int) -> int:
    """Return the address of a sample's state in a tile; sample -1 is the last one of the tile before."""
    layer = layer_of(f, net, f.layers - f.cells + cell)
    width = layer.width // 2
    state = hidden + 4 * TILE * (layer.hidden + layer.width)
    if sample < 0:
        return state - 4 * TILE * layer_of(f, net, f.layers).hidden + 4 * (TILE - 1) * width
    return state + 4 * sample * width


@njit(inline="always")
def state_before(f: FrameFields, net: int, cell: int, hidden: int, sample: int, code: int, width: int) -> int:
    """Return the address of the state before a sample, by its code; for FIRST an address that nobody reads."""
    if code >= 0:
        return carried(f, net, cell, code, width)
    return state_of(f, net, cell, hidden, sample - 1 if code == FOLLOWS else sample)


@njit(inline="always")
def output_of(f: FrameFields, net: int, cell: int, hidden: int) -> int:
    """Return the address of a layer's outputs [TILE, width]."""
    layer = layer_of(f, net, f.layers - f.cells + cell)
    return hidden + 4 * TILE * (layer.hidden + layer.width + (layer.width // 2 if cell else 0))


@njit(**PIECE)
def remember(frame: int, net: int, cell: int, inputs: int, hidden: int, samples: int) -> None:
    """Compute states and outputs of minGRU layer `cell` from its product, in which gates replace their logits.

    h = (1 - z) h' + z c. `inputs` [samples, width]: what the layer read; all layers but the first add it to h.
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
    """Write to `below` [samples, 2 * width] the slopes at a layer's product, from the slopes `above` at its states.

    This goes back in time, from the last sample to the first. `later` [width]: the slope at the last state of this tile
    that comes from the sample after the tile; afterwards the slope at the last state of the tile before.
    """
    f = fields_at(frame)
    layer = layer_of(f, net, f.layers - f.cells + cell)
    width, codes = layer.width // 2, ints(hidden, samples)
    gates, added = hidden + 4 * TILE * layer.hidden, floats(later, width)
    for s in range(samples - 1, -1, -1):
        z, c = floats(gates + 8 * s * width, width), floats(gates + 4 * (2 * s + 1) * width, width)
        z_slope, c_slope = floats(below + 8 * s * width, width), floats(below + 4 * (2 * s + 1) * width, width)
        slope = floats(above + 4 * s * width, width)
        before = floats(state_before(f, net, cell, hidden, s, codes[s], width), width)
        is_first, flows = codes[s] == FIRST, F(1.0) if codes[s] == FOLLOWS else F(0.0)
        for j in range(width):
            total = slope[j] + added[j]
            old = F(0.0) if is_first else before[j]
            z_slope[j] = total * (c[j] - old) * (z[j] * (F(1.0) - z[j]))
            c_slope[j] = total * z[j]
            added[j] = flows * (total * (F(1.0) - z[j]))


@njit(inline="always")
def through_cells(f: FrameFields, frame: int, net: int, x: int, hidden: int, samples: int) -> None:
    """Compute all layers of a net but its head, for x [samples, row]."""
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
    """Compute the head of a net from the outputs of its last layer."""
    through_head(f, net, output_of(f, net, f.cells - 1, hidden), layer_of(f, net, f.layers).inner, samples, out)


@njit(**PIECE)
def forward(frame: int, net: int, x: int, hidden: int, samples: int, out: int) -> None:
    """Write outputs and activations as nets.forward does; the codes of the samples are already in `hidden`.

    Reads parameters, turned and carry.
    """
    f = fields_at(frame)
    through_cells(f, frame, net, x, hidden, samples)
    through_own_head(f, net, hidden, samples, out)


@njit(**PIECE)
def step(frame: int, thread: int, row: int, start: int, n: int) -> None:
    """Compute the actor's outputs for one step of the worlds [start, start + n), and renew all states in `carry`.

    `row`: the row of world `start` in this step; scratch.x has the inputs.
    """
    f = fields_at(frame)
    scratch = scratch_of(f, thread)
    codes, begins = ints(scratch.hidden, n), flags(f.is_first + row, n)
    for s in range(n):
        codes[s] = np.int32(FIRST if begins[s] else start + s)
    for net in range(f.nets - 1, -1, -1):  # the actor, net 0, is last, so that scratch.outputs are its outputs
        call(f.forward, (frame, net, scratch.x, scratch.hidden, n, scratch.outputs))
        for cell in range(f.cells):
            width = layer_of(f, net, f.layers - f.cells + cell).width // 2
            known = floats(carried(f, net, cell, start, width), n * width)
            states = floats(state_of(f, net, cell, scratch.hidden, 0), n * width)
            for k in range(n * width):
                known[k] = states[k]
