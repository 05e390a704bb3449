"""Line charts as numbers in the page: charts.js draws, zooms, smooths and exports them without asking the server.

Not drawn by a library: Plotly, which Gradio would load, is 4.6 MB of script; charts.js is a few kB.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stride.inspector.markup import Markup, note, tag
from stride.inspector.runs import RunFacts
from stride.runstore.metrics_table import SECONDS
from stride.utils.curve import Point
from stride.utils.typography import plain

MOST_POINTS = 400  # more cannot be seen, and in small charts half of them
LARGEST = 1e100  # larger values are not drawn
EPISODES = "train/roll/episodes"
CLOCK_POINTS = 120  # at which time and episodes of a run are given; between them straight lines
# by "steps", "time" and "episodes": values at the same instants, {"steps": [0, 500], "time": [0, 1.5]}
Clock = Mapping[str, Sequence[float]]
Clocks = Mapping[str, Clock]  # by run id
Numbers = Sequence[float]
Curve = Sequence[Point]


class Line(NamedTuple):
    """One curve; `colour` is a class of inspector.css, `low` and `high` bound its band where there is one."""

    name: str
    points: Curve
    colour: str
    low: Numbers = ()
    high: Numbers = ()
    run: str = ""
    """the run whose clock gives time and episodes at its env steps"""
    axis: str = ""
    """the only axis that its x values belong to; "" where they are env steps and a clock gives the others"""
    thin: bool = False
    """of one seed, behind the curve of its group"""


def clock(run: RunFacts) -> Clock:
    """Seconds and episodes over env steps, as far as they were recorded."""
    series = {"time": run.points(SECONDS), "episodes": run.points(EPISODES)}
    longest = max(series.values(), key=len) or [Point(0.0, 0.0)]
    steps = np.maximum.accumulate([point.x for point in longest[:: len(longest) // CLOCK_POINTS + 1]])
    result: dict[str, Numbers] = {"steps": _rounded(steps)}
    for name, points in series.items():
        valid = [point for point in points if 0 <= point.y < LARGEST]
        if valid:
            result[name] = _rounded(np.interp(steps, [point.x for point in valid], [point.y for point in valid]))
    return result


def board(name: str, clocks: Clocks, *charts: object) -> Markup:
    """Charts that are zoomed and smoothed together, under one row of tools."""
    return tag("div", tag("div", class_="tools"), *charts, class_="board", data_name=name, data_clocks=as_json(clocks))


def chart(title: str, lines: Sequence[Line], goal: float | None = None, small: bool = False, about: str = "") -> Markup:
    """An element that charts.js fills; the goal is dashed."""
    objects = []
    for line in lines:
        drawn = _drawable(line, MOST_POINTS // 2 if small or line.thin else MOST_POINTS)
        if drawn.points:
            objects.append(_line_object(drawn))
    if not objects:
        return note("no values yet")
    chart_object = {
        "title": title,
        "goal": goal if goal is not None and abs(goal) < LARGEST else None,
        "goalText": goal_text(goal),
        "small": small,
        "lines": objects,
    }
    return tag("figure", class_="chart small" if small else "chart", data_chart=as_json(chart_object), title=about)


def goal_text(value: float | None) -> str:
    """A goal as it was typed."""
    if value is None:
        return ""
    return plain(value) if abs(value) < 1e15 else f"{value:g}"


def constant(points: Curve) -> float | None:
    """The one value of a constant curve; None where it changes or has no finite value."""
    values = [point.y for point in points if abs(point.y) < LARGEST]
    if values and max(values) - min(values) <= 1e-12 * max(map(abs, values)):
        return min(values)
    return None


def _line_object(line: Line) -> dict[str, object]:
    """The line as charts.js reads it; empty entries are left out."""
    entries = {
        "name": line.name, "c": line.colour, "x": _rounded([point.x for point in line.points]),
        "y": _rounded([point.y for point in line.points]), "lo": _rounded(line.low), "hi": _rounded(line.high),
        "run": line.run, "axis": line.axis, "thin": line.thin,
    }  # fmt: skip
    return {entry_name: value for entry_name, value in entries.items() if value or entry_name == "name"}


def _drawable(line: Line, most: int) -> Line:
    """Without non-finite points, and every n-th point of many, the last one always."""
    rows = []  # [(point,)], with a band [(point, low, high)]
    columns = [column for column in (line.points, line.low, line.high) if column]
    for point, *band in zip(*columns, strict=True):
        if all(abs(value) < LARGEST for value in (*point, *band)):
            rows.append((point, *band))
    step = -(-len(rows) // most) or 1
    points, low, high = [*zip(*rows[::-step][::-1], strict=True), (), (), ()][:3]
    return line._replace(points=points, low=low, high=high)


def _rounded(values: Numbers | np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def as_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
