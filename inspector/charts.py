"""Line charts as SVG whose colours come from the page (inspector.css), at home in dark and in light."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from inspector.markup import Markup, join, safe, tag
from report.curve import Point, ticks
from report.typography import plain, short

POINTS = 400  # more cannot be seen, and in small half of them
LARGEST = 1e100  # what is beyond is not drawn


class Line(NamedTuple):
    """One curve; `colour` is a class of inspector.css, `low` and `high` bound its band where there is one."""

    name: str
    points: Sequence[Point]
    colour: str
    low: Sequence[float] = ()
    high: Sequence[float] = ()


class Size(NamedTuple):
    """Of the drawing, in its own units."""

    width: int
    height: int
    left: int = 54
    bottom: int = 24
    top: int = 10
    right: int = 12


WIDE, NARROW, SMALL = Size(1000, 300), Size(380, 240), Size(320, 130)


class Plane(NamedTuple):
    """Ranges of the data, and their way to the drawing."""

    size: Size
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        return self.size.left + value / self.x_high * (self.size.width - self.size.left - self.size.right)

    def y(self, value: float) -> float:
        part = (value - self.y_low) / (self.y_high - self.y_low)
        return self.size.height - self.size.bottom - part * (self.size.height - self.size.top - self.size.bottom)

    def path(self, points: Sequence[Point]) -> str:
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)


def responsive(lines: Sequence[Line], goal: float | None = None) -> Markup:
    """The chart drawn for a desk and for a phone; the style sheet shows one of them."""
    legend = tag("div", *(tag("span", line.name, class_=f"key {line.colour}") for line in lines), class_="legend")
    wide, narrow = (
        tag("div", draw(lines, size, goal), class_=name) for size, name in ((WIDE, "wide"), (NARROW, "narrow"))
    )
    return join([legend, wide, narrow])


def draw(lines: Sequence[Line], size: Size = SMALL, goal: float | None = None) -> Markup:
    """All lines over env steps; the goal is dashed."""
    lines = [_finite(line, POINTS // 2 if size is SMALL else POINTS) for line in lines]
    xs = [point.x for line in lines for point in line.points]
    ys = [y for line in lines for y in (*(point.y for point in line.points), *line.low, *line.high)]
    goal = goal if goal is not None and abs(goal) < LARGEST else None
    ys += [] if goal is None else [goal]
    if not xs:
        return tag("p", "nothing measured yet", class_="note")
    marks = ticks(*_range(ys), 3 if size.height < 200 else 5)
    plane = Plane(size, max(xs) or 1.0, marks[0], marks[-1])
    parts = [*_grid(plane, marks), *([] if goal is None else [_goal(plane, goal)])]
    for line in lines:
        parts += [_band(plane, line), _curve(plane, line)]
    return Markup(f'<svg viewBox="0 0 {size.width} {size.height}" role="img">{join(parts)}</svg>')


def bound(value: float | None) -> str:
    """A goal as it was typed."""
    return "" if value is None else plain(value) if abs(value) < 1e15 else f"{value:g}"


def _range(ys: Sequence[float]) -> tuple[float, float]:
    """Lowest and highest; one number where floats have no room for marks between them."""
    low, high = min(ys), max(ys)
    return (low, high) if high - low > 1e-12 * max(abs(low), abs(high), 1e-80) else (low, low)


def _finite(line: Line, most: int) -> Line:
    """Without non-finite points, and every n-th point of many, the last one always."""
    keep = [place for place, (x, y) in enumerate(line.points) if abs(y) < LARGEST and abs(x) < LARGEST]
    for side in (line.low, line.high):
        keep = [place for place in keep if abs(side[place]) < LARGEST] if side else keep
    step = math.ceil(len(keep) / most) or 1
    keep = keep[::-step][::-1]
    low, high = ([side[place] for place in keep] if side else [] for side in (line.low, line.high))
    return line._replace(points=[line.points[place] for place in keep], low=low, high=high)


def _grid(plane: Plane, marks: Sequence[float]) -> list[Markup]:
    size, parts = plane.size, []
    for mark in marks:
        y = f"{plane.y(mark):.1f}"
        parts.append(Markup(f'<line class="grid" x1="{size.left}" x2="{size.width - size.right}" y1="{y}" y2="{y}"/>'))
        parts.append(Markup(f'<text x="{size.left - 6}" y="{y}" dy="4" text-anchor="end">{safe(short(mark))}</text>'))
    count = 6 if size is WIDE else 3
    for mark in (mark for mark in ticks(0.0, plane.x_high, count) if mark <= plane.x_high):
        at = f'x="{plane.x(mark):.1f}" y="{size.height - 6}"'
        parts.append(Markup(f'<text {at} text-anchor="middle">{safe(short(mark))}</text>'))
    return parts


def _goal(plane: Plane, goal: float) -> Markup:
    y, size = plane.y(goal), plane.size
    line = f'<line class="goal" x1="{size.left}" x2="{size.width - size.right}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return Markup(
        f'{line}<text class="goaltext" x="{size.left + 6}" y="{y:.1f}" dy="-5">goal {safe(bound(goal))}</text>'
    )


def _band(plane: Plane, line: Line) -> Markup:
    if not line.low:
        return Markup("")
    xs = [point.x for point in line.points]
    upper = [Point(x, y) for x, y in zip(xs, line.high, strict=True)]
    lower = [Point(x, y) for x, y in zip(xs, line.low, strict=True)]
    return Markup(f'<polygon class="band {line.colour}" points="{plane.path([*upper, *reversed(lower)])}"/>')


def _curve(plane: Plane, line: Line) -> Markup:
    if len(line.points) == 1:
        (x, y) = line.points[0]
        return Markup(f'<circle class="dot {line.colour}" cx="{plane.x(x):.1f}" cy="{plane.y(y):.1f}" r="3"/>')
    return Markup(f'<polyline class="curve {line.colour}" points="{plane.path(line.points)}"/>')
