"""Learning curves as hand-written SVG, readable on light and dark pages, without a plotting library: one run's training
and validation, or the seeds of a variant and their mean."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from stride.runstore.metrics_table import Point as Point
from stride.utils.typography import plain, short

WIDTH, HEIGHT = 760, 360
LEFT, RIGHT, TOP, BOTTOM = 72, 24, 56, 48
POINTS = 600  # more cannot be seen at this width
COLOURS = ("#0969da", "#bf3989", "#1a7f37", "#9a6700", "#8250df", "#cf222e", "#1b7c83", "#6e7781")

# The card paints its own background: a page may be dark while the reader's system is light.
STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de } .grid { stroke: #d8dee4 } .axis { stroke: #8c959f }
  text { font: 12px ui-sans-serif, system-ui, -apple-system, "Segoe UI", sans-serif; fill: #57606a }
  .title { font-size: 14px; font-weight: 600; fill: #1f2328 }
  .train { stroke: #54aeff } .val { stroke: #bf3989 } .dot { fill: #bf3989 } .goal { stroke: #1a7f37 }
  .seed { stroke: #54aeff; stroke-opacity: 0.6 } .mean { stroke: #bf3989 }
  .thin { stroke: #54aeff; stroke-opacity: 0.8 } .spread { fill: #bf3989; fill-opacity: 0.16; stroke: none }
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
    .seed, .thin { stroke: #388bfd } .mean { stroke: #f778ba } .spread { fill: #f778ba }
    .first { stroke: #388bfd } .second { stroke: #f778ba } .third { stroke: #3fb950 }
    .fourth { stroke: #f0883e } .fifth { stroke: #a371f7 }
    .goaltext { fill: #3fb950 } .goaltext, .name { stroke: #0d1117 }
  }
"""
MOST_BESIDE = 3  # names beside the title
PLACES = ("first", "second", "third", "fourth", "fifth")


class Band(NamedTuple):
    """A mean and the interval around it."""

    mean: Sequence[Point]
    low: Sequence[Point]
    high: Sequence[Point]


class Frame(NamedTuple):
    """The range of the data and its way to pixels."""

    x_high: float
    y_low: float
    y_high: float

    def at(self, point: Point) -> str:
        x = LEFT + point.x / self.x_high * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - (point.y - self.y_low) / (self.y_high - self.y_low) * (HEIGHT - TOP - BOTTOM)
        return f"{x:.1f},{y:.1f}"


def curve_svg(title: str, train: Sequence[Point], val: Sequence[Point], goal: float | None) -> str:
    """Episode reward over env steps: training thin, validation strong with its points, the goal dashed."""
    train, val = _thin(_finite(train)), _thin(_finite(val))
    frame, x_ticks, y_ticks = _frame(train + val, goal)
    body = _axes(frame, x_ticks, y_ticks) + _goal(frame, goal)
    body += _line(frame, train, "train", 1.5) + _line(frame, val, "val", 2.5)
    if len(val) <= 60:
        body += [_dot(frame, point) for point in val]
    return _card(title, [name for name, points in (("train", train), ("val", val)) if points], body)


def seeds_svg(title: str, seeds: Sequence[Sequence[Point]], mean: Sequence[Point], goal: float | None) -> str:
    """The same of several runs that differ in their seed: each thin, their mean bold, the goal dashed."""
    lines, middle = [_thin(_finite(seed)) for seed in seeds], _thin(_finite(mean))
    frame, x_ticks, y_ticks = _frame([point for line in (*lines, middle) for point in line], goal)
    body = _axes(frame, x_ticks, y_ticks) + _goal(frame, goal)
    for line in lines:
        body += _line(frame, line, "seed", 1.0)
    body += _line(frame, middle, "mean", 3.0)
    return _card(title, ["seed", "mean"], body)


def group_svg(title: str, seeds: Sequence[Sequence[Point]], band: Band, goal: float | None) -> str:
    """Seeds thin, their median bold in its band, the goal dashed."""
    lines = [_thin(_finite(seed)) for seed in seeds]
    frame, x_ticks, y_ticks = _frame([point for line in (*lines, *band) for point in line], goal)
    body = _axes(frame, x_ticks, y_ticks) + _goal(frame, goal)
    if len(lines) > 1:
        outline = " ".join(frame.at(point) for point in (*band.low, *band.high[::-1]))
        body.append(f'<polygon class="spread" points="{outline}"/>')
    for line in lines:
        body += _line(frame, line, "thin", 1.0)
    body += _line(frame, [*band.mean], "mean", 3.0)
    return _card(title, ["thin", "mean"], body, ["seed", "median, middle half"])


def bands_svg(title: str, bands: Mapping[str, Band], goal: float | None) -> str:
    """Up to as many lines as there are PLACES, each in its band, the goal dashed."""
    frame, x_ticks, y_ticks = _frame([point for band in bands.values() for line in band for point in line], goal)
    body = _axes(frame, x_ticks, y_ticks) + _goal(frame, goal)
    names = dict(zip(bands, PLACES[: len(bands)], strict=True))
    for name, band in bands.items():
        outline = " ".join(frame.at(point) for point in (*band.low, *band.high[::-1]))
        body.append(f'<polygon class="{names[name]}band" points="{outline}"/>')
    for name, band in bands.items():
        body += _line(frame, [*band.mean], names[name], 2.5)
    return _card(title, list(names.values()), body, list(bands))


def lines_svg(title: str, curves: Mapping[str, Sequence[Point]], goal: float | None) -> str:
    """Several curves, each in a colour of its own with its name below the title, the goal dashed."""
    sound = {name: _thin(_finite(points)) for name, points in curves.items()}
    frame, x_ticks, y_ticks = _frame([point for line in sound.values() for point in line], goal)
    body = _axes(frame, x_ticks, y_ticks) + _goal(frame, goal)
    for place, (name, line) in enumerate(sound.items()):
        colour = COLOURS[place % len(COLOURS)]
        body += [each.replace("/>", f' stroke="{colour}"/>') for each in _line(frame, line, "several", 2.0)]
        body.append(f'<text x="{WIDTH - RIGHT - 4}" y="{TOP + 12 + 15 * place}" text-anchor="end" '
                    f'style="fill: {colour}">{escape(name)}</text>')  # fmt: skip
    return _card(title, [], body)


def _card(title: str, legend: list[str], body: list[str], words: Sequence[str] = ()) -> str:
    """The whole picture around what was drawn."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'width="{WIDTH}" height="{HEIGHT}">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>',
            f'<text class="title" x="{LEFT}" y="26">{escape(title)}</text>',
            *body,
            *_legend(legend, words or legend),
            "</svg>",
            "",
        ]
    )


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers (1, 2 or 5 times a power of ten) that span [low, high]."""
    if high <= low:
        half = max(abs(low) * 0.1, 1.0)
        low, high = low - half, high + half
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


def _finite(points: Sequence[Point]) -> list[Point]:
    return [point for point in points if math.isfinite(point.x) and math.isfinite(point.y)]


def _thin(points: list[Point]) -> list[Point]:
    """Means of neighbours, so that a long run makes no larger file than a short one."""
    size = math.ceil(len(points) / POINTS)
    if size <= 1:
        return points
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    return [Point(group[-1].x, sum(point.y for point in group) / len(group)) for group in groups]


def _frame(points: list[Point], goal: float | None) -> tuple[Frame, list[float], list[float]]:
    ys = [point.y for point in points] + ([] if goal is None else [goal])
    y_ticks = ticks(min(ys, default=0.0), max(ys, default=1.0))
    x_high = max((point.x for point in points), default=1.0) or 1.0
    x_ticks = [tick for tick in ticks(0.0, x_high) if tick <= x_high]
    return Frame(x_high, y_ticks[0], y_ticks[-1]), x_ticks, y_ticks


def _axes(frame: Frame, x_ticks: list[float], y_ticks: list[float]) -> list[str]:
    bottom, lines = HEIGHT - BOTTOM, []
    for tick in y_ticks:
        y = frame.at(Point(0.0, tick)).split(",")[1]
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y}" dy="4" text-anchor="end">{short(tick)}</text>')
    for tick in x_ticks:
        x = frame.at(Point(tick, frame.y_low)).split(",")[0]
        lines.append(f'<line class="axis" x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 4}"/>')
        lines.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{short(tick)}</text>')
    lines.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    lines.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:g}" y="{HEIGHT - 10}" text-anchor="middle">env steps</text>')
    middle = (TOP + bottom) / 2
    lines.append(
        f'<text x="18" y="{middle:g}" text-anchor="middle" transform="rotate(-90 18 {middle:g})">episode reward</text>'
    )
    return lines


def _goal(frame: Frame, goal: float | None) -> list[str]:
    """The dashed line, where there is a goal; its label stands at the left, where a curve has not yet arrived."""
    if goal is None:
        return []
    y = float(frame.at(Point(0.0, goal)).split(",")[1])
    return [
        f'<line class="goal" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" '
        'stroke-width="1.5" stroke-dasharray="6 4"/>',
        f'<text class="goaltext" x="{LEFT + 6}" y="{y}" dy="-5">goal {plain(goal)}</text>',
    ]


def _line(frame: Frame, points: list[Point], name: str, width: float) -> list[str]:
    if not points:
        return []
    path = " ".join(frame.at(point) for point in points)
    return [f'<polyline class="{name}" points="{path}" fill="none" stroke-width="{width}" stroke-linejoin="round"/>']


def _dot(frame: Frame, point: Point) -> str:
    x, y = frame.at(point).split(",")
    return f'<circle class="dot" cx="{x}" cy="{y}" r="3"/>'


def _legend(names: Sequence[str], words: Sequence[str]) -> list[str]:
    """Side by side behind the title, of many one below the other in the plot."""
    lines, reach = [], 26 + 6 * max([5, *map(len, words)])
    for place, (name, word) in enumerate(zip(reversed(names), reversed(words), strict=True)):
        x, y = WIDTH - RIGHT - reach - (reach + 20) * place, 22
        if len(names) > MOST_BESIDE:
            x, y = LEFT + 12, TOP + 12 + 18 * (len(names) - 1 - place)
        lines.append(f'<line class="{name}" x1="{x}" x2="{x + 20}" y1="{y}" y2="{y}" stroke-width="2.5"/>')
        lines.append(f'<text class="name" x="{x + 26}" y="{y + 4}">{escape(word)}</text>')
    return lines
