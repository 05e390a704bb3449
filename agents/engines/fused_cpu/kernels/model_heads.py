"""The heads of a world model's nets, 16 rows at once: sampled actions, their losses, and numbers predicted by bins.

Formulas: agents/networks/heads.py and two_hot.py. The actor's loss of a row is
-(credit * log-probability + entropy_weight * entropy), where credit is the weighted advantage. A net predicts a number
by probabilities of bins with fixed values: the number is the expected value, and the loss is a cross-entropy with the
two bins beside the target ("two-hot").
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

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)  # in the log-probability of a normal distribution
HALF_LOG_2PIE = 0.5 * math.log(2 * math.pi * math.e)  # in its entropy

# --- actions


@njit(**PIECE)
def sample_choice(logits: int, options: int, u: int, hot: int, numbers: int, row: int) -> None:
    """Sample one of the options for each of 16 rows, by uniform numbers `u` [16].

    Writes it as a one-hot vector to `hot` [options], and its number as int64 to numbers[0], numbers[row], ...
    Overwrites the first vector of logits.
    """
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
    for k in range(options - 1):
        following = at_most(load(hot, k), threshold)  # 1 where the choice is behind option k
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
    """Sample numbers around a mean in +-1, from standard normal numbers, and write them as rows.

    `encoded` gets them limited to +-1, as environments do. Overwrites the outputs.
    """
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
    """Write the slopes at the logits of one choice, which is int64 numbers[0], numbers[row], ... of 16 rows.

    Adds its loss to `loss` and its entropy to `entropy_sum`; `chances` is working memory [options + 1].
    """
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
    outputs: int, count: int, rows: int, vectors: int, credit_at: int, entropy_weight_at: int, out: int, loss: int,
    entropy_sum: int,
) -> None:  # fmt: skip
    """Write the slopes at the outputs (means, then deviations) of an action of `count` numbers, 16 rows of it.

    Adds its loss to `loss` and its entropy to `entropy_sum`; `vectors` is working memory [count].
    """
    to_lanes(rows, count, vectors, count)
    credit = load(credit_at, 0)
    entropy_weight = load(entropy_weight_at, 0)
    for k in range(count):
        mean = tanh(load(outputs, k))
        share = sigmoid(load(outputs, count + k) + 2.0)
        std = MIN_STD + (1.0 - MIN_STD) * share
        z = (load(vectors, k) - mean) / std
        log_std = log(std)
        entropy = log_std + HALF_LOG_2PIE
        store(entropy_sum, 0, load(entropy_sum, 0) + entropy)
        store(loss, 0, load(loss, 0) + credit * (z * z * 0.5 + log_std + HALF_LOG_2PI) - entropy_weight * entropy)
        store(out, k, -(credit * z / std) * (1.0 - mean * mean))
        std_slope = (credit * (1.0 - z * z) - entropy_weight) / std
        store(out, count + k, std_slope * (1.0 - MIN_STD) * share * (1.0 - share))


# --- numbers predicted by bins


@njit(inline="always")
def softmax(logits: int, count: int, chances: int) -> None:
    """Write probabilities to `chances` [count], and then their logarithmic divisor, log sum exp(logits)."""
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
def expected_number(chances: int, values_at: int, bins: int, out: int) -> None:
    """Write the expected value of the bins to out, one vector.

    Bins are symmetric about 0. They are summed in pairs -b and +b, so that equal probabilities give exactly 0.
    """
    running_sum = splat(0.0)
    pairs = bins // 2
    values = floats(values_at, bins)
    for i in range(pairs):
        difference = load(chances, pairs + 1 + i) - load(chances, pairs - 1 - i)
        running_sum = running_sum + difference * values[pairs + 1 + i]
    store(out, 0, running_sum)


@njit(**PIECE)
def predict_number(
    net: int, index: int, x: int, scratch: int, chances: int, values: int, bins: int, residuals: int, out: int
) -> None:
    """Write the numbers that a net predicts for group `index` of 16 rows, inputs x, to `out`, one vector.

    Copies the logits to `residuals` unless that is 0. `chances` is working memory [bins + 1].
    """
    logits = net_forward(net, index, x, scratch)
    if residuals:
        copy(logits, residuals, bins)
    softmax(logits, bins, chances)
    expected_number(chances, values, bins, out)


@njit(inline="always")
def find_neighbours(values_at: int, bins: int, target: int, neighbours_at: int) -> None:
    """For 16 targets write two vectors: the number of the bin below, and where the target is between it and the next.

    The latter is 0 at the bin below and 1 at the one above. Targets are limited to the outermost bins.
    """
    values = floats(values_at, bins)
    targets = floats(target, LANES)
    neighbours = floats(neighbours_at, 2 * LANES)
    for lane in range(LANES):
        x = targets[lane]  # NaN stays NaN, as no comparison with it is true
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
def subtract_two_hot(
    values: int, bins: int, logits_at: int, target: int, weight_at: int, neighbours_at: int, slopes_at: int,
    loss_at: int,
) -> None:  # fmt: skip
    """Subtract the two bins beside each of 16 targets, times `weight`, from a cross-entropy and its slopes.

    Before, the loss is weight * log sum exp(logits) and the slopes are weight * probabilities.
    """
    logits = floats(logits_at, bins * LANES)
    slopes = floats(slopes_at, bins * LANES)
    weight = floats(weight_at, LANES)
    loss = floats(loss_at, LANES)
    neighbours = floats(neighbours_at, 2 * LANES)
    find_neighbours(values, bins, target, neighbours_at)
    for lane in range(LANES):
        low = int(neighbours[lane]) * LANES + lane
        near = neighbours[LANES + lane]
        high = low + LANES
        loss[lane] -= weight[lane] * (logits[low] + near * (logits[high] - logits[low]))
        slopes[low] -= weight[lane] * (np.float32(1.0) - near)
        slopes[high] -= weight[lane] * near


@njit(inline="always")
def two_target_loss(
    values: int, bins: int, logits: int, target: int, slow: int, slow_coef: float, out: int, loss: int
) -> None:
    """Write a critic's loss of 16 rows with two targets, and the slopes at its logits to `out` [bins].

    The second target, the slow critic's value, counts `slow_coef` times as much. After the slopes `out` has one vector
    of working memory, the rows' weights (given), and two more vectors of working memory.
    """
    weight_at = out + (bins + 1) * BYTES
    neighbours = out + (bins + 2) * BYTES
    weight = load(weight_at, 0)
    both = weight * (1.0 + slow_coef)
    softmax(logits, bins, out)
    store(loss, 0, both * load(out, bins))
    for i in range(bins):
        store(out, i, load(out, i) * both)
    subtract_two_hot(values, bins, logits, target, weight_at, neighbours, out, loss)
    store(weight_at, 0, weight * slow_coef)
    subtract_two_hot(values, bins, logits, slow, weight_at, neighbours, out, loss)
