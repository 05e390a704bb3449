"""Aggregates over the tasks of a family (Agarwal et al., "Deep RL at the edge of the statistical precipice", 2021).

Scores are normalised: 0 is the mean return of random actions, 1 the public reference. NumPy only.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from stride.utils.curve import Point
from stride.utils.statistics import chance_of_more, iqm

NORMAL_95 = 1.959963984540054
RESAMPLES = 2000
Scores = Sequence[Sequence[float]]  # of each task, the normalised scores of its seeds


class Aggregate(NamedTuple):
    value: float
    low: float
    high: float


def wilson(successes: int, count: int) -> tuple[float, float]:
    """Wilson's interval (95 %) of a share."""
    share, z = successes / count, NORMAL_95
    middle = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return (middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)


def normalised(values: Sequence[float], random: float, reference: float) -> list[float]:
    return [(value - random) / (reference - random) for value in values]


def pooled_iqm(scores: Scores) -> Aggregate:
    """IQM over the seeds of all tasks together; the interval resamples the seeds of each task."""
    generator = np.random.default_rng(0)
    tasks = [np.asarray(task, np.float64) for task in scores]
    values = []
    for _ in range(RESAMPLES):
        picks = [task[generator.integers(0, task.size, task.size)] for task in tasks]
        values.append(iqm(np.concatenate(picks)))
    low, high = np.quantile(values, (0.025, 0.975))
    return Aggregate(iqm(np.concatenate(tasks)), float(low), float(high))


def profile(scores: Scores, thresholds: Sequence[float]) -> list[Point]:
    """Performance profile: at each threshold the mean over tasks of the share of seeds above it."""
    return [Point(x, float(np.mean([np.mean(np.asarray(task) > x) for task in scores]))) for x in thresholds]


def improvement(ours: Scores, theirs: Scores) -> float:
    """Probability that a seed of ours is above one of theirs, mean over the tasks that both have."""
    return float(np.mean([chance_of_more(mine, other) for mine, other in zip(ours, theirs, strict=True)]))


def area(curve: ArrayLike) -> float:
    """Mean height of a curve of (env steps, return)."""
    x, y = np.asarray(curve, np.float64).T
    return float(np.trapezoid(y, x) / (x[-1] - x[0])) if len(x) > 1 else float(y[0])


def held_from(curve: Sequence[tuple[float, float]], goal: float) -> float | None:
    """Env steps of the first evaluation that reaches the goal, if the next one does, too; None where there is none."""
    for (step, value), (_, following) in pairwise(curve):
        if value >= goal and following >= goal:
            return step
    return None
