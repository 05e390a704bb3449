"""A step of LaProp on every tensor, each read once for its norm and once for its step. Formulas: agents/laprop.py."""

import math

import numpy as np

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, doubles, floats, longs
from stride.agents.engines.fused_cpu.kernels.vectors import load, splat, sqrt, store
from stride.agents.engines.plan.layout import LANES
from stride.agents.engines.plan.numbers import Count, auto
from stride.agents.laprop import SMALLEST
from stride.utils.kernel_cache import njit

F = np.float32


class Weight(Count):
    """A row of the table of tensors, int64: addresses of float32, and how many."""

    VALUE = auto()
    GRADIENT = auto()
    SQUARE = auto()
    MEAN = auto()
    UPDATES = auto()  # of the count of steps, one float32
    SIZE = auto()


class Setting(Count):
    """What a step is made by, float64."""

    RATE = auto()
    BETA_1 = auto()
    BETA_2 = auto()
    EPSILON = auto()
    CLIP = auto()  # infinite: none
    WARMUP = auto()  # at least 1
    DECAY = auto()


WEIGHT, SETTINGS = len(Weight), len(Setting)


@njit(inline="always")
def length(address: int, size: int) -> float:
    """The norm of so many numbers: a lane sums every 16th, then the lanes are added."""
    whole, numbers = size // LANES, floats(address, size)
    squares, lanes, total = splat(0.0), np.zeros(LANES, np.float32), 0.0
    for i in range(whole):
        squares = squares + load(address, i) * load(address, i)
    store(lanes.ctypes.data, 0, squares)
    for s in range(LANES):
        total += lanes[s]
    for i in range(whole * LANES, size):
        total += numbers[i] * numbers[i]
    return math.sqrt(total)


@njit(**PIECE)
def step(table: int, settings: int, count: int) -> None:
    """So many tensors."""
    rows, s = longs(table, WEIGHT * count), doubles(settings, SETTINGS)
    for number in range(count):
        at = WEIGHT * number
        value, gradient, size = rows[at + Weight.VALUE], rows[at + Weight.GRADIENT], rows[at + Weight.SIZE]
        cut = F(1.0)
        if s[Setting.CLIP] < math.inf:
            most, norm = s[Setting.CLIP] * max(length(value, size), SMALLEST), length(gradient, size)
            cut = F(most / norm) if not norm <= most else cut
        updates = floats(rows[at + Weight.UPDATES], 1)
        updates[0] += F(1.0)
        made = np.float64(updates[0])
        rate = s[Setting.RATE] * min(made / s[Setting.WARMUP], 1.0)
        far = F(-rate / (1.0 - s[Setting.BETA_1] ** made))
        unbiased, keep = F(1.0 - s[Setting.BETA_2] ** made), F(1.0 - s[Setting.DECAY] * rate)
        move(table + 8 * at, settings, cut, unbiased, keep, far)


@njit(inline="always")
def move(row: int, settings: int, cut: np.float32, unbiased: np.float32, keep: np.float32, far: np.float32) -> None:
    """One tensor: whole vectors, then what is left of them."""
    r, s = longs(row, WEIGHT), doubles(settings, SETTINGS)
    value, gradient, size = r[Weight.VALUE], r[Weight.GRADIENT], r[Weight.SIZE]
    square, mean = r[Weight.SQUARE], r[Weight.MEAN]
    quick, slow, eps = F(1.0 - s[Setting.BETA_1]), F(1.0 - s[Setting.BETA_2]), F(s[Setting.EPSILON])
    for i in range(size // LANES):
        g, q, m = load(gradient, i) * cut, load(square, i), load(mean, i)
        q = q + slow * (g * g - q)
        root = sqrt(q / unbiased) + eps
        m = m + quick * (g / root - m)
        store(square, i, q)
        store(mean, i, m)
        store(value, i, load(value, i) * keep + m * far)
    first = size // LANES * LANES
    values, gradients = floats(value, size), floats(gradient, size)
    squares, means = floats(square, size), floats(mean, size)
    for i in range(first, size):
        g = gradients[i] * cut
        squares[i] += slow * (g * g - squares[i])
        root = np.sqrt(squares[i] / unbiased) + eps
        means[i] += quick * (g / root - means[i])
        values[i] = values[i] * keep + means[i] * far
