"""Puts line charts as numbers into the page; charts.js draws, zooms, smooths and exports them without the server.

No library draws them, because Plotly, which Gradio would load, is 4.6 MB of script; charts.js is a few kB.
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

MAX_POINTS = 400  # of a line, half as many in small charts; nobody can see more
MAX_VALUE = 1e100  # larger values are not drawn
EPISODES = "train/roll/episodes"
CLOCK_POINTS = 120  # points of a Clock; charts.js interpolates between them
# A Clock converts env steps to the other x axes. It has values at the same moments under "steps", "time" (seconds) and
# "episodes": {"steps": [0, 500], "time": [0, 1.5], "episodes": [0, 12]}
Clock = Mapping[str, Sequence[float]]
Clocks = Mapping[str, Clock]  # by run id; "" where a page has only one run
Numbers = Sequence[float]
Curve = Sequence[Point]


class Line(NamedTuple):
    """One line of a chart."""

    name: str
    points: Curve
    colour: str  # a class of inspector.css
    low: Numbers = ()  # lower edge of the band around the line; empty: no band
    high: Numbers = ()
    run: str = ""  # id of the run whose clock converts env steps to time and episodes
    axis: str = ""  # the only axis on which it is drawn; "": x values are env steps, and a clock converts them
    thin: bool = False  # the line of one seed, behind the line of its group


def clock(run: RunFacts) -> Clock:
    """Return the Clock of a run, with time and episodes only if the run recorded them."""
    series = {"time": run.points(SECONDS), "episodes": run.points(EPISODES)}
    longest = max(series.values(), key=len) or [Point(0.0, 0.0)]
    steps = np.maximum.accumulate([point.x for point in longest[:: len(longest) // CLOCK_POINTS + 1]])
    result: dict[str, Numbers] = {"steps": _rounded(steps)}
    for name, points in series.items():
        valid = [point for point in points if 0 <= point.y < MAX_VALUE]
        if valid:
            result[name] = _rounded(np.interp(steps, [point.x for point in valid], [point.y for point in valid]))
    return result


def board(name: str, clocks: Clocks, *charts: object) -> Markup:
    """Return an element with charts that are zoomed and smoothed together, and a row of tools above them."""
    return tag("div", tag("div", class_="tools"), *charts, class_="board", data_name=name, data_clocks=as_json(clocks))


def chart(title: str, lines: Sequence[Line], goal: float | None = None, small: bool = False, about: str = "") -> Markup:
    """Return an element that charts.js fills with a chart, or a note if there are no values.

    `goal`: height of a dashed line; `about`: the tooltip."""
    objects = []
    for line in lines:
        drawn = _drawable(line, MAX_POINTS // 2 if small or line.thin else MAX_POINTS)
        if drawn.points:
            objects.append(_line_object(drawn))
    if not objects:
        return note("no values yet")
    chart_object = {
        "title": title,
        "goal": goal if goal is not None and abs(goal) < MAX_VALUE else None,
        "goalText": goal_text(goal),
        "small": small,
        "lines": objects,
    }
    return tag("figure", class_="chart small" if small else "chart", data_chart=as_json(chart_object), title=about)


def goal_text(value: float | None) -> str:
    """Return a goal as text, as it was typed; "" for None."""
    if value is None:
        return ""
    return plain(value) if abs(value) < 1e15 else f"{value:g}"


def constant(points: Curve) -> float | None:
    """Return the value of a constant curve; None if it changes or has no finite value."""
    values = [point.y for point in points if abs(point.y) < MAX_VALUE]
    if values and max(values) - min(values) <= 1e-12 * max(map(abs, values)):
        return min(values)
    return None


def _line_object(line: Line) -> dict[str, object]:
    """Return a line as charts.js reads it; empty entries are left out."""
    entries = {
        "name": line.name, "c": line.colour, "x": _rounded([point.x for point in line.points]),
        "y": _rounded([point.y for point in line.points]), "lo": _rounded(line.low), "hi": _rounded(line.high),
        "run": line.run, "axis": line.axis, "thin": line.thin,
    }  # fmt: skip
    return {entry_name: value for entry_name, value in entries.items() if value or entry_name == "name"}


def _drawable(line: Line, most: int) -> Line:
    """Return a line without non-finite points; of more than `most` points, every n-th one and always the last."""
    rows = []  # (point,) each; with a band (point, low, high)
    columns = [column for column in (line.points, line.low, line.high) if column]
    for point, *band in zip(*columns, strict=True):
        if all(abs(value) < MAX_VALUE for value in (*point, *band)):
            rows.append((point, *band))
    step = -(-len(rows) // most) or 1
    # rows backwards, so that the last one is kept; then again as columns, filled up with () if there is no band
    points, low, high = [*zip(*rows[::-step][::-1], strict=True), (), (), ()][:3]
    return line._replace(points=points, low=low, high=high)


def _rounded(values: Numbers | np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def as_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
