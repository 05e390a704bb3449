"""Draw curves of several runs as text: each with its letter (A is the first run), `*` where two of them meet."""

import math
import string
from collections.abc import Mapping, Sequence
from itertools import pairwise

from stride.utils.curve import Point
from stride.utils.typography import short

MARKS = string.ascii_uppercase
CROSSING, GOAL = "*", "-"
MARGIN = 9  # columns at the left for values
Curve = Sequence[Point]


def letters(count: int) -> list[str]:
    """Return `count` marks: A, B, .., Z, then 27, 28, .."""
    return [*MARKS, *(str(number) for number in range(len(MARKS) + 1, count + 1))][:count]


def overlay(curves: Mapping[str, Curve], goal: float | None, width: int, height: int) -> list[str]:
    """Draw the curves with values at the left and env steps below; [] if there is no finite value.

    `goal`: drawn as a line if it is near the values. `width`, `height`: columns in all, lines of the curves.
    """
    finite_curves = {name: [point for point in points if math.isfinite(point.y)] for name, points in curves.items()}
    all_points = [point for points in finite_curves.values() for point in points]
    if not all_points:
        return []
    lowest = min(point.y for point in all_points)
    highest = max(point.y for point in all_points)
    spread = highest - lowest
    if goal is not None and lowest - spread <= goal <= highest + spread:  # near enough to be drawn
        lowest = min(lowest, goal)
        highest = max(highest, goal)
    if highest <= lowest:
        highest = lowest + 1.0
    last_step = max(point.x for point in all_points) or 1.0
    columns = max(20, width - MARGIN - 2)
    cells = [[" "] * columns for _ in range(height)]

    def row_of(value: float) -> list[str]:
        return cells[round((highest - value) / (highest - lowest) * (height - 1))]

    if goal is not None and lowest <= goal <= highest:
        row_of(goal)[:] = [GOAL] * columns
    for mark, points in zip(MARKS, finite_curves.values(), strict=False):
        for column, value in _sampled(points, last_step, columns):
            row = row_of(value)
            row[column] = CROSSING if row[column] in MARKS else mark
    labels = {0: short(highest), height - 1: short(lowest)}
    text_lines = [f"{labels.get(index, ''):>{MARGIN}} |{''.join(row)}".rstrip() for index, row in enumerate(cells)]
    margin = " " * MARGIN
    text_lines.append(f"{margin} +{'-' * columns}")
    text_lines.append(f"{margin}  0{f'{short(last_step)} env steps':>{columns - 1}}")
    if len(finite_curves) > 1:
        text_lines += [f"{margin}  {mark} {name}" for mark, name in zip(MARKS, finite_curves, strict=False)]
    return text_lines


def _sampled(points: Curve, last_step: float, columns: int) -> list[tuple[int, float]]:
    """Return (column, value) from the first point on: the mean of each column's points, with straight lines between."""
    by_column: dict[int, list[float]] = {}
    for point in points:
        by_column.setdefault(min(columns - 1, int(point.x / last_step * columns)), []).append(point.y)
    means = [(column, sum(values) / len(values)) for column, values in sorted(by_column.items())]
    samples = means[:1]
    for (left, first), (right, second) in pairwise(means):
        slope = (second - first) / (right - left)
        samples += [(column, first + slope * (column - left)) for column in range(left + 1, right + 1)]
    return samples
