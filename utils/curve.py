"""Draws learning curves as SVG text, without a plotting library; readable on light and dark pages.

One run's returns and evaluations, or several seeds and their mean. Reports, the inspector and docs use it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import NamedTuple
from xml.sax.saxutils import escape

from stride.runstore.metrics_table import NAMES
from stride.runstore.metrics_table import Point as Point
from stride.utils.typography import plain, short

WIDTH, HEIGHT = 760, 360  # pixels of the picture
LEFT, RIGHT, TOP, BOTTOM = 72, 24, 56, 48  # pixels between the plot and the edges of the picture
MARGIN = 0.03  # space below the lowest tick, as a fraction of the axis
GOAL_HEIGHT = 20  # pixels that the goal's label takes above its line
POINTS = 600  # of a curve; more cannot be seen at this width
COLOURS = ("#0969da", "#bf3989", "#1a7f37", "#9a6700", "#8250df", "#cf222e", "#1b7c83", "#6e7781")
SEED_COLOURS = COLOURS[:1] + COLOURS[2:]  # without the second, which is the colour of the median

# The card paints its own background: a page may be dark while the reader's system is light.
STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de } .grid { stroke: #d8dee4 } .axis { stroke: #8c959f }
  text { font: 12px ui-sans-serif, system-ui, -apple-system, "Segoe UI", sans-serif; fill: #57606a }
  .title { font-size: 14px; font-weight: 600; fill: #1f2328 }
  .train { stroke: #54aeff } .val { stroke: #bf3989 } .dot { fill: #bf3989 } .goal { stroke: #1a7f37 }
  .seed { stroke: #54aeff; stroke-opacity: 0.6 } .mean { stroke: #bf3989 }
  .spread { fill: #bf3989; fill-opacity: 0.16; stroke: none }
  .first { stroke: #0969da } .firstband { fill: #54aeff; fill-opacity: 0.25 }
  .second { stroke: #bf3989 } .secondband { fill: #bf3989; fill-opacity: 0.2 }
  .third { stroke: #1a7f37 } .thirdband { fill: #1a7f37; fill-opacity: 0.15 }
  .fourth { stroke: #bc4c00 } .fourthband { fill: #bc4c00; fill-opacity: 0.15 }
  .fifth { stroke: #8250df } .fifthband { fill: #8250df; fill-opacity: 0.15 }
  .goaltext { fill: #1a7f37 } .goaltext, .name { stroke: #ffffff; stroke-width: 4; paint-order: stroke }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #30363d } .grid { stroke: #21262d } .axis { stroke: #6e7681 }
    text { fill: #8b949e } .title { fill: #e6edf3 }
    .train { stroke: #388bfd } .val { stroke: #f778ba } .dot { fill: #f778ba } .goal { stroke: #3fb950 }
    .seed { stroke: #388bfd } .mean { stroke: #f778ba } .spread { fill: #f778ba }
    .first { stroke: #388bfd } .second { stroke: #f778ba } .third { stroke: #3fb950 }
    .fourth { stroke: #f0883e } .fifth { stroke: #a371f7 }
    .goaltext { fill: #3fb950 } .goaltext, .name { stroke: #0d1117 }
  }
"""
MAX_TITLE_NAMES = 3  # names of a legend that fit beside the title
MAX_DOTS = 60  # with more evaluations no dots are drawn
CLASSES = ("first", "second", "third", "fourth", "fifth")  # CSS classes of several curves


class Band(NamedTuple):
    """A mean curve and the interval around it."""

    mean: Sequence[Point]
    low: Sequence[Point]
    high: Sequence[Point]


class CurveLine(NamedTuple):
    """A curve and how it is drawn."""

    points: Sequence[Point]
    style: str  # a class of STYLE
    width: float  # pixels
    colour: str = ""  # instead of the colour of the class


class Overlay(NamedTuple):
    """More curves and bands to draw behind those of a picture, with labels."""

    lines: Sequence[CurveLine] = ()
    bands: Mapping[str, Band] = MappingProxyType({})  # by CSS class
    labels: Sequence[str] = ()  # SVG elements


NO_OVERLAY = Overlay()


class Axes(NamedTuple):
    """The range of the data (x begins at 0), and its conversion to pixels, as text for SVG."""

    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> str:
        return f"{LEFT + value / self.x_high * (WIDTH - LEFT - RIGHT):.1f}"

    def y(self, value: float) -> str:
        height = HEIGHT - TOP - BOTTOM
        return f"{HEIGHT - BOTTOM - (value - self.y_low) / (self.y_high - self.y_low) * height:.1f}"

    def path(self, points: Iterable[Point]) -> str:
        return " ".join(f"{self.x(point.x)},{self.y(point.y)}" for point in points)


def curve_svg(title: str, train: Sequence[Point], val: Sequence[Point], goal: float | None) -> str:
    """Draw one run, return over env steps: training thin, evaluations thick with dots, the goal dashed."""
    curve_lines = [CurveLine(_thin(train), "train", 1.5), CurveLine(_thin(val), "val", 2.5)]
    legend = [(line.style, NAMES[line.style]) for line in curve_lines if line.points]
    return picture(title, curve_lines, goal, legend, dots=curve_lines[1].points)


def seeds_svg(
    title: str,
    seeds: Sequence[Sequence[Point]],
    mean: Sequence[Point],
    goal: float | None,
    overlay: Overlay = NO_OVERLAY,
) -> str:
    """Draw several seeds: each thin, their mean bold, the goal dashed."""
    curve_lines = [CurveLine(_thin(seed), "seed", 1.0) for seed in seeds]
    curve_lines.append(CurveLine(_thin(mean), "mean", 3.0))
    legend = [("seed", "seed"), ("mean", "mean")]
    return picture(title, [*overlay.lines, *curve_lines], goal, legend, overlay.bands, labels=overlay.labels)


def group_svg(title: str, seeds: Mapping[str, Sequence[Point]], band: Band, goal: float | None) -> str:
    """Draw a group: seeds thin, and their median bold with a band.

    If there are at most as many seeds as SEED_COLOURS, each has its own colour and its name below the title.
    """
    are_named = len(seeds) <= len(SEED_COLOURS)
    curve_lines = []
    for points, colour in zip(seeds.values(), SEED_COLOURS if are_named else repeat(""), strict=False):
        curve_lines.append(CurveLine(_thin(points), "several" if are_named else "seed", 1.2, colour))
    labels = _seed_names([*seeds]) if are_named else []
    curve_lines.append(CurveLine(band.mean, "mean", 3.0))
    bands = {"spread": band} if len(seeds) > 1 else {}
    return picture(title, curve_lines, goal, [("mean", "median, middle half")], bands, labels=labels)


def _seed_names(names: Sequence[str]) -> list[str]:
    """Return a row of names below the title, each in the colour of its curve."""
    pairs = zip(names, SEED_COLOURS, strict=False)
    texts = [f'<tspan dx="6" style="fill: {colour}">{escape(name)}</tspan>' for name, colour in pairs]
    return [f'<text x="{LEFT - 6}" y="{TOP - 10}">{"".join(texts)}</text>']


def bands_svg(title: str, bands: Mapping[str, Band], goal: float | None, overlay: Overlay = NO_OVERLAY) -> str:
    """Draw a curve with its band for each of `bands` (name -> Band, at most as many as CLASSES), the goal dashed."""
    legend = list(zip(CLASSES[: len(bands)], bands, strict=True))
    curve_lines = [CurveLine(bands[name].mean, style, 2.5) for style, name in legend]
    filled = {**overlay.bands, **{f"{style}band": bands[name] for style, name in legend}}
    return picture(title, [*overlay.lines, *curve_lines], goal, legend, filled, labels=overlay.labels)


def lines_svg(title: str, curves: Mapping[str, Sequence[Point]], goal: float | None) -> str:
    """Draw several curves (name -> points), each in its own colour with its name at the right, the goal dashed."""
    curve_lines = []
    labels = []
    for line_index, (curve_name, points) in enumerate(curves.items()):
        line_colour = COLOURS[line_index % len(COLOURS)]
        curve_lines.append(CurveLine(_thin(points), "several", 2.0, line_colour))
        position = f'x="{WIDTH - RIGHT - 4}" y="{TOP + 12 + 15 * line_index}" text-anchor="end"'
        labels.append(f'<text {position} style="fill: {line_colour}">{escape(curve_name)}</text>')
    return picture(title, curve_lines, goal, [], labels=labels)


def picture(
    title: str,
    lines: Sequence[CurveLine],
    goal: float | None,
    legend: list[tuple[str, str]],  # (class, name) of each line
    bands: Mapping[str, Band] = MappingProxyType({}),  # by class
    dots: Sequence[Point] = (),
    labels: Sequence[str] = (),
) -> str:
    """Return a complete SVG with curves, bands (mean and interval), dots, the goal and a legend."""
    points = [point for line in lines for point in line.points]
    points += [point for band in bands.values() for band_edge in band for point in band_edge]
    y_values = [point.y for point in points] + ([] if goal is None else [goal])
    y_ticks = ticks(min(y_values, default=0.0), max(y_values, default=1.0))
    # a curve that stays at the lowest mark is drawn above the axis, not on it
    lowest = y_ticks[0] - MARGIN * (y_ticks[-1] - y_ticks[0])
    axes = Axes(max((point.x for point in points), default=1.0) or 1.0, lowest, y_ticks[-1])
    elements = _grid(axes, y_ticks) + _goal(axes, goal, y_ticks)
    for line_style, band in bands.items():
        elements.append(f'<polygon class="{line_style}" points="{axes.path((*band.low, *band.high[::-1]))}"/>')
    for line in lines:
        stroke = f' stroke="{line.colour}"' if line.colour else ""
        pen = f'fill="none" stroke-width="{line.width}" stroke-linejoin="round"{stroke}'
        if line.points:
            elements.append(f'<polyline class="{line.style}" points="{axes.path(line.points)}" {pen}/>')
    if len(dots) <= MAX_DOTS:
        elements += [f'<circle class="dot" cx="{axes.x(dot.x)}" cy="{axes.y(dot.y)}" r="3"/>' for dot in dots]
    return svg_card(title, WIDTH, HEIGHT, LEFT, [*elements, *labels, *_legend(legend)])


def svg_card(title: str, width: int, height: int, title_x: int, body: Sequence[str], line_style: str = "") -> str:
    """Return a complete SVG: a card with a title, and the elements `body` on it; `line_style`: CSS after STYLE."""
    size = f'viewBox="0 0 {width} {height}" role="img" width="{width}" height="{height}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}{line_style}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        f'<text class="title" x="{title_x}" y="26">{escape(title)}</text>',
    ]
    return "\n".join([*head, *body, "</svg>", ""])


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` numbers that span [low, high]; their distance is 1, 2 or 5 times a power of ten."""
    if high <= low:
        half_range = max(abs(low) * 0.1, 1.0)
        low, high = low - half_range, high + half_range
    raw_step = (high - low) / count
    magnitude = 10.0 ** math.floor(math.log10(raw_step))
    tick_step = next(magnitude * factor for factor in (1, 2, 5, 10) if magnitude * factor >= raw_step * 0.999)
    first_index, last_index = math.floor(low / tick_step + 1e-9), math.ceil(high / tick_step - 1e-9)
    return [line_index * tick_step for line_index in range(first_index, last_index + 1)]


def _thin(points: Sequence[Point]) -> list[Point]:
    """Return the finite points of a curve, at most POINTS: more are averaged in groups of neighbours."""
    finite_points = [point for point in points if math.isfinite(point.x) and math.isfinite(point.y)]
    group_size = math.ceil(len(finite_points) / POINTS)
    if group_size <= 1:
        return finite_points
    groups = [finite_points[start : start + group_size] for start in range(0, len(finite_points), group_size)]
    return [Point(group[-1].x, sum(point.y for point in group) / len(group)) for group in groups]


def _grid(axes: Axes, y_ticks: list[float]) -> list[str]:
    bottom = HEIGHT - BOTTOM
    elements = []
    for tick in y_ticks:
        y = axes.y(tick)
        elements.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        elements.append(f'<text x="{LEFT - 8}" y="{y}" dy="4" text-anchor="end">{short(tick)}</text>')
    for tick in ticks(0.0, axes.x_high):
        if tick <= axes.x_high:
            x = axes.x(tick)
            elements.append(f'<line class="axis" x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 4}"/>')
            elements.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{short(tick)}</text>')
    elements.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    elements.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:g}" y="{HEIGHT - 10}" text-anchor="middle">env steps</text>')
    middle = (TOP + bottom) / 2
    elements.append(
        f'<text x="18" y="{middle:g}" text-anchor="middle" transform="rotate(-90 18 {middle:g})">return</text>'
    )
    return elements


def _goal(axes: Axes, goal: float | None, y_ticks: Sequence[float]) -> list[str]:
    """Return the dashed line of the goal with its label; [] without a goal.

    The label is at the left, where curves are still low, and below the line if a tick's label is close above it.
    """
    if goal is None:
        return []
    y = float(axes.y(goal))
    is_below = any(0 < y - float(axes.y(tick)) < GOAL_HEIGHT for tick in y_ticks)
    return [
        f'<line class="goal" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" '
        'stroke-width="1.5" stroke-dasharray="6 4"/>',
        f'<text class="goaltext" x="{LEFT + 6}" y="{y}" dy="{14 if is_below else -5}">goal {plain(goal)}</text>',
    ]


def _legend(entries: list[tuple[str, str]]) -> list[str]:
    """Return the legend of (class, name): side by side after the title, or if there are many, as a list in the plot."""
    elements = []
    entry_width = 26 + 6 * max([5, *(len(curve_name) for _, curve_name in entries)])
    for line_index, (line_style, curve_name) in enumerate(reversed(entries)):
        x, y = WIDTH - RIGHT - entry_width - (entry_width + 20) * line_index, 22
        if len(entries) > MAX_TITLE_NAMES:
            x, y = LEFT + 12, TOP + 12 + 18 * (len(entries) - 1 - line_index)
        elements.append(f'<line class="{line_style}" x1="{x}" x2="{x + 20}" y1="{y}" y2="{y}" stroke-width="2.5"/>')
        elements.append(f'<text class="name" x="{x + 26}" y="{y + 4}">{escape(curve_name)}</text>')
    return elements
