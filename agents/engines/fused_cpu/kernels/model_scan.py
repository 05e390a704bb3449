"""A world model's pass through observed sequences, forward and backward: RSSM.observe and its gradients.

A group is 16 sequences, one in each lane; threads take groups in turn, and results do not depend on the number of
threads. A slope is the derivative of the loss with respect to a value. The backward pass writes the slopes at each
layer's sums as rows, so that a weight's gradient is one product over all rows afterwards (../model_scan.py).
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats
from stride.agents.engines.fused_cpu.kernels.model_cell import (
    add_product,
    clear,
    copy,
    next_deter,
    posterior_logits,
    sample_one_hot,
    to_lanes,
    to_rows,
)
from stride.agents.engines.fused_cpu.kernels.model_tables import model_at, scan_at, slopes_at
from stride.agents.engines.fused_cpu.kernels.vectors import BYTES, load, sigmoid, splat, store, tanh
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit


@njit(inline="always")
def residual_size(deter: int, width: int, stoch: int) -> int:
    """Return the vectors that a step keeps: the gates' input, residuals of cell and posterior, probabilities."""
    return (width + deter) + (width + 1 + 3 * deter + 1) + (width + 1) + stoch


@njit(inline="always")
def scratch_size(deter: int, width: int, stoch: int) -> int:
    """Return the vectors of working memory for a group: those of the backward pass, which needs the most."""
    return 6 * deter + 2 * width + 4 * stoch


@njit(**PIECE)
def forward(scan: int, thread: int) -> None:
    """Run the forward pass of this thread's groups; each sequence begins with a state of zeros."""
    table = scan_at(scan)
    for group in range(thread, table.sequences // LANES, table.threads):
        forward_group(scan, group)


@njit(**PIECE)
def forward_group(scan: int, group: int) -> None:
    """Compute all steps of 16 sequences."""
    table = scan_at(scan)
    m = model_at(table.model)
    deter = m.deter
    width = m.width
    stoch = m.stoch
    choices = m.choices
    residuals = table.residuals + BYTES * group * table.steps * residual_size(deter, width, stoch)
    deter_state = table.scratch + BYTES * group * scratch_size(deter, width, stoch)  # deter [D] of the step before
    stoch_state = deter_state + BYTES * deter  # stoch [F] of the step before
    hidden = stoch_state + BYTES * stoch
    logits = hidden + BYTES * width
    uniforms = logits + BYTES * stoch
    clear(deter_state, deter + stoch)
    for t in range(table.steps):
        row = 4 * (t * table.sequences + group * LANES)  # offset in bytes in an array with one float for each state
        keep = load(table.keep + row, 0)  # 0 where an episode begins: the state before is dropped
        joined = residuals
        to_lanes(table.prepared + row * width, width, joined, width)
        for i in range(deter):
            store(joined, width + i, load(deter_state, i) * keep)
        for i in range(stoch):
            store(stoch_state, i, load(stoch_state, i) * keep)
        to_rows(stoch_state, table.stoch_before + row * stoch, stoch, stoch)
        cell_residuals = joined + BYTES * (width + deter)
        next_deter(table.model, stoch_state, joined, cell_residuals, deter_state)
        to_rows(joined, table.joined + row * (width + deter), width + deter, width + deter)
        to_rows(deter_state, table.deter + row * deter, deter, deter)
        guess_residuals = cell_residuals + BYTES * (width + 3 * deter + 2)
        to_lanes(table.tokens + row * width, width, hidden, width)
        posterior_logits(table.model, deter_state, hidden, guess_residuals, logits)
        to_rows(hidden, table.hidden + row * width, width, width)
        probabilities = guess_residuals + BYTES * (width + 1)
        to_lanes(table.uniforms + row * choices, choices, uniforms, choices)
        sample_one_hot(table.model, logits, uniforms, probabilities, stoch_state)
        to_rows(stoch_state, table.stoch + row * stoch, stoch, stoch)
        to_rows(logits, table.log_probs + row * stoch, stoch, stoch)
        residuals = probabilities + BYTES * stoch


@njit(**PIECE)
def slope_of_draw(model: int, probabilities: int, log_prob_slopes: int, stoch_slopes: int, out: int) -> None:
    """Write to `out` [F] the slopes at the logits, from the slopes at the log-probabilities and at the chosen one-hots.

    The slope at a one-hot vector is passed on to the probabilities (straight-through gradient).
    """
    m = model_at(model)
    classes = m.classes
    unimix = m.unimix
    for s in range(m.choices):
        mean = splat(0.0)
        for c in range(s * classes, (s + 1) * classes):
            p = load(probabilities, c) * (1.0 - unimix) + unimix / classes
            slope = (load(stoch_slopes, c) + load(log_prob_slopes, c) / p) * (1.0 - unimix)
            mean = mean + slope * load(probabilities, c)
            store(out, c, slope)
        for c in range(s * classes, (s + 1) * classes):
            store(out, c, load(probabilities, c) * (load(out, c) - mean))


@njit(**PIECE)
def slope_of_norm(slope: int, normed: int, count: int) -> None:
    """Replace the slopes at normed numbers [count] by those before the norm; vector `count` of `normed` is the rate."""
    mean = splat(0.0)
    for i in range(count):
        mean = mean + load(slope, i) * load(normed, i)
    mean = mean / count
    rate = load(normed, count)
    for i in range(count):
        store(slope, i, rate * (load(slope, i) - load(normed, i) * mean))


@njit(**PIECE)
def slope_of_norm_silu(slope: int, scale_at: int, normed: int, scale_slope: int, count: int) -> None:
    """Replace the slopes at silu(normed * scale) by those before the norm; add those of the scale to `scale_slope`."""
    scale = floats(scale_at, count)
    for i in range(count):
        x = load(normed, i)
        y = x * scale[i]
        gate = sigmoid(y)
        y_slope = load(slope, i) * (gate * (1.0 + y * (1.0 - gate)))
        store(scale_slope, i, load(scale_slope, i) + y_slope * x)
        store(slope, i, y_slope * scale[i])
    slope_of_norm(slope, normed, count)


@njit(**PIECE)
def slope_of_gates(model: int, slope: int, before: int, gates: int, out: int, scale_slope: int) -> None:
    """Write to `out` the slopes at the gates' sums [3 D], from the slopes at deter [D]; `before` is the deter before.

    `slope` becomes the part of the slopes at `before` that does not pass through the gates; `gates` are normed.
    """
    m = model_at(model)
    deter = m.deter
    scale = floats(m.gates_scale, 3 * deter)
    for r in range(deter):
        c = deter + r
        u = 2 * deter + r
        normed_r = load(gates, r)
        normed_c = load(gates, c)
        normed_u = load(gates, u)
        reset = sigmoid(normed_r * scale[r])
        raw = normed_c * scale[c]
        candidate = tanh(reset * raw)
        update = sigmoid(normed_u * scale[u] - 1.0)
        above = load(slope, r)
        slope_u = above * (candidate - load(before, r)) * update * (1.0 - update)
        tanh_slope = above * update * (1.0 - candidate * candidate)
        slope_c = tanh_slope * reset
        slope_r = tanh_slope * raw * reset * (1.0 - reset)
        store(slope, r, above * (1.0 - update))
        store(scale_slope, r, load(scale_slope, r) + slope_r * normed_r)
        store(scale_slope, c, load(scale_slope, c) + slope_c * normed_c)
        store(scale_slope, u, load(scale_slope, u) + slope_u * normed_u)
        store(out, r, slope_r * scale[r])
        store(out, c, slope_c * scale[c])
        store(out, u, slope_u * scale[u])
    slope_of_norm(out, gates, 3 * deter)


@njit(**PIECE)
def backward(scan: int, thread: int) -> None:
    """Run the backward pass of this thread's groups."""
    table = scan_at(scan)
    for group in range(thread, table.sequences // LANES, table.threads):
        backward_group(scan, group)


@njit(**PIECE)
def backward_group(scan: int, group: int) -> None:
    """Compute the slopes of all steps of 16 sequences, from the last step to the first."""
    table = scan_at(scan)
    m = model_at(table.model)
    slopes = slopes_at(table.slopes)
    deter, width, stoch = m.deter, m.width, m.stoch
    joined_width = width + deter
    size = residual_size(deter, width, stoch)
    deter_slope = table.scratch + BYTES * group * scratch_size(deter, width, stoch)
    stoch_slope = deter_slope + BYTES * deter  # both: slopes that come from the step after
    log_probs = stoch_slope + BYTES * stoch
    logits = log_probs + BYTES * stoch
    hidden = logits + BYTES * stoch
    gates = hidden + BYTES * width
    joined = gates + BYTES * 3 * deter
    vectors = joined + BYTES * joined_width  # rows as vectors, so many as the larger of deter and stoch
    input_scale = slopes.scales + BYTES * group * (2 * width + 3 * deter)
    gates_scale = input_scale + BYTES * width
    hidden_scale = gates_scale + BYTES * 3 * deter
    clear(deter_slope, deter + stoch)
    clear(input_scale, 2 * width + 3 * deter)
    for t in range(table.steps - 1, -1, -1):
        row = 4 * (t * table.sequences + group * LANES)  # offset in bytes in an array with one float for each state
        joined_before = table.residuals + BYTES * (group * table.steps + t) * size
        cell_residuals = joined_before + BYTES * joined_width
        guess_residuals = cell_residuals + BYTES * (width + 3 * deter + 2)
        probabilities = guess_residuals + BYTES * (width + 1)
        # the posterior: from slopes at stoch and log-probabilities to those at its logits and hidden layer
        to_lanes(slopes.stoch + row * stoch, stoch, vectors, stoch)
        to_lanes(slopes.log_probs + row * stoch, stoch, log_probs, stoch)
        for i in range(stoch):
            store(vectors, i, load(vectors, i) + load(stoch_slope, i))
        slope_of_draw(table.model, probabilities, log_probs, vectors, logits)
        to_rows(logits, slopes.logits + row * stoch, stoch, stoch)
        clear(hidden, width)
        add_product(m.posterior, 1, width, logits, hidden, width, stoch)
        slope_of_norm_silu(hidden, m.posterior_scale, guess_residuals, hidden_scale, width)
        to_rows(hidden, slopes.tokens + row * width, width, width)
        # the cell: from slopes at deter to those at the gates and at their input
        to_lanes(slopes.deter + row * deter, deter, vectors, deter)
        for i in range(deter):
            store(deter_slope, i, load(deter_slope, i) + load(vectors, i))
        add_product(m.from_deter, 1, deter, hidden, deter_slope, deter, width)
        normed_gates = cell_residuals + BYTES * (width + 1)
        slope_of_gates(table.model, deter_slope, joined_before + BYTES * width, normed_gates, gates, gates_scale)
        to_rows(gates, slopes.gates + row * 3 * deter, 3 * deter, 3 * deter)
        clear(joined, width)
        copy(deter_slope, joined + BYTES * width, deter)
        add_product(m.gates, 1, joined_width, gates, joined, joined_width, 3 * deter)
        slope_of_norm_silu(joined, m.input_scale, cell_residuals, input_scale, width)
        to_rows(joined, slopes.prepared + row * width, width, width)
        # what goes back to the step before
        clear(stoch_slope, stoch)
        add_product(m.from_stoch, 1, stoch, joined, stoch_slope, stoch, width)
        keep = load(table.keep + row, 0)
        for i in range(deter):
            store(deter_slope, i, load(joined, width + i) * keep)
        for i in range(stoch):
            store(stoch_slope, i, load(stoch_slope, i) * keep)
