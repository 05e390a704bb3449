"""Sums up scores over seeds and tasks, for docs/results.md: intervals, interquartile means, profiles.

After Agarwal et al., "Deep RL at the edge of the statistical precipice", 2021. A normalised score is 0 for the mean
return of random actions and 1 for the public reference. NumPy only.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from stride.utils.curve import Point
from stride.utils.statistics import chance_of_more, iqm

NORMAL_95 = 1.959963984540054  # standard deviations on each side that contain 95 % of a normal distribution
RESAMPLES = 2000  # of the bootstrap
Scores = Sequence[Sequence[float]]  # for each task, the scores of its seeds


class Aggregate(NamedTuple):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def wilson(successes: int, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval (low, high) of the fraction `successes` / `count`."""
    share, z = successes / count, NORMAL_95
    middle = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return (middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)


def normalised(values: Sequence[float], random: float, reference: float) -> list[float]:
    """Return scores on the scale where `random` is 0 and `reference` is 1."""
    return [(value - random) / (reference - random) for value in values]


def pooled_iqm(scores: Scores) -> Aggregate:
    """Return the IQM over the seeds of all tasks together; the bootstrap resamples the seeds within each task."""
    generator = np.random.default_rng(0)
    tasks = [np.asarray(task, np.float64) for task in scores]
    values = []
    for _ in range(RESAMPLES):
        picks = [task[generator.integers(0, task.size, task.size)] for task in tasks]
        values.append(iqm(np.concatenate(picks)))
    low, high = np.quantile(values, (0.025, 0.975))
    return Aggregate(iqm(np.concatenate(tasks)), float(low), float(high))


def profile(scores: Scores, thresholds: Sequence[float]) -> list[Point]:
    """Return the performance profile: at each threshold, the mean over tasks of the fraction of seeds above it."""
    return [Point(x, float(np.mean([np.mean(np.asarray(task) > x) for task in scores]))) for x in thresholds]


def improvement(ours: Scores, theirs: Scores) -> float:
    """Return the probability that a seed of ours is above one of theirs: the mean over the same tasks."""
    return float(np.mean([chance_of_more(mine, other) for mine, other in zip(ours, theirs, strict=True)]))


def area(curve: ArrayLike) -> float:
    """Return the mean height of a curve [[env steps, return], ..], weighted by env steps."""
    x, y = np.asarray(curve, np.float64).T
    return float(np.trapezoid(y, x) / (x[-1] - x[0])) if len(x) > 1 else float(y[0])


def held_from(curve: Sequence[tuple[float, float]], goal: float) -> float | None:
    """Return the env steps of the first evaluation at the goal that the next one confirms; None if there is none."""
    for (step, value), (_, following) in pairwise(curve):
        if value >= goal and following >= goal:
            return step
    return None
