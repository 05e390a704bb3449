"""Ratios of figures that were measured in turns: the median with its interval. All benchmarks use it. No torch."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stride.utils.statistics import interval

MIN_TURNS = 7  # for a ratio that is published


class Ratio(NamedTuple):
    """The median of the ratios of turns, with its bootstrapped 95 % interval."""

    median: float
    low: float
    high: float
    turns: int

    def __str__(self) -> str:
        few = "" if self.turns >= MIN_TURNS else f", {self.turns} turn(s) only"
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f}{few})"


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Return ours / theirs, where both have a value for each turn."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return Ratio(statistics.median(ratios), *interval(ratios, np.median), len(ratios))
