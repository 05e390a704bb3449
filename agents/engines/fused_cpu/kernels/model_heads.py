"""Outputs of a world model's nets, 16 rows side by side: actions and their slopes, and numbers as chances of bins.

The formulas are those of agents/networks/heads.py and two_hot.py; the actor's loss of a start is
-(credit * log-probability + care * entropy).
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats, longs
from stride.agents.engines.fused_cpu.kernels.model_cell import copy, to_lanes, to_rows
from stride.agents.engines.fused_cpu.kernels.model_nets import net_forward
from stride.agents.engines.fused_cpu.kernels.vectors import (
    BYTES,
    at_most,
    exp,
    larger,
    load,
    log,
    sigmoid,
    splat,
    store,
    tanh,
)
from stride.agents.engines.plan.layout import LANES
from stride.agents.networks.heads import MIN_STD
from stride.utils.kernel_cache import njit

LOG_PROB = 0.5 * math.log(2 * math.pi)  # constants of a normal number
ENTROPY = 0.5 * math.log(2 * math.pi * math.e)

# --- actions


@njit(**PIECE)
def choose(logits: int, options: int, u: int, hot: int, numbers: int, row: int) -> None:
    """One of the options by uniforms [16]: one-hot vectors, and its number in every `row`-th int64 of `numbers`."""
    max_logit = load(logits, 0)
    running_sum = splat(0.0)
    for k in range(1, options):
        max_logit = larger(max_logit, load(logits, k))
    for k in range(options):
        running_sum = running_sum + exp(load(logits, k) - max_logit)
        store(hot, k, running_sum)
    threshold = load(u, 0) * running_sum
    passed_options = splat(1.0)
    number = splat(0.0)
    for k in range(options - 1):  # below each option whose sum is not above what was drawn lies the choice
        following = at_most(load(hot, k), threshold)
        number = number + following
        store(hot, k, passed_options - following)
        passed_options = following
    store(hot, options - 1, passed_options)
    store(logits, 0, number)
    values = floats(logits, LANES)
    chosen = longs(numbers, LANES * row)
    for lane in range(LANES):
        chosen[lane * row] = int(values[lane])


@njit(**PIECE)
def sample_numbers(outputs: int, count: int, normals: int, encoded: int, rows: int) -> None:
    """Numbers about a bounded mean, as rows; encoded they are cut at +-1, as worlds do."""
    for k in range(count):
        std = MIN_STD + (1.0 - MIN_STD) * sigmoid(load(outputs, count + k) + 2.0)
        number = tanh(load(outputs, k)) + std * load(normals, k)
        store(outputs, k, number)
        store(encoded, k, -larger(-larger(number, splat(-1.0)), splat(-1.0)))
    to_rows(outputs, rows, count, count)


@njit(**PIECE)
def slopes_of_choice(
    logits: int, options: int, numbers: int, row: int, chances: int, credit: int, entropy_weight: int, out: int,
    loss: int, entropy_sum: int,
) -> None:  # fmt: skip
    """Slopes of the logits; the choice is every `row`-th int64 of `numbers`. Its loss and entropy are added."""
    softmax(logits, options, chances)
    divisor = load(chances, options)
    entropy = splat(0.0)
    for k in range(options):
        entropy = entropy - load(chances, k) * (load(logits, k) - divisor)
    for k in range(options):
        p = load(chances, k)
        log_p = load(logits, k) - divisor
        store(out, k, p * (load(credit, 0) + load(entropy_weight, 0) * (log_p + entropy)))
    store(entropy_sum, 0, load(entropy_sum, 0) + entropy)
    store(loss, 0, load(loss, 0) + load(credit, 0) * divisor - load(entropy_weight, 0) * entropy)
    chosen = longs(numbers, LANES * row)
    credits = floats(credit, LANES)
    losses = floats(loss, LANES)
    values = floats(logits, LANES * options)
    slopes = floats(out, LANES * options)
    for lane in range(LANES):
        index = chosen[lane * row] * LANES + lane
        slopes[index] -= credits[lane]
        losses[lane] -= credits[lane] * values[index]


@njit(**PIECE)
def slopes_of_numbers(
    outputs: int, count: int, rows: int, vectors: int, credit_at: int, care_at: int, out: int, loss: int,
    entropy_sum: int,
) -> None:  # fmt: skip
    """Slopes of mean and deviation of numbers, whose rows become `vectors`. Their loss and entropy are added."""
    to_lanes(rows, count, vectors, count)
    credit = load(credit_at, 0)
    entropy_weight = load(care_at, 0)
    for k in range(count):
        mean = tanh(load(outputs, k))
        on = sigmoid(load(outputs, count + k) + 2.0)
        std = MIN_STD + (1.0 - MIN_STD) * on
        z = (load(vectors, k) - mean) / std
        log_std = log(std)
        entropy = log_std + ENTROPY
        store(entropy_sum, 0, load(entropy_sum, 0) + entropy)
        store(loss, 0, load(loss, 0) + credit * (z * z * 0.5 + log_std + LOG_PROB) - entropy_weight * entropy)
        store(out, k, -(credit * z / std) * (1.0 - mean * mean))
        std_slope = (credit * (1.0 - z * z) - entropy_weight) / std
        store(out, count + k, std_slope * (1.0 - MIN_STD) * on * (1.0 - on))


# --- numbers as chances of bins


@njit(inline="always")
def softmax(logits: int, count: int, chances: int) -> None:
    """Chances [count], and behind them the logarithm of what they were divided by."""
    max_logit = load(logits, 0)
    running_sum = splat(0.0)
    for i in range(1, count):
        max_logit = larger(max_logit, load(logits, i))
    for i in range(count):
        e = exp(load(logits, i) - max_logit)
        store(chances, i, e)
        running_sum = running_sum + e
    rate = 1.0 / running_sum
    for i in range(count):
        store(chances, i, load(chances, i) * rate)
    store(chances, count, max_logit + log(running_sum))


@njit(inline="always")
def expect(chances: int, values_at: int, bins: int, out: int) -> None:
    """The expected numbers, one vector: in pairs +-b, so that equal chances are 0 exactly."""
    running_sum = splat(0.0)
    pairs = bins // 2
    values = floats(values_at, bins)
    for i in range(pairs):
        difference = load(chances, pairs + 1 + i) - load(chances, pairs - 1 - i)
        running_sum = running_sum + difference * values[pairs + 1 + i]
    store(out, 0, running_sum)


@njit(**PIECE)
def number_of(
    net: int, index: int, x: int, scratch: int, chances: int, values: int, bins: int, residuals: int, out: int
) -> None:
    """The numbers that a net's chances mean for the index-th 16 rows, vectors x; its logits are kept unless at 0."""
    logits = net_forward(net, index, x, scratch)
    if residuals:
        copy(logits, residuals, bins)
    softmax(logits, bins, chances)
    expect(chances, values, bins, out)


@njit(inline="always")
def between(values_at: int, bins: int, target: int, neighbours_at: int) -> None:
    """For 16 targets, cut at the outermost bins: the bin below, as a number, and how near the one above is."""
    values = floats(values_at, bins)
    targets = floats(target, LANES)
    neighbours = floats(neighbours_at, 2 * LANES)
    for lane in range(LANES):
        x = targets[lane]  # comparisons leave NaN as it is
        x = values[0] if x < values[0] else x
        x = values[bins - 1] if x > values[bins - 1] else x
        low = 0
        high = bins - 1
        while high - low > 1:  # values[low] < x <= values[high], unless x is the first
            middle = (low + high) // 2
            if values[middle] < x:
                low = middle
            else:
                high = middle
        neighbours[lane] = low
        neighbours[LANES + lane] = (x - values[low]) / (values[high] - values[low])


@njit(inline="always")
def pull(
    values: int, bins: int, logits_at: int, target: int, weight_at: int, neighbours_at: int, slopes_at: int,
    loss_at: int,
) -> None:  # fmt: skip
    """Subtract the bins beside 16 targets from a cross-entropy and its slopes, each `weight` times."""
    logits = floats(logits_at, bins * LANES)
    slopes = floats(slopes_at, bins * LANES)
    weight = floats(weight_at, LANES)
    loss = floats(loss_at, LANES)
    neighbours = floats(neighbours_at, 2 * LANES)
    between(values, bins, target, neighbours_at)
    for lane in range(LANES):
        low = int(neighbours[lane]) * LANES + lane
        near = neighbours[LANES + lane]
        high = low + LANES
        loss[lane] -= weight[lane] * (logits[low] + near * (logits[high] - logits[low]))
        slopes[low] -= weight[lane] * (np.float32(1.0) - near)
        slopes[high] -= weight[lane] * near


@njit(inline="always")
def pull_both(
    values: int, bins: int, logits: int, target: int, slow: int, slow_coef: float, out: int, loss: int
) -> None:
    """A critic's loss of 16 rows towards two targets, the second `slow_coef` as much, and its logits' slopes at `out`.

    Behind the slopes are a vector, the rows' weights, and space for two.
    """
    weight_at = out + (bins + 1) * BYTES
    neighbours = out + (bins + 2) * BYTES
    weight = load(weight_at, 0)
    both = weight * (1.0 + slow_coef)
    softmax(logits, bins, out)
    store(loss, 0, both * load(out, bins))
    for i in range(bins):
        store(out, i, load(out, i) * both)
    pull(values, bins, logits, target, weight_at, neighbours, out, loss)
    store(weight_at, 0, weight * slow_coef)
    pull(values, bins, logits, slow, weight_at, neighbours, out, loss)
