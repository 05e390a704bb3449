"""Nets whose last layers are minGRU (agents/networks/mingru.py): a step of many worlds, or complete sequences.

Gate and candidate depend on the input alone, so a layer's product is made of all samples of a tile at once, then its
states one after the other. In front of a tile's activations is said what precedes each sample: FOLLOWS the state of the
sample before it, FIRST none, as an episode begins there, else the state of a world in `carry`. The tile before is
stored right in front of a tile. A layer has gates and candidates [TILE, 2 * width], then states, then outputs: states
themselves in the first one, in others what the layer read plus its states.
"""

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, FrameFields, Scratch, fields_at, layer_of, scratch_of
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, flags, floats, ints, longs
from stride.agents.engines.fused_cpu.kernels.heads import gather_actions
from stride.agents.engines.fused_cpu.kernels.nets import back_through_hidden, learn_head, through_head
from stride.agents.engines.fused_cpu.kernels.policy_gradient import gather
from stride.agents.engines.fused_cpu.kernels.returns import weigh_and_order
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import exp32, mul_add

F = np.float32
FIRST, FOLLOWS = -1, -2


@njit(inline="always")
def _carried(f: FrameFields, net: int, cell: int, world: int, width: int) -> int:
    """The address of a state in `carry`; `world` from N on is room to work with."""
    return f.carry + 4 * ((net * f.cells + cell) * 2 * f.worlds + world) * width


@njit(inline="always")
def _state_of(f: FrameFields, net: int, cell: int, hidden: int, sample: int) -> int:
    """The address of a sample's state in a tile; -1 is the last of the tile before."""
    layer = layer_of(f, net, f.layers - f.cells + cell)
    width = layer.width // 2
    state = hidden + 4 * TILE * (layer.hidden + layer.width)
    if sample < 0:
        return state - 4 * TILE * layer_of(f, net, f.layers).hidden + 4 * (TILE - 1) * width
    return state + 4 * sample * width


@njit(inline="always")
def _before(f: FrameFields, net: int, cell: int, hidden: int, sample: int, code: int, width: int) -> int:
    """The address of the state that precedes a sample; of a FIRST one nobody reads it."""
    if code >= 0:
        return _carried(f, net, cell, code, width)
    return _state_of(f, net, cell, hidden, sample - 1 if code == FOLLOWS else sample)


@njit(inline="always")
def _output_of(f: FrameFields, net: int, cell: int, hidden: int) -> int:
    """The address of a layer's outputs [TILE, width]."""
    layer = layer_of(f, net, f.layers - f.cells + cell)
    return hidden + 4 * TILE * (layer.hidden + layer.width + (layer.width // 2 if cell else 0))


@njit(**PIECE)
def _remember(frame: int, net: int, cell: int, inputs: int, hidden: int, samples: int) -> None:
    """States and outputs of a layer from its products, which become gates and candidates.

    h = (1 - z) h' + z c; `inputs` [samples, width] of all layers but the first are added to it.
    """
    f = fields_at(frame)
    layer = layer_of(f, net, f.layers - f.cells + cell)
    width, codes = layer.width // 2, ints(hidden, samples)
    gates, outputs = hidden + 4 * TILE * layer.hidden, _output_of(f, net, cell, hidden)
    for s in range(samples):
        z, c = floats(gates + 8 * s * width, width), floats(gates + 4 * (2 * s + 1) * width, width)
        h = floats(_state_of(f, net, cell, hidden, s), width)
        before = floats(_before(f, net, cell, hidden, s, codes[s], width), width)
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
def _forget(frame: int, net: int, cell: int, hidden: int, samples: int, above: int, later: int, below: int) -> None:
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
        before = floats(_before(f, net, cell, hidden, s, codes[s], width), width)
        is_first, flows = codes[s] == FIRST, F(1.0) if codes[s] == FOLLOWS else F(0.0)
        for j in range(width):
            total = slope[j] + added[j]
            old = F(0.0) if is_first else before[j]
            of_gate[j] = total * (c[j] - old) * (z[j] * (F(1.0) - z[j]))
            of_candidate[j] = total * z[j]
            added[j] = flows * (total * (F(1.0) - z[j]))


@njit(inline="always")
def _through_cells(f: FrameFields, frame: int, net: int, x: int, hidden: int, samples: int) -> None:
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
            _remember(frame, net, i - first_cell, inputs, hidden, samples)
            inputs, width = _output_of(f, net, i - first_cell, hidden), layer.width // 2


@njit(inline="always")
def _head(f: FrameFields, net: int, hidden: int, samples: int, out: int) -> None:
    through_head(f, net, _output_of(f, net, f.cells - 1, hidden), layer_of(f, net, f.layers).inner, samples, out)


@njit(**PIECE)
def forward(frame: int, net: int, x: int, hidden: int, samples: int, out: int) -> None:
    """As nets.forward; what precedes each sample is written in front of `hidden`. Reads carry, too."""
    f = fields_at(frame)
    _through_cells(f, frame, net, x, hidden, samples)
    _head(f, net, hidden, samples, out)


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
            known = floats(_carried(f, net, cell, start, width), n * width)
            states = floats(_state_of(f, net, cell, scratch.hidden, 0), n * width)
            for k in range(n * width):
                known[k] = states[k]


@njit(inline="always")
def _kept_together(f: FrameFields) -> int:
    """How many rows are judged and learnt from at once: complete sequences, of short ones a tile."""
    return f.steps * max(1, TILE // f.steps)


@njit(inline="always")
def _past_of(f: FrameFields, thread: int) -> int:
    """The address of a thread's activations of so many rows."""
    tiles = (_kept_together(f) + TILE - 1) // TILE
    return f.past + 4 * thread * tiles * TILE * layer_of(f, 0, f.layers).hidden


@njit(inline="always")
def _mark(f: FrameFields, order: int, first: int, count: int, samples: int, hidden: int) -> None:
    """Say in front of a tile's activations what precedes the rows order[first : first + count], and any filling."""
    codes, index, begins = ints(hidden, samples), ints(order + 4 * first, count), flags(f.is_first, f.steps * f.worlds)
    for s in range(samples):
        code = FIRST
        if s < count and not begins[index[s]]:
            code = index[s] if index[s] < f.worlds else FOLLOWS  # rows of the first step are the worlds' numbers
        codes[s] = np.int32(code)


@njit(**PIECE)
def judge(frame: int, thread: int) -> None:
    """As returns.judge; threads divide sequences, then worlds, then parts."""
    f = fields_at(frame)
    rows, size = f.steps * f.worlds, _kept_together(f)
    for begin in range(thread * size, rows, f.threads * size):
        for net in range(f.nets):
            if net == f.value_net or (net == 0 and not f.has_log_prob):
                _judge_rows(frame, thread, net, begin, min(begin + size, rows))
    weigh_and_order(f, frame, thread)


@njit(**PIECE)
def _judge_rows(frame: int, thread: int, net: int, begin: int, end: int) -> None:
    """Write value and log_prob of the rows sequences[begin:end], as far as this net knows them; final values, too."""
    f = fields_at(frame)
    scratch, rows, worlds = scratch_of(f, thread), f.steps * f.worlds, f.worlds
    index, slot = ints(f.sequences, rows), longs(f.slot, rows)
    value, log_prob = floats(f.value, rows + worlds), floats(f.log_prob, rows)
    finals, units = floats(f.final_value, f.slots * worlds), floats(f.units, 2)
    terminated, truncated = flags(f.terminated, rows), flags(f.truncated, rows)
    hidden, floats_of_tile = _past_of(f, thread), 4 * TILE * layer_of(f, net, f.layers).hidden
    for first in range(begin, end, TILE):
        count = min(TILE, end - first)
        samples = (count + LANES - 1) // LANES * LANES
        call(f.encode, (frame, f.obs, f.sequences, first, count, scratch.x))
        _mark(f, f.sequences, first, count, samples, hidden)
        call(f.forward, (frame, net, scratch.x, hidden, samples, scratch.outputs))
        results = floats(scratch.outputs + 4 * TILE * f.value_row, count)
        if net == f.value_net:
            for s in range(count):
                value[index[first + s]] = results[s] * units[1] + units[0]
        if net == 0 and not f.has_log_prob:
            gather_actions(f, scratch, f.sequences, first, count)
            call(f.log_probs, (frame, thread, samples, scratch.actor))
            chances = floats(scratch.actor, count)
            for s in range(count):
                log_prob[index[first + s]] = chances[s]
        if net == f.value_net:
            for s in range(count):
                row = index[first + s]
                world = row % worlds
                if truncated[row]:
                    place = slot[row] * worlds + world
                    finals[place] = _value_after(f, scratch, frame, hidden, s, f.final_obs, place, world, False)
                if row >= rows - worlds:
                    ended = terminated[row] or truncated[row]
                    value[row + worlds] = _value_after(f, scratch, frame, hidden, s, f.next_obs, world, world, ended)
        hidden += floats_of_tile


@njit(inline="always")
def _value_after(
    f: FrameFields, scratch: Scratch, frame: int, hidden: int, sample: int, obs: int, place: int, world: int,
    begins: bool,
) -> np.float32:  # fmt: skip
    """V of the observation number `place` at `obs`, which follows this sample of a tile."""
    net, mine = f.value_net, f.worlds + world
    for cell in range(f.cells):
        width = layer_of(f, net, f.layers - f.cells + cell).width // 2
        known = floats(_carried(f, net, cell, mine, width), width)
        state = floats(_state_of(f, net, cell, hidden, sample), width)
        for j in range(width):
            known[j] = state[j]
    ints(scratch.second_hidden, 1)[0] = np.int32(FIRST if begins else mine)
    call(f.encode, (frame, obs, 0, place, 1, scratch.other_x))
    call(f.forward, (frame, net, scratch.other_x, scratch.second_hidden, 1, scratch.outputs))
    units = floats(f.units, 2)
    return floats(scratch.outputs + 4 * TILE * f.value_row, 1)[0] * units[1] + units[0]


@njit(**PIECE)
def gradient_part(frame: int, thread: int, part: int, order: int, begin: int, end: int, weighing: int) -> None:
    """As policy_gradient.gradient_part, for complete sequences: forward through all tiles of some, then back."""
    f = fields_at(frame)
    scratch, size, past = scratch_of(f, thread), _kept_together(f), _past_of(f, thread)
    for start in range(begin, end, size):
        rows = min(size, end - start)
        last = (rows - 1) // TILE * TILE
        for net in range(f.nets):
            floats_of_row = 4 * layer_of(f, net, f.layers).hidden
            width = layer_of(f, net, f.layers).inner
            for first in range(0, rows, TILE):
                count, hidden = min(TILE, rows - first), past + first * floats_of_row
                samples = (count + LANES - 1) // LANES * LANES
                call(f.encode, (frame, f.obs, order, start + first, count, scratch.x))
                _mark(f, order, start + first, count, samples, hidden)
                _through_cells(f, frame, net, scratch.x, hidden, samples)
            later = np.zeros(f.cells * width, np.float32)
            for first in range(last, -1, -TILE):
                count, hidden = min(TILE, rows - first), past + first * floats_of_row
                samples = (count + LANES - 1) // LANES * LANES
                if first < last:  # else it is still there
                    call(f.encode, (frame, f.obs, order, start + first, count, scratch.x))
                gather(f, scratch, order, start + first, count, weighing)
                _head(f, net, hidden, samples, scratch.outputs)
                if net == 0:
                    call(f.actor_loss, (frame, thread, part, samples))
                if net == f.value_net:
                    call(f.critic_loss, (frame, thread, part, samples))
                _back(frame, thread, part, net, hidden, samples, np.int64(later.ctypes.data))


@njit(**PIECE)
def _back(frame: int, thread: int, part: int, net: int, hidden: int, samples: int, later: int) -> None:
    """Add to this part's `partial` what the slopes in scratch.outputs ask of one tile, whose inputs are in scratch.

    `later` [cells, width]: as in _forget, of all layers.
    """
    f = fields_at(frame)
    scratch, gradient = scratch_of(f, thread), f.partial + 4 * part * f.size
    above, below, slope = scratch.above, scratch.below, scratch.outputs
    head = layer_of(f, net, f.layers)
    width, first_cell = head.inner, f.layers - f.cells
    learn_head(f, net, gradient, _output_of(f, net, f.cells - 1, hidden), slope, samples)
    floats(above, samples * width)[:] = F(0.0)
    call(f.accumulate, (slope, 1, TILE, f.parameters + 4 * head.weight, above, samples, width, head.width))
    for cell in range(f.cells - 1, -1, -1):
        layer = layer_of(f, net, first_cell + cell)
        inner, both = layer.inner, layer.width
        weight, to_weight = f.parameters + 4 * layer.weight, gradient + 4 * layer.weight
        _forget(frame, net, cell, hidden, samples, above, later + 4 * cell * width, below)
        call(f.accumulate, (scratch.one, 0, 0, below, gradient + 4 * layer.bias, 1, both, samples))
        if first_cell + cell == 0:
            call(f.accumulate, (scratch.x, 1, f.row, below, to_weight, inner, both, samples))
        elif cell:  # what it read was also added to its states, so `above` is a part of that slope already
            source = _output_of(f, net, cell - 1, hidden)
            call(f.accumulate, (below, 1, both, source, to_weight, both, inner, samples))
            call(f.accumulate, (below, both, 1, weight, above, samples, inner, both))
        else:
            source = hidden + 4 * TILE * layer_of(f, net, first_cell - 1).hidden
            call(f.accumulate, (below, 1, both, source, to_weight, both, inner, samples))
            call(f.backward_layer, (below, both, 1, weight, source, above, samples, inner, both))
    if first_cell:
        back_through_hidden(f, thread, part, net, first_cell - 1, scratch.x, 0, hidden, samples, above, below)
