"""How many times one thing is another, measured in turns: the median with its interval. No torch."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stride.utils.statistics import interval

FEWEST_TURNS = 7  # of a ratio that is published


class Ratio(NamedTuple):
    """The median of the ratios of turns, with its bootstrapped 95 % interval."""

    median: float
    low: float
    high: float
    turns: int

    def __str__(self) -> str:
        few = "" if self.turns >= FEWEST_TURNS else f", {self.turns} turn(s) only"
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f}{few})"


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """How many times theirs ours is, turn by turn."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return Ratio(statistics.median(ratios), *interval(ratios, np.median), len(ratios))
