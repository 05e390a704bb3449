"""Learning with minGRU nets from complete sequences: values and log-probabilities of a rollout, and gradients.

A sequence is all T steps of one world. These kernels take the place of those of the same names in returns.py and
policy_gradient.py.
"""

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, FrameFields, Scratch, fields_at, layer_of, scratch_of
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, flags, floats, ints, longs
from stride.agents.engines.fused_cpu.kernels.heads import gather_actions
from stride.agents.engines.fused_cpu.kernels.mingru import (
    FIRST,
    FOLLOWS,
    carried,
    forget,
    output_of,
    state_of,
    through_cells,
    through_own_head,
)
from stride.agents.engines.fused_cpu.kernels.nets import back_through_hidden, learn_head
from stride.agents.engines.fused_cpu.kernels.policy_gradient import gather
from stride.agents.engines.fused_cpu.kernels.returns import weigh_and_order
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit

F = np.float32


@njit(inline="always")
def _kept_together(f: FrameFields) -> int:
    """Return how many rows are processed at once: one sequence, or as many short ones as fit a tile."""
    return f.steps * max(1, TILE // f.steps)


@njit(inline="always")
def _past_of(f: FrameFields, thread: int) -> int:
    """Return the address of a thread's memory for the activations of these rows."""
    tiles = (_kept_together(f) + TILE - 1) // TILE
    return f.past + 4 * thread * tiles * TILE * layer_of(f, 0, f.layers).hidden


@njit(inline="always")
def _mark(f: FrameFields, order: int, first: int, count: int, samples: int, hidden: int) -> None:
    """Write the codes of mingru.py for the rows order[first : first + count] to `hidden`; filling gets FIRST."""
    codes, index, begins = ints(hidden, samples), ints(order + 4 * first, count), flags(f.is_first, f.steps * f.worlds)
    for s in range(samples):
        code = FIRST
        if s < count and not begins[index[s]]:
            code = index[s] if index[s] < f.worlds else FOLLOWS  # row i < N is step 0 of world i: its state is in carry
        codes[s] = np.int32(code)


@njit(**PIECE)
def judge(frame: int, thread: int) -> None:
    """Judge a rollout as returns.judge does; threads divide sequences, then worlds, then parts."""
    f = fields_at(frame)
    rows, size = f.steps * f.worlds, _kept_together(f)
    for begin in range(thread * size, rows, f.threads * size):
        for net in range(f.nets):
            if net == f.value_net or (net == 0 and not f.has_log_prob):
                _judge_rows(frame, thread, net, begin, min(begin + size, rows))
    weigh_and_order(f, frame, thread)


@njit(**PIECE)
def _judge_rows(frame: int, thread: int, net: int, begin: int, end: int) -> None:
    """Write the results of net `net` for the rows sequences[begin:end]: values and final values, log_prob, or both."""
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
            own_log_probs = floats(scratch.actor, count)
            for s in range(count):
                log_prob[index[first + s]] = own_log_probs[s]
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
    """Return V of observation number `place` at `obs`, which follows this sample of a tile.

    The sample's states are copied to the world's working memory in `carry`. `begins`: that observation begins an
    episode, so it has no state before it.
    """
    net, spare_world = f.value_net, f.worlds + world
    for cell in range(f.cells):
        width = layer_of(f, net, f.layers - f.cells + cell).width // 2
        known = floats(carried(f, net, cell, spare_world, width), width)
        state = floats(state_of(f, net, cell, hidden, sample), width)
        for j in range(width):
            known[j] = state[j]
    ints(scratch.second_hidden, 1)[0] = np.int32(FIRST if begins else spare_world)
    call(f.encode, (frame, obs, 0, place, 1, scratch.other_x))
    call(f.forward, (frame, net, scratch.other_x, scratch.second_hidden, 1, scratch.outputs))
    units = floats(f.units, 2)
    return floats(scratch.outputs + 4 * TILE * f.value_row, 1)[0] * units[1] + units[0]


@njit(**PIECE)
def gradient_part(frame: int, thread: int, part: int, order: int, begin: int, end: int, weighing: int) -> None:
    """Add gradients and statistics as policy_gradient.gradient_part does, for complete sequences.

    Some sequences at a time: forward through all their tiles, then back from the last tile to the first.
    """
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
                through_cells(f, frame, net, scratch.x, hidden, samples)
            later = np.zeros(f.cells * width, np.float32)
            for first in range(last, -1, -TILE):
                count, hidden = min(TILE, rows - first), past + first * floats_of_row
                samples = (count + LANES - 1) // LANES * LANES
                if first < last:  # scratch.x still has the inputs of the last tile
                    call(f.encode, (frame, f.obs, order, start + first, count, scratch.x))
                gather(f, scratch, order, start + first, count, weighing)
                through_own_head(f, net, hidden, samples, scratch.outputs)
                if net == 0:
                    call(f.actor_loss, (frame, thread, part, samples))
                if net == f.value_net:
                    call(f.critic_loss, (frame, thread, part, samples))
                _back(frame, thread, part, net, hidden, samples, np.int64(later.ctypes.data))


@njit(**PIECE)
def _back(frame: int, thread: int, part: int, net: int, hidden: int, samples: int, later: int) -> None:
    """Add the gradient of one tile to this part's `partial`, from slopes in scratch.outputs and inputs in scratch.x.

    `later` [cells, width]: for each minGRU layer the slope that comes from later tiles, see mingru.forget.
    """
    f = fields_at(frame)
    scratch, gradient = scratch_of(f, thread), f.partial + 4 * part * f.size
    above, below, slope = scratch.above, scratch.below, scratch.outputs
    head = layer_of(f, net, f.layers)
    width, first_cell = head.inner, f.layers - f.cells
    learn_head(f, net, gradient, output_of(f, net, f.cells - 1, hidden), slope, samples)
    floats(above, samples * width)[:] = F(0.0)
    call(f.accumulate, (slope, 1, TILE, f.parameters + 4 * head.weight, above, samples, width, head.width))
    for cell in range(f.cells - 1, -1, -1):
        layer = layer_of(f, net, first_cell + cell)
        inner, both = layer.inner, layer.width
        weight, to_weight = f.parameters + 4 * layer.weight, gradient + 4 * layer.weight
        forget(frame, net, cell, hidden, samples, above, later + 4 * cell * width, below)
        call(f.accumulate, (scratch.one, 0, 0, below, gradient + 4 * layer.bias, 1, both, samples))
        if first_cell + cell == 0:
            call(f.accumulate, (scratch.x, 1, f.row, below, to_weight, inner, both, samples))
        elif cell:  # the layer's output is input + state, so `above` is already one part of the slopes at its input
            source = output_of(f, net, cell - 1, hidden)
            call(f.accumulate, (below, 1, both, source, to_weight, both, inner, samples))
            call(f.accumulate, (below, both, 1, weight, above, samples, inner, both))
        else:
            source = hidden + 4 * TILE * layer_of(f, net, first_cell - 1).hidden
            call(f.accumulate, (below, 1, both, source, to_weight, both, inner, samples))
            call(f.backward_layer, (below, both, 1, weight, source, above, samples, inner, both))
    if first_cell:
        back_through_hidden(f, thread, part, net, first_cell - 1, scratch.x, 0, hidden, samples, above, below)
