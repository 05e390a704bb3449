"""The pieces of a world model's recurrent state: the gated cell and the posterior, for 16 sequences at once.

Each sequence has one lane: arrays are [features, 16], called "vectors", at an address. Weights are torch's own, read
where torch stores them. What the backward pass needs is written to `residuals` on the way forward. Formulas and letters
are those of agents/networks/world_model.py: D = deter, W = width of hidden layers, S choices of C classes, F = S * C.
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

ROWS = 16 if "avx512f" in FEATURES else 4  # of a block: its sums take 16 of 32 registers, or 8 of 16
SMALL_BLOCK_ROWS = 4  # of a block of remaining rows; in single rows each addition would wait for the one before


@njit(**PIECE)
def add_product(weight: int, row: int, step: int, x: int, out: int, rows: int, inner: int) -> None:
    """out[n] += sum_k weight[n * row + k * step] x[k] for n < rows, k < inner; x and out are vectors.

    By `row` and `step` the weight may be read as a transposed matrix.
    """
    n = 0
    while n + ROWS <= rows:
        block(ROWS, 1, ADD, weight + 4 * n * row, row, step, x, LANES, LANES, out + n * BYTES, LANES, 0, inner)
        n += ROWS
    while n + SMALL_BLOCK_ROWS <= rows:
        block(SMALL_BLOCK_ROWS, 1, ADD, weight + 4 * n * row, row, step, x, LANES, LANES, out + n * BYTES, LANES, 0,
              inner)  # fmt: skip
        n += SMALL_BLOCK_ROWS
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
    """Write 16 rows of `features` numbers as vectors to `out`; a row begins `row` floats after the one before."""
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
    """Write vectors as 16 rows of `features` numbers to `out`; a row begins `row` floats after the one before."""
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
    """out = x / sqrt(mean x^2 + eps), without the layer's scale; vector `count` of out is 1 / sqrt(..), the rate."""
    square = splat(0.0)
    for i in range(count):
        square = square + load(x, i) * load(x, i)
    rate = rsqrt(square / count + EPS)
    for i in range(count):
        store(out, i, load(x, i) * rate)
    store(out, count, rate)


@njit(**PIECE)
def norm_silu(x: int, scale_at: int, residuals: int, count: int) -> None:
    """Replace x by silu(normed x * scale); write the normed x, then its rate, to `residuals`: count + 1 vectors."""
    rms_norm(x, residuals, count)
    scale = floats(scale_at, count)
    for i in range(count):
        y = load(residuals, i) * scale[i]
        store(x, i, y * sigmoid(y))


@njit(**PIECE)
def next_deter(model: int, stoch: int, joined: int, residuals: int, out: int) -> None:
    """Write the next deterministic state to `out` [D], from `stoch` [F] and `joined`: prepared actions [W], deter [D].

    `joined` becomes the input of the gates. Residuals are: normed input [W], its rate, normed gates [3 D] (reset,
    candidate, update), their rate.
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
def posterior_logits(model: int, deter: int, hidden: int, residuals: int, logits: int) -> None:
    """Write the posterior's logits [F], from deter [D] and the projected observation in `hidden` [W].

    `hidden` becomes the outputs of the hidden layer; residuals are its normed input [W] and the rate.
    """
    m = model_at(model)
    add_product(m.from_deter, m.deter, 1, deter, hidden, m.width, m.deter)
    norm_silu(hidden, m.posterior_scale, residuals, m.width)
    bias = floats(m.posterior_bias, m.stoch)
    for i in range(m.stoch):
        store(logits, i, splat(bias[i]))
    add_product(m.posterior, m.width, 1, hidden, logits, m.stoch, m.width)


@njit(**PIECE)
def mix_uniform(model: int, logits: int, residuals: int) -> None:
    """Replace logits [F] by log-probabilities, after a share `unimix` of uniform probability is mixed in.

    Residuals are the probabilities [F] before that.
    """
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
            probability = load(residuals, first_class + c) * rate
            store(residuals, first_class + c, probability)
            store(logits, first_class + c, log(probability * (1.0 - unimix) + unimix / classes))


@njit(**PIECE)
def sample_one_hot(model: int, logits: int, u: int, residuals: int, hot: int) -> None:
    """Do what `mix_uniform` does, and write a sampled one-hot vector of each choice to `hot` [F].

    `u` [S]: a uniform number for each choice. The class is the first one whose cumulated probability is above it.
    """
    m = model_at(model)
    classes = m.classes
    unimix = m.unimix
    mix_uniform(model, logits, residuals)
    for s in range(m.choices):
        first_class = s * classes
        running_sum = splat(0.0)
        for c in range(classes):
            running_sum = running_sum + (load(residuals, first_class + c) * (1.0 - unimix) + unimix / classes)
            store(hot, first_class + c, running_sum)
        threshold = load(u, s) * running_sum
        passed_classes = splat(1.0)
        for c in range(classes - 1):
            following = at_most(load(hot, first_class + c), threshold)  # 1 where the choice is behind class c
            store(hot, first_class + c, passed_classes - following)
            passed_classes = following
        store(hot, first_class + classes - 1, passed_classes)
