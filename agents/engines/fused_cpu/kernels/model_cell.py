"""A world model's gated cell and its guesses, 16 sequences side by side: lanes are sequences, features follow another.

Everything is [features, 16] at an address; weights are torch's own, read where they lie. What the way back needs is
left at `kept` by whoever goes forward. The formulas are those of agents/networks/world_model.py: letters as there, W
the width of hidden layers, F = S * C.
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats, longs
from stride.agents.engines.fused_cpu.kernels.lanes import ADD, block, transpose16
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
from stride.agents.engines.plan.numbers import Count, auto
from stride.agents.networks.normed import EPS
from stride.utils.kernel_cache import njit
from stride.utils.kernel_folder import FEATURES

ROWS = 16 if "avx512f" in FEATURES else 4  # accumulators of a block: 16 of 32 registers, or 8 of 16
FEW = 4  # rows left, which one by one would each wait for its own sums


class Model(Count):
    """The table of a model's sizes and weights, int64: counts, then addresses."""

    DETER = auto()  # D
    WIDTH = auto()  # W
    CHOICES = auto()  # S
    CLASSES = auto()  # C
    UNIMIX = auto()  # the entry itself is a float32
    FROM_STOCH = auto()  # [W, F]
    INPUT_SCALE = auto()  # [W]
    GATES = auto()  # [3 D, W + D]
    GATES_SCALE = auto()  # [3 D]
    FROM_DETER = auto()  # [W, D], the posterior's
    POSTERIOR_SCALE = auto()  # [W]
    POSTERIOR = auto()  # [F, W]
    POSTERIOR_BIAS = auto()  # [F]


MODEL = len(Model)


@njit(**PIECE)
def add_product(weight: int, row: int, step: int, x: int, out: int, rows: int, inner: int) -> None:
    """out[n] += sum_k weight[n * row + k * step] x[k], vectors x and out: a transpose costs nothing."""
    n = 0
    while n + ROWS <= rows:
        block(ROWS, 1, ADD, weight + 4 * n * row, row, step, x, LANES, out + n * BYTES, LANES, 0, inner)
        n += ROWS
    while n + FEW <= rows:
        block(FEW, 1, ADD, weight + 4 * n * row, row, step, x, LANES, out + n * BYTES, LANES, 0, inner)
        n += FEW
    while n < rows:
        block(1, 1, ADD, weight + 4 * n * row, row, step, x, LANES, out + n * BYTES, LANES, 0, inner)
        n += 1


@njit(**PIECE)
def clear(out: int, count: int) -> None:
    """Vectors of zeros."""
    for i in range(count):
        store(out, i, splat(0.0))


@njit(**PIECE)
def copy(x: int, out: int, count: int) -> None:
    """So many vectors."""
    for i in range(count):
        store(out, i, load(x, i))


@njit(**PIECE)
def to_lanes(rows: int, row: int, out: int, features: int) -> None:
    """16 rows of numbers, `row` floats from one to the next, as vectors."""
    whole = features // LANES * LANES
    for i in range(0, whole, LANES):
        transpose16(rows + 4 * i, row, out + i * BYTES, LANES)
    numbers, vectors = floats(rows, LANES * row), floats(out, features * LANES)
    for i in range(whole, features):
        for s in range(LANES):
            vectors[i * LANES + s] = numbers[s * row + i]


@njit(**PIECE)
def to_rows(vectors_at: int, out: int, row: int, features: int) -> None:
    """Vectors as 16 rows of numbers."""
    whole = features // LANES * LANES
    for i in range(0, whole, LANES):
        transpose16(vectors_at + i * BYTES, LANES, out + 4 * i, row)
    vectors, numbers = floats(vectors_at, features * LANES), floats(out, LANES * row)
    for i in range(whole, features):
        for s in range(LANES):
            numbers[s * row + i] = vectors[i * LANES + s]


@njit(**PIECE)
def rms_norm(x: int, out: int, count: int) -> None:
    """out = x / sqrt(mean x^2), not yet scaled; the divisor's inverse behind it."""
    square = splat(0.0)
    for i in range(count):
        square = square + load(x, i) * load(x, i)
    rate = rsqrt(square / count + EPS)
    for i in range(count):
        store(out, i, load(x, i) * rate)
    store(out, count, rate)


@njit(**PIECE)
def norm_silu(x: int, scale_at: int, kept: int, count: int) -> None:
    """x becomes silu(normed x * scale); the normed x, and its rate, are kept: count + 1 vectors."""
    rms_norm(x, kept, count)
    scale = floats(scale_at, count)
    for i in range(count):
        y = load(kept, i) * scale[i]
        store(x, i, y * sigmoid(y))


@njit(**PIECE)
def move(model: int, stoch: int, joined: int, kept: int, out: int) -> None:
    """The next deter at `out`, from `stoch` [F] and `joined`: prepared actions [W], then deter [D].

    Prepared actions become the gates' input. Kept are normed input [W], its rate, normed gates [3 D], their rate.
    """
    m = longs(model, MODEL)
    deter, width, choices = m[Model.DETER], m[Model.WIDTH], m[Model.CHOICES] * m[Model.CLASSES]
    add_product(m[Model.FROM_STOCH], choices, 1, stoch, joined, width, choices)
    norm_silu(joined, m[Model.INPUT_SCALE], kept, width)
    gates = kept + (width + 1) * BYTES
    clear(gates, 3 * deter)
    add_product(m[Model.GATES], width + deter, 1, joined, gates, 3 * deter, width + deter)
    rms_norm(gates, gates, 3 * deter)
    scale = floats(m[Model.GATES_SCALE], 3 * deter)
    before = joined + width * BYTES
    for i in range(deter):
        reset = sigmoid(load(gates, i) * scale[i])
        candidate = tanh(reset * (load(gates, deter + i) * scale[deter + i]))
        update = sigmoid(load(gates, 2 * deter + i) * scale[2 * deter + i] - 1.0)
        was = load(before, i)
        store(out, i, was + update * (candidate - was))


@njit(**PIECE)
def guess(
    weight: int, scale: int, head: int, bias_at: int, deter: int, numbers: int, hidden: int, width: int, kept: int,
    logits: int, count: int,
) -> None:  # fmt: skip
    """Logits [count] of a hidden layer over deter [numbers], to which `hidden` [W] is added and which it becomes."""
    add_product(weight, numbers, 1, deter, hidden, width, numbers)
    norm_silu(hidden, scale, kept, width)
    bias = floats(bias_at, count)
    for i in range(count):
        store(logits, i, splat(bias[i]))
    add_product(head, width, 1, hidden, logits, count, width)


@njit(**PIECE)
def mix(model: int, logits: int, kept: int) -> None:
    """Logits [F] become log-probabilities, mixed with uniform chances; kept are the chances before they were mixed."""
    m = longs(model, MODEL)
    classes, unimix = m[Model.CLASSES], floats(model + 8 * Model.UNIMIX, 1)[0]
    for at in range(0, m[Model.CHOICES] * classes, classes):
        most, total = load(logits, at), splat(0.0)
        for c in range(classes):
            most = larger(most, load(logits, at + c))
        for c in range(classes):
            e = exp(load(logits, at + c) - most)
            store(kept, at + c, e)
            total = total + e
        rate = 1.0 / total
        for c in range(classes):
            soft = load(kept, at + c) * rate
            store(kept, at + c, soft)
            store(logits, at + c, log(soft * (1.0 - unimix) + unimix / classes))


@njit(**PIECE)
def draw(model: int, logits: int, u: int, kept: int, hot: int) -> None:
    """`mix`, and at `hot` a choice by uniforms [S] for each of them."""
    m = longs(model, MODEL)
    classes, unimix = m[Model.CLASSES], floats(model + 8 * Model.UNIMIX, 1)[0]
    mix(model, logits, kept)
    for s in range(m[Model.CHOICES]):
        at, total = s * classes, splat(0.0)
        for c in range(classes):
            total = total + (load(kept, at + c) * (1.0 - unimix) + unimix / classes)
            store(hot, at + c, total)
        chosen, passed = load(u, s) * total, splat(1.0)
        for c in range(classes - 1):  # below each class whose sum is not above what was drawn lies the choice
            following = at_most(load(hot, at + c), chosen)
            store(hot, at + c, passed - following)
            passed = following
        store(hot, at + classes - 1, passed)
