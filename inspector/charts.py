"""Line charts as numbers in the page: charts.js draws, zooms, smooths and exports them without asking the server.

Drawn by us, not by a library: Plotly, which Gradio would load, is 4.6 MB of script; charts.js is a few kB.
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

POINTS = 400  # more cannot be seen, and in small half of them
LARGEST = 1e100  # what is beyond is not drawn
EPISODES = "train/roll/episodes"
CLOCK = 120  # places at which time and episodes of a run are told; between them lie straight lines
Clocks = Mapping[str, Mapping[str, Sequence[float]]]


class Line(NamedTuple):
    """One curve; `colour` is a class of inspector.css, `low` and `high` bound its band where there is one."""

    name: str
    points: Sequence[Point]
    colour: str
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    run: str = ""
    """whose clock tells time and episodes at its env steps"""
    axis: str = ""
    """the only axis its xs are of, "" where they are env steps and a clock tells the others"""
    thin: bool = False
    """of one seed, behind what its group does"""


def clock(each: RunFacts) -> Mapping[str, Sequence[float]]:
    """Seconds and episodes over env steps, of those that were written down."""
    series = {"time": each.points(SECONDS), "episodes": each.points(EPISODES)}
    longest = max(series.values(), key=len)
    steps = np.maximum.accumulate([point.x for point in longest[:: len(longest) // CLOCK + 1]] + [0.0] * (not longest))
    found: dict[str, Sequence[float]] = {"steps": _brief(steps)}
    for name, points in series.items():
        sound = [point for point in points if 0 <= point.y < LARGEST]
        if sound:
            found[name] = _brief(np.interp(steps, [point.x for point in sound], [point.y for point in sound]))
    return found


def board(name: str, clocks: Clocks, *charts: object) -> Markup:
    """Charts that are zoomed and smoothed together, under one row of tools."""
    return tag("div", tag("div", class_="tools"), *charts, class_="board", data_name=name, data_clocks=_json(clocks))


def chart(title: str, lines: Sequence[Line], goal: float | None = None, small: bool = False, about: str = "") -> Markup:
    """A place for charts.js; the goal is dashed."""
    lines = [_finite(line, POINTS // 2 if small or line.thin else POINTS) for line in lines]
    lines = [line for line in lines if line.points]
    if not lines:
        return note("nothing measured yet")
    data = {
        "title": title,
        "goal": goal if goal is not None and abs(goal) < LARGEST else None,
        "goalText": bound(goal),
        "small": small,
        "lines": [_plain(line) for line in lines],
    }
    return tag("figure", class_="chart small" if small else "chart", data_chart=_json(data), title=about)


def bound(value: float | None) -> str:
    """A goal as it was typed."""
    return "" if value is None else plain(value) if abs(value) < 1e15 else f"{value:g}"


def constant(points: Sequence[Point]) -> float | None:
    """The one value of a curve that has no other, None of one that moves or has no number."""
    ys = [point.y for point in points if abs(point.y) < LARGEST]
    low, high = min(ys, default=0.0), max(ys, default=1.0)
    return low if high - low <= 1e-12 * max(abs(low), abs(high)) else None


def _plain(line: Line) -> dict[str, object]:
    said: dict[str, object] = {"name": line.name, "c": line.colour, "x": _brief([point.x for point in line.points])}
    said["y"] = _brief([point.y for point in line.points])
    more = {"lo": _brief(line.low), "hi": _brief(line.high), "run": line.run, "axis": line.axis, "thin": line.thin}
    return said | {key: value for key, value in more.items() if value}


def _finite(line: Line, most: int) -> Line:
    """Without non-finite points, and every n-th point of many, the last one always."""
    keep = [place for place, (x, y) in enumerate(line.points) if abs(y) < LARGEST and abs(x) < LARGEST]
    for side in (line.low, line.high):
        keep = [place for place in keep if abs(side[place]) < LARGEST] if side else keep
    step = -(-len(keep) // most) or 1
    keep = keep[::-step][::-1]
    low, high = ([side[place] for place in keep] if side else [] for side in (line.low, line.high))
    return line._replace(points=[line.points[place] for place in keep], low=low, high=high)


def _brief(values: Sequence[float] | np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _json(data: object) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False)
