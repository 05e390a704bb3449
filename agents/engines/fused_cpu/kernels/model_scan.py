"""A world model's way through sequences, there and back: RSSM.observe and its gradients, 16 sequences side by side.

The way back leaves the slopes of all layers' sums as rows, so that each weight's gradient is one product afterwards.
Sequences B are groups of 16; a thread takes one of every so many, and results do not depend on how many there are.
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats, longs
from stride.agents.engines.fused_cpu.kernels.model_cell import (
    MODEL,
    Model,
    add_product,
    clear,
    copy,
    draw,
    guess,
    move,
    to_lanes,
    to_rows,
)
from stride.agents.engines.fused_cpu.kernels.vectors import BYTES, load, sigmoid, splat, store, tanh
from stride.agents.engines.plan.layout import LANES
from stride.agents.engines.plan.numbers import Count, auto
from stride.utils.kernel_cache import njit


class Scan(Count):
    """The table of a scan, int64. Memory is float32, rows are [T, B, ..] as in torch, vectors [groups, .., 16]."""

    MODEL = auto()  # the table of the model
    THREADS = auto()
    STEPS = auto()  # T
    SEQUENCES = auto()  # B

    # what is seen, and what becomes of it: rows
    PREPARED = auto()  # [W] of actions
    TOKENS = auto()  # [W] projected
    KEEP = auto()  # 0 where an episode begins, else 1
    UNIFORMS = auto()  # [S]
    DETER = auto()  # [D]
    STOCH = auto()  # [F]
    LOG_PROBS = auto()  # [F]

    # what the way back needs: the layers' inputs as rows, the rest as vectors
    BEFORE = auto()  # [F] stoch of the step before
    JOINED = auto()  # [W + D] input of the gates
    HIDDEN = auto()  # [W] of the posterior
    KEPT = auto()  # vectors [T, kept_size]
    SCRATCH = auto()  # vectors [scratch_size]

    # gradients: of what became of it, then of the layers' sums, rows; of the norms' scales, vectors
    SLOPE_DETER = auto()  # [D]
    SLOPE_STOCH = auto()  # [F]
    SLOPE_LOG_PROBS = auto()  # [F]
    SLOPE_LOGITS = auto()  # [F]
    SLOPE_TOKENS = auto()  # [W]
    SLOPE_GATES = auto()  # [3 D]
    SLOPE_PREPARED = auto()  # [W]
    SLOPE_SCALES = auto()  # of the input's norm [W], of the gates' [3 D], of the posterior's [W]


SCAN = len(Scan)


@njit(inline="always")
def kept_size(deter: int, width: int, stoch: int) -> int:
    """Vectors of a step: the gates' input, what the cell keeps, what the guess keeps, chances."""
    return (width + deter) + (width + 1 + 3 * deter + 1) + (width + 1) + stoch


@njit(inline="always")
def scratch_size(deter: int, width: int, stoch: int) -> int:
    """Vectors of a group, of which the way back takes the most."""
    return 6 * deter + 2 * width + 4 * stoch


@njit(**PIECE)
def forward(scan: int, thread: int) -> None:
    """This thread's groups, from nothing known."""
    s = longs(scan, SCAN)
    for group in range(thread, s[Scan.SEQUENCES] // LANES, s[Scan.THREADS]):
        forward_group(scan, group)


@njit(**PIECE)
def forward_group(scan: int, group: int) -> None:
    """Step by step."""
    s, m = longs(scan, SCAN), longs(longs(scan, SCAN)[Scan.MODEL], MODEL)
    deter, width, choices = m[Model.DETER], m[Model.WIDTH], m[Model.CHOICES]
    stoch = choices * m[Model.CLASSES]
    kept = s[Scan.KEPT] + BYTES * group * s[Scan.STEPS] * kept_size(deter, width, stoch)
    memory = s[Scan.SCRATCH] + BYTES * group * scratch_size(deter, width, stoch)
    guessed = memory + BYTES * deter
    hidden = guessed + BYTES * stoch
    logits = hidden + BYTES * width
    uniforms = logits + BYTES * stoch
    clear(memory, deter + stoch)
    for t in range(s[Scan.STEPS]):
        row = t * s[Scan.SEQUENCES] + group * LANES
        keep = load(s[Scan.KEEP] + 4 * row, 0)
        joined = kept
        to_lanes(s[Scan.PREPARED] + 4 * row * width, width, joined, width)
        for i in range(deter):
            store(joined, width + i, load(memory, i) * keep)
        for i in range(stoch):
            store(guessed, i, load(guessed, i) * keep)
        to_rows(guessed, s[Scan.BEFORE] + 4 * row * stoch, stoch, stoch)
        of_cell = joined + BYTES * (width + deter)
        move(s[Scan.MODEL], guessed, joined, of_cell, memory)
        to_rows(joined, s[Scan.JOINED] + 4 * row * (width + deter), width + deter, width + deter)
        to_rows(memory, s[Scan.DETER] + 4 * row * deter, deter, deter)
        of_guess = of_cell + BYTES * (width + 3 * deter + 2)
        to_lanes(s[Scan.TOKENS] + 4 * row * width, width, hidden, width)
        guess(m[Model.FROM_DETER], m[Model.POSTERIOR_SCALE], m[Model.POSTERIOR], m[Model.POSTERIOR_BIAS],
              memory, deter, hidden, width, of_guess, logits, stoch)  # fmt: skip
        to_rows(hidden, s[Scan.HIDDEN] + 4 * row * width, width, width)
        soft = of_guess + BYTES * (width + 1)
        to_lanes(s[Scan.UNIFORMS] + 4 * row * choices, choices, uniforms, choices)
        draw(s[Scan.MODEL], logits, uniforms, soft, guessed)
        to_rows(guessed, s[Scan.STOCH] + 4 * row * stoch, stoch, stoch)
        to_rows(logits, s[Scan.LOG_PROBS] + 4 * row * stoch, stoch, stoch)
        kept = soft + BYTES * stoch


@njit(**PIECE)
def slope_of_draw(model: int, soft: int, of_log_probs: int, of_stoch: int, out: int) -> None:
    """Slopes of logits [F], from those of the log-probabilities and of what was chosen, which are the chances' too."""
    m = longs(model, MODEL)
    classes, unimix = m[Model.CLASSES], floats(model + 8 * Model.UNIMIX, 1)[0]
    for s in range(m[Model.CHOICES]):
        mean = splat(0.0)
        for c in range(s * classes, (s + 1) * classes):
            p = load(soft, c) * (1.0 - unimix) + unimix / classes
            slope = (load(of_stoch, c) + load(of_log_probs, c) / p) * (1.0 - unimix)
            mean = mean + slope * load(soft, c)
            store(out, c, slope)
        for c in range(s * classes, (s + 1) * classes):
            store(out, c, load(soft, c) * (load(out, c) - mean))


@njit(**PIECE)
def slope_of_norm(slope: int, normed: int, count: int) -> None:
    """Slopes of normed numbers become those of the numbers; the rate lies behind the normed ones."""
    mean = splat(0.0)
    for i in range(count):
        mean = mean + load(slope, i) * load(normed, i)
    mean, rate = mean / count, load(normed, count)
    for i in range(count):
        store(slope, i, rate * (load(slope, i) - load(normed, i) * mean))


@njit(**PIECE)
def slope_of_norm_silu(slope: int, scale_at: int, normed: int, of_scale: int, count: int) -> None:
    """Slopes of silu(normed * scale) become those of what was normed; those of the scale are added up."""
    scale = floats(scale_at, count)
    for i in range(count):
        x = load(normed, i)
        y = x * scale[i]
        on = sigmoid(y)
        of_y = load(slope, i) * (on * (1.0 + y * (1.0 - on)))
        store(of_scale, i, load(of_scale, i) + of_y * x)
        store(slope, i, of_y * scale[i])
    slope_of_norm(slope, normed, count)


@njit(**PIECE)
def slope_of_gates(model: int, slope: int, before: int, gates: int, out: int, of_scale: int) -> None:
    """Slopes of the gates' sums [3 D] from those of deter [D], which become those that go straight to `before`."""
    m = longs(model, MODEL)
    deter = m[Model.DETER]
    scale = floats(m[Model.GATES_SCALE], 3 * deter)
    for i in range(deter):
        r, c, u = i, deter + i, 2 * deter + i
        normed_r, normed_c, normed_u = load(gates, r), load(gates, c), load(gates, u)
        reset, raw = sigmoid(normed_r * scale[r]), normed_c * scale[c]
        candidate, update = tanh(reset * raw), sigmoid(normed_u * scale[u] - 1.0)
        above = load(slope, i)
        of_u = above * (candidate - load(before, i)) * update * (1.0 - update)
        of_tanh = above * update * (1.0 - candidate * candidate)
        of_c, of_r = of_tanh * reset, of_tanh * raw * reset * (1.0 - reset)
        store(slope, i, above * (1.0 - update))
        store(of_scale, r, load(of_scale, r) + of_r * normed_r)
        store(of_scale, c, load(of_scale, c) + of_c * normed_c)
        store(of_scale, u, load(of_scale, u) + of_u * normed_u)
        store(out, r, of_r * scale[r])
        store(out, c, of_c * scale[c])
        store(out, u, of_u * scale[u])
    slope_of_norm(out, gates, 3 * deter)


@njit(**PIECE)
def backward(scan: int, thread: int) -> None:
    """This thread's groups, from the last step to the first."""
    s = longs(scan, SCAN)
    for group in range(thread, s[Scan.SEQUENCES] // LANES, s[Scan.THREADS]):
        backward_group(scan, group)


@njit(**PIECE)
def backward_group(scan: int, group: int) -> None:
    """Step by step."""
    s, m = longs(scan, SCAN), longs(longs(scan, SCAN)[Scan.MODEL], MODEL)
    deter, width, stoch = m[Model.DETER], m[Model.WIDTH], m[Model.CHOICES] * m[Model.CLASSES]
    joined_width, size = width + deter, kept_size(deter, width, stoch)
    memory = s[Scan.SCRATCH] + BYTES * group * scratch_size(deter, width, stoch)
    guessed = memory + BYTES * deter  # slopes of deter and of stoch that come from the step after
    log_probs = guessed + BYTES * stoch
    logits = log_probs + BYTES * stoch
    hidden = logits + BYTES * stoch
    gates = hidden + BYTES * width
    joined = gates + BYTES * 3 * deter
    given = joined + BYTES * joined_width  # the larger of deter and stoch, rows turned into vectors
    of_input = s[Scan.SLOPE_SCALES] + BYTES * group * (2 * width + 3 * deter)
    of_gates = of_input + BYTES * width
    of_hidden = of_gates + BYTES * 3 * deter
    clear(memory, deter + stoch)
    clear(of_input, 2 * width + 3 * deter)
    for back in range(s[Scan.STEPS]):
        t = s[Scan.STEPS] - 1 - back
        row = t * s[Scan.SEQUENCES] + group * LANES
        was_joined = s[Scan.KEPT] + BYTES * (group * s[Scan.STEPS] + t) * size
        of_cell = was_joined + BYTES * joined_width
        of_guess = of_cell + BYTES * (width + 3 * deter + 2)
        soft = of_guess + BYTES * (width + 1)
        to_lanes(s[Scan.SLOPE_STOCH] + 4 * row * stoch, stoch, given, stoch)
        to_lanes(s[Scan.SLOPE_LOG_PROBS] + 4 * row * stoch, stoch, log_probs, stoch)
        for i in range(stoch):
            store(given, i, load(given, i) + load(guessed, i))
        slope_of_draw(s[Scan.MODEL], soft, log_probs, given, logits)
        to_rows(logits, s[Scan.SLOPE_LOGITS] + 4 * row * stoch, stoch, stoch)
        clear(hidden, width)
        add_product(m[Model.POSTERIOR], 1, width, logits, hidden, width, stoch)
        slope_of_norm_silu(hidden, m[Model.POSTERIOR_SCALE], of_guess, of_hidden, width)
        to_rows(hidden, s[Scan.SLOPE_TOKENS] + 4 * row * width, width, width)
        to_lanes(s[Scan.SLOPE_DETER] + 4 * row * deter, deter, given, deter)
        for i in range(deter):
            store(memory, i, load(memory, i) + load(given, i))
        add_product(m[Model.FROM_DETER], 1, deter, hidden, memory, deter, width)
        slope_of_gates(
            s[Scan.MODEL], memory, was_joined + BYTES * width, of_cell + BYTES * (width + 1), gates, of_gates
        )
        to_rows(gates, s[Scan.SLOPE_GATES] + 4 * row * 3 * deter, 3 * deter, 3 * deter)
        clear(joined, width)
        copy(memory, joined + BYTES * width, deter)
        add_product(m[Model.GATES], 1, joined_width, gates, joined, joined_width, 3 * deter)
        slope_of_norm_silu(joined, m[Model.INPUT_SCALE], of_cell, of_input, width)
        to_rows(joined, s[Scan.SLOPE_PREPARED] + 4 * row * width, width, width)
        clear(guessed, stoch)
        add_product(m[Model.FROM_STOCH], 1, stoch, joined, guessed, stoch, width)
        keep = load(s[Scan.KEEP] + 4 * row, 0)
        for i in range(deter):
            store(memory, i, load(joined, width + i) * keep)
        for i in range(stoch):
            store(guessed, i, load(guessed, i) * keep)
