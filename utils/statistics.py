"""Statistics over seeds: interquartile means, bootstrap intervals, mean and deviation without overflow. NumPy only.

A few bad runs change them little (Agarwal et al., "Deep RL at the edge of the statistical precipice", 2021).
"""

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

FEWEST = 5  # number of values from which on an interval is shown: a bootstrap of fewer values is too narrow


def iqm(x: ArrayLike) -> float:
    """Return the interquartile mean: without the lowest and the highest quarter (rounded down) of the values."""
    values = np.sort(np.asarray(x, np.float64).reshape(-1))
    if not values.size:
        raise ValueError("the interquartile mean of no values")
    quarter_count = values.size // 4
    return float(values[quarter_count : values.size - quarter_count].mean())


def interval(
    x: ArrayLike,
    statistic: Callable[[np.ndarray], float] = iqm,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval (low, high) of a statistic.

    The same values, in any order, and the same seed give the same interval. ValueError for no values.
    """
    values = np.sort(np.asarray(x, np.float64).reshape(-1))
    if not values.size:
        raise ValueError("an interval of no values")
    picks = np.random.default_rng(seed).integers(0, values.size, (resamples, values.size))
    resample_values = [statistic(values[pick]) for pick in picks]
    low, high = np.quantile(resample_values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def difference_interval(x: ArrayLike, y: ArrayLike, resamples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """Return the percentile bootstrap interval (95 %) of the interquartile mean of x minus that of y."""
    generator = np.random.default_rng(seed)
    means = []  # [resamples] of x, then of y
    for values in (np.sort(np.asarray(x, np.float64).reshape(-1)), np.sort(np.asarray(y, np.float64).reshape(-1))):
        picks = generator.integers(0, values.size, (resamples, values.size))
        means.append(np.array([iqm(values[pick]) for pick in picks]))
    low, high = np.quantile(means[0] - means[1], (0.025, 0.975))
    return float(low), float(high)


def chance_of_more(x: ArrayLike, y: ArrayLike) -> float:
    """Return the probability that a value of x is larger than one of y, ties counted half: 0.5 if neither is better."""
    column = np.asarray(x, np.float64).reshape(-1, 1)
    row = np.asarray(y, np.float64).reshape(1, -1)
    return float(np.mean((column > row) + 0.5 * (column == row)))


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation (of the population); both are NaN if a number is not finite."""
    if not all(map(math.isfinite, values)):
        return math.nan, math.nan
    try:
        mean = statistics.fmean(values)
    except OverflowError:  # the sum is too large for a float: statistics.mean adds fractions
        mean = statistics.mean(values)
    return mean, statistics.pstdev(values)
