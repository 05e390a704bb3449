"""Curves of several runs in one picture made of letters: A is the first of them, where two meet stands a `*`."""

import math
import string
from collections.abc import Mapping, Sequence
from itertools import pairwise

from stride.utils.curve import Point
from stride.utils.typography import short

MARKS = string.ascii_uppercase
MEET, GOAL = "*", "-"
MARGIN = 9


def overlay(curves: Mapping[str, Sequence[Point]], goal: float | None, width: int, height: int) -> list[str]:
    """Each curve by its letter, values at the left, env steps below; [] where there is nothing to draw."""
    sound = {name: [point for point in points if math.isfinite(point.y)] for name, points in curves.items()}
    every = [point for points in sound.values() for point in points]
    if not every:
        return []
    low, high = (each(point.y for point in every) for each in (min, max))
    if goal is not None and low - (high - low) <= goal <= high + (high - low):  # near enough to be drawn
        low, high = min(low, goal), max(high, goal)
    high, far = high if high > low else low + 1.0, max(point.x for point in every) or 1.0
    columns = max(20, width - MARGIN - 2)
    cells = [[" "] * columns for _ in range(height)]
    if goal is not None and low <= goal <= high:
        cells[_row(goal, low, high, height)] = [GOAL] * columns
    for mark, points in zip(MARKS, sound.values(), strict=False):
        for column, value in _sampled(points, far, columns):
            row = _row(value, low, high, height)
            cells[row][column] = MEET if cells[row][column] in MARKS else mark
    labels = {0: short(high), height - 1: short(low)}
    lines = [f"{labels.get(row, ''):>{MARGIN}} |{''.join(line)}".rstrip() for row, line in enumerate(cells)]
    foot = f"{'':>{MARGIN}}  0{f'{short(far)} env steps':>{columns - 1}}"
    names = [f"{'':>{MARGIN}}  {mark} {name}" for mark, name in zip(MARKS, sound, strict=False) if len(sound) > 1]
    return [*lines, f"{'':>{MARGIN}} +{'-' * columns}", foot, *names]


def _row(value: float, low: float, high: float, height: int) -> int:
    return round((high - value) / (high - low) * (height - 1))


def _sampled(points: Sequence[Point], far: float, columns: int) -> list[tuple[int, float]]:
    """The mean of what falls into each column, straight lines between; nothing before the first point."""
    means: dict[int, list[float]] = {}
    for point in points:
        means.setdefault(min(columns - 1, int(point.x / far * columns)), []).append(point.y)
    known = [(column, sum(values) / len(values)) for column, values in sorted(means.items())]
    found = known[:1]
    for (left, first), (right, second) in pairwise(known):
        step = (second - first) / (right - left)
        found += [(column, first + step * (column - left)) for column in range(left + 1, right + 1)]
    return found
