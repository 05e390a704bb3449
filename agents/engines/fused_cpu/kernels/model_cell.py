"""A world model's gated cell and its guesses, 16 sequences side by side, one to a lane.

Everything is [features, 16] at an address; weights are torch's own, read where they are stored. Whatever the backward
pass needs is written to `residuals` on the way forward. The formulas, and letters, are those of
agents/networks/world_model.py: W the width of hidden layers, F = S * C.
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats
from stride.agents.engines.fused_cpu.kernels.lanes import ADD, block, transpose16
from stride.agents.engines.fused_cpu.kernels.model_tables import model_at
from stride.agents.engines.fused_cpu.kernels.vectors import (
    BYTES,
    at_most,
    exp,
    larger,
    load,
    log,
    rsqrt,
    sigmoid,
    splat,
    store,
    tanh,
)
from stride.agents.engines.plan.layout import LANES
from stride.agents.networks.normed import EPS
from stride.utils.kernel_cache import njit
from stride.utils.kernel_folder import FEATURES

ROWS = 16 if "avx512f" in FEATURES else 4  # accumulators of a block: 16 of 32 registers, or 8 of 16
FEW = 4  # remaining rows, which one by one would each wait for its own sums


@njit(**PIECE)
def add_product(weight: int, row: int, step: int, x: int, out: int, rows: int, inner: int) -> None:
    """out[n] += sum_k weight[n * row + k * step] x[k], vectors x and out: a transpose costs nothing."""
    n = 0
    while n + ROWS <= rows:
        block(ROWS, 1, ADD, weight + 4 * n * row, row, step, x, LANES, LANES, out + n * BYTES, LANES, 0, inner)
        n += ROWS
    while n + FEW <= rows:
        block(FEW, 1, ADD, weight + 4 * n * row, row, step, x, LANES, LANES, out + n * BYTES, LANES, 0, inner)
        n += FEW
    while n < rows:
        block(1, 1, ADD, weight + 4 * n * row, row, step, x, LANES, LANES, out + n * BYTES, LANES, 0, inner)
        n += 1


@njit(**PIECE)
def clear(out: int, count: int) -> None:
    """Write `count` vectors of zeros."""
    for i in range(count):
        store(out, i, splat(0.0))


@njit(**PIECE)
def copy(x: int, out: int, count: int) -> None:
    """Copy `count` vectors."""
    for i in range(count):
        store(out, i, load(x, i))


@njit(**PIECE)
def to_lanes(rows: int, row: int, out: int, features: int) -> None:
    """16 rows of numbers, `row` floats from one to the next, as vectors."""
    aligned = features // LANES * LANES
    for i in range(0, aligned, LANES):
        transpose16(rows + 4 * i, row, out + i * BYTES, LANES)
    numbers = floats(rows, LANES * row)
    vectors = floats(out, features * LANES)
    for i in range(aligned, features):
        for lane in range(LANES):
            vectors[i * LANES + lane] = numbers[lane * row + i]


@njit(**PIECE)
def to_rows(vectors_at: int, out: int, row: int, features: int) -> None:
    """Vectors as 16 rows of numbers, `row` floats from one to the next."""
    aligned = features // LANES * LANES
    for i in range(0, aligned, LANES):
        transpose16(vectors_at + i * BYTES, LANES, out + 4 * i, row)
    vectors = floats(vectors_at, features * LANES)
    numbers = floats(out, LANES * row)
    for i in range(aligned, features):
        for lane in range(LANES):
            numbers[lane * row + i] = vectors[i * LANES + lane]


@njit(**PIECE)
def rms_norm(x: int, out: int, count: int) -> None:
    """out = x / sqrt(mean x^2), not yet scaled; the divisor's inverse is stored behind it."""
    square = splat(0.0)
    for i in range(count):
        square = square + load(x, i) * load(x, i)
    rate = rsqrt(square / count + EPS)
    for i in range(count):
        store(out, i, load(x, i) * rate)
    store(out, count, rate)


@njit(**PIECE)
def norm_silu(x: int, scale_at: int, residuals: int, count: int) -> None:
    """x becomes silu(normed x * scale); the normed x, and its rate, are the residuals: count + 1 vectors."""
    rms_norm(x, residuals, count)
    scale = floats(scale_at, count)
    for i in range(count):
        y = load(residuals, i) * scale[i]
        store(x, i, y * sigmoid(y))


@njit(**PIECE)
def move(model: int, stoch: int, joined: int, residuals: int, out: int) -> None:
    """The next deter at `out`, from `stoch` [F] and `joined`: prepared actions [W], then deter [D].

    Prepared actions become the gates' input. Residuals are normed input [W], its rate, normed gates [3 D], their rate.
    """
    m = model_at(model)
    deter = m.deter
    width = m.width
    add_product(m.from_stoch, m.stoch, 1, stoch, joined, width, m.stoch)
    norm_silu(joined, m.input_scale, residuals, width)
    gates = residuals + (width + 1) * BYTES
    clear(gates, 3 * deter)
    add_product(m.gates, width + deter, 1, joined, gates, 3 * deter, width + deter)
    rms_norm(gates, gates, 3 * deter)
    scale = floats(m.gates_scale, 3 * deter)
    before = joined + width * BYTES
    for i in range(deter):
        reset = sigmoid(load(gates, i) * scale[i])
        candidate = tanh(reset * (load(gates, deter + i) * scale[deter + i]))
        update = sigmoid(load(gates, 2 * deter + i) * scale[2 * deter + i] - 1.0)
        previous = load(before, i)
        store(out, i, previous + update * (candidate - previous))


@njit(**PIECE)
def guess(model: int, deter: int, hidden: int, residuals: int, logits: int) -> None:
    """The posterior's logits [F] from deter [D] and projected tokens, `hidden` [W], which become its outputs."""
    m = model_at(model)
    add_product(m.from_deter, m.deter, 1, deter, hidden, m.width, m.deter)
    norm_silu(hidden, m.posterior_scale, residuals, m.width)
    bias = floats(m.posterior_bias, m.stoch)
    for i in range(m.stoch):
        store(logits, i, splat(bias[i]))
    add_product(m.posterior, m.width, 1, hidden, logits, m.stoch, m.width)


@njit(**PIECE)
def mix(model: int, logits: int, residuals: int) -> None:
    """Logits [F] become log-probabilities, mixed with uniform chances; residuals are the chances before that."""
    m = model_at(model)
    classes = m.classes
    unimix = m.unimix
    for first_class in range(0, m.choices * classes, classes):
        max_logit = load(logits, first_class)
        running_sum = splat(0.0)
        for c in range(classes):
            max_logit = larger(max_logit, load(logits, first_class + c))
        for c in range(classes):
            e = exp(load(logits, first_class + c) - max_logit)
            store(residuals, first_class + c, e)
            running_sum = running_sum + e
        rate = 1.0 / running_sum
        for c in range(classes):
            probabilities = load(residuals, first_class + c) * rate
            store(residuals, first_class + c, probabilities)
            store(logits, first_class + c, log(probabilities * (1.0 - unimix) + unimix / classes))


@njit(**PIECE)
def draw(model: int, logits: int, u: int, residuals: int, hot: int) -> None:
    """`mix`, and a one-hot choice by uniforms [S] for each of them, written to `hot`."""
    m = model_at(model)
    classes = m.classes
    unimix = m.unimix
    mix(model, logits, residuals)
    for s in range(m.choices):
        first_class = s * classes
        running_sum = splat(0.0)
        for c in range(classes):
            running_sum = running_sum + (load(residuals, first_class + c) * (1.0 - unimix) + unimix / classes)
            store(hot, first_class + c, running_sum)
        threshold = load(u, s) * running_sum
        passed_classes = splat(1.0)
        for c in range(classes - 1):  # below each class whose sum is not above what was drawn lies the choice
            following = at_most(load(hot, first_class + c), threshold)
            store(hot, first_class + c, passed_classes - following)
            passed_classes = following
        store(hot, first_class + classes - 1, passed_classes)
