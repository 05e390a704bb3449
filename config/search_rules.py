"""Which trials of a search go on, by numbers alone: successive halving, asynchronous (ASHA). A value is the better the
higher it is; trials are known by their numbers. No torch.

Li et al., "A system for massively parallel hyperparameter tuning", 2020.
"""

import math
from collections.abc import Collection, Mapping
from itertools import count, takewhile
from typing import NamedTuple


class Space(NamedTuple):
    """What a parameter of a search may be: one of `choices`, as overrides spell them, or a number of a range."""

    key: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    log: bool = False
    """whether it is drawn by its order of magnitude"""
    step: float | None = None


def rungs_below(budget: int, first: int, factor: int) -> tuple[int, ...]:
    """Env steps at which trials pause: the first, that many times as many, and so on below the budget."""
    return tuple(takewhile(lambda steps: steps < budget, (first * factor**power for power in count())))


def ranked(values: Mapping[int, float]) -> list[int]:
    """The trials, the best first; of equals the older; one without a number is the last."""
    return sorted(values, key=lambda number: (-_sound(values[number]), number))


def promoted(values: Mapping[int, float], gone: Collection[int], factor: int) -> int | None:
    """The trial that goes on next of those that have reached a rung: one of the best of each `factor`, that has not
    gone on yet. None: all of these have."""
    best = ranked(values)[: len(values) // factor]
    return next((number for number in best if number not in gone), None)


def _sound(value: float) -> float:
    return -math.inf if math.isnan(value) else value
