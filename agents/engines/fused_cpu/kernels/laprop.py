"""One step of the optimizer LaProp on all tensors of a world model. Formulas: agents/laprop.py.

A tensor is read once for its norm and once for its step. model_learn.py calls it.
"""

import math

import numpy as np

from stride.agents.engines.fused_cpu.kernels.address_table import HOST, AddressTable, address, count, double, view
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats
from stride.agents.engines.fused_cpu.kernels.vectors import load, splat, sqrt, store
from stride.agents.engines.plan.layout import LANES
from stride.agents.laprop import MIN_WEIGHT_NORM
from stride.utils.kernel_cache import njit

F = np.float32


class LaPropTensor(AddressTable):
    """One tensor with its gradient and its state in the optimizer: arrays of `size` float32."""

    value = address("size", "step", HOST)
    gradient = address("size", HOST, "step")
    square = address("size", "step", HOST)  # moving average of squared gradients
    mean = address("size", "step", HOST)  # moving average of normalized gradients
    updates = address("1", "step", HOST)  # count of steps, float32
    size = count()


class LaPropTable(AddressTable):
    """All tensors, and the optimizer's settings."""

    rows = address("LaPropTensor", HOST, "step")
    row_count = count()
    rate = double()  # learning rate after the warm-up
    beta_1 = double()
    beta_2 = double()
    epsilon = double()
    clip = double()  # limit of a gradient's norm, in norms of its tensor; infinite: none
    warmup = double()  # steps in which the rate rises to `rate`, at least 1
    decay = double()


TENSOR_BYTES = LaPropTensor.dtype.itemsize
tensor_at = view(LaPropTensor)
step_at = view(LaPropTable)


@njit(inline="always")
def length(address: int, size: int) -> float:
    """Return the norm of `size` numbers: each lane sums every 16th square, then the lanes are added."""
    vectors = size // LANES
    numbers = floats(address, size)
    square_sums = splat(0.0)
    lanes = np.zeros(LANES, np.float32)
    square_total = 0.0
    for i in range(vectors):
        square_sums = square_sums + load(address, i) * load(address, i)
    store(lanes.ctypes.data, 0, square_sums)
    for lane in range(LANES):
        square_total += lanes[lane]
    for i in range(vectors * LANES, size):
        square_total += numbers[i] * numbers[i]
    return math.sqrt(square_total)


@njit(**PIECE)
def step(table: int) -> None:
    """Make one step of all tensors of the LaPropTable at this address."""
    s = step_at(table)
    for number in range(s.row_count):
        row = s.rows + TENSOR_BYTES * number
        tensor = tensor_at(row)
        clip_factor = F(1.0)
        if s.clip < math.inf:
            limit = s.clip * max(length(tensor.value, tensor.size), MIN_WEIGHT_NORM)
            gradient_norm = length(tensor.gradient, tensor.size)
            clip_factor = F(limit / gradient_norm) if not gradient_norm <= limit else clip_factor
        updates = floats(tensor.updates, 1)
        updates[0] += F(1.0)
        made = np.float64(updates[0])
        rate = s.rate * min(made / s.warmup, 1.0)
        step_factor = F(-rate / (1.0 - s.beta_1**made))
        unbiased = F(1.0 - s.beta_2**made)
        decay_factor = F(1.0 - s.decay * rate)
        move(row, table, clip_factor, unbiased, decay_factor, step_factor)


@njit(inline="always")
def move(
    row: int, table: int, clip_factor: np.float32, unbiased: np.float32, decay_factor: np.float32,
    step_factor: np.float32,
) -> None:  # fmt: skip
    """Make the step of one tensor: full vectors first, then the numbers that are left over."""
    tensor = tensor_at(row)
    s = step_at(table)
    value = tensor.value
    gradient = tensor.gradient
    size = tensor.size
    square = tensor.square
    mean = tensor.mean
    mean_rate = F(1.0 - s.beta_1)
    square_rate = F(1.0 - s.beta_2)
    eps = F(s.epsilon)
    for i in range(size // LANES):
        g = load(gradient, i) * clip_factor
        q = load(square, i)
        m = load(mean, i)
        q = q + square_rate * (g * g - q)
        deviation = sqrt(q / unbiased) + eps
        m = m + mean_rate * (g / deviation - m)
        store(square, i, q)
        store(mean, i, m)
        store(value, i, load(value, i) * decay_factor + m * step_factor)
    values = floats(value, size)
    gradients = floats(gradient, size)
    squares = floats(square, size)
    means = floats(mean, size)
    for i in range(size // LANES * LANES, size):
        g = gradients[i] * clip_factor
        squares[i] += square_rate * (g * g - squares[i])
        deviation = np.sqrt(squares[i] / unbiased) + eps
        means[i] += mean_rate * (g / deviation - means[i])
        values[i] = values[i] * decay_factor + means[i] * step_factor
