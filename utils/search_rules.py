"""Which trials of a search go on, by numbers alone: successive halving, asynchronous (ASHA), and population based
training (PBT). A value is the better the higher it is; trials are known by their numbers. No torch.

Li et al., "A system for massively parallel hyperparameter tuning", 2020; Jaderberg et al., "Population based training
of neural networks", 2017.
"""

import math
from collections.abc import Collection, Mapping
from itertools import count, takewhile
from typing import NamedTuple

LESS, MORE = 0.8, 1.25  # what a fork's values are multiplied by


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


class Fork(NamedTuple):
    """A trial that is given up, and the one whose state goes on in its stead."""

    loser: int
    best: int


def rungs_below(budget: int, first: int, factor: int) -> tuple[int, ...]:
    """Env steps at which trials pause: the first, that many times as many, and so on below the budget."""
    return tuple(takewhile(lambda steps: steps < budget, (first * factor**power for power in count())))


def multiples_below(budget: int, interval: int) -> tuple[int, ...]:
    return tuple(range(interval, budget, interval))


def ranked(values: Mapping[int, float]) -> list[int]:
    """The trials, the best first; of equals the older; one without a number is the last."""
    return sorted(values, key=lambda number: (-_sound(values[number]), number))


def promoted(values: Mapping[int, float], gone: Collection[int], factor: int) -> int | None:
    """The trial that goes on next of those that have reached a rung: one of the best of each `factor`, that has not
    gone on yet. None: all of these have."""
    best = ranked(values)[: len(values) // factor]
    return next((number for number in best if number not in gone), None)


def forks(values: Mapping[int, float]) -> list[Fork]:
    """What becomes of a population at the end of an interval: its worst quarter forks the best."""
    order = ranked(values)
    return [Fork(loser, order[0]) for loser in order[len(order) - len(order) // 4 :]]


def perturbed(value: float, space: Space, more: bool) -> float:
    """The value of a fork, within its range; a whole number moves by 1 at least."""
    moved = value * (MORE if more else LESS)
    if space.whole:
        moved = max(value + 1, round(moved)) if more else min(value - 1, round(moved))
    return min(max(moved, space.low), space.high)


def _sound(value: float) -> float:
    return -math.inf if math.isnan(value) else value
