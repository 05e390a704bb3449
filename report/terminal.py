"""How a run is drawn on a terminal: pure functions from a RunView to lines of rich Text, for console and monitor.

Columns are set by hand: a table of twenty rows is drawn four times a second beside the training and must stay cheap.
Foreign text passes `clean` first: no code that commands a terminal, no character wider than a cell.
"""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from stride.config.metrics import area_of
from stride.report.run_view import MetricRow, Progress
from stride.runstore.history import TAIL, Alert
from stride.runstore.metrics_table import NAMES
from stride.utils.typography import area_chart, bar, sparkline

INDENT = "  "
LABEL, VALUE, UNIT, CHANGE = 8, 11, 8, 12  # widths of columns
TITLE, NARROW_TITLE = 26, 18  # most columns of a title; on pages below NARROW columns
NARROW, WIDE = 70, 99  # columns; from WIDE on there is space for units
LONGEST_BAR, SHORTEST_BAR = 40, 8
SPARKLINE = 6  # cells of a sparkline that a bound beside it leaves
FEWEST_CELLS = 4  # of a sparkline
MOST_FOLDED = 3  # lines that one label takes
MOST_ALERTS = 3  # lines below the table
AXIS = 12  # columns beside a curve
TALLEST_CURVE, LOWEST_CURVE = 12, 3  # lines

Lines = list[Text]
Points = Sequence[tuple[float, float]]


class Page(NamedTuple):
    """The space that is drawn on."""

    width: int
    """columns that may be written on: the last one of a terminal stays free, or some of them wrap"""
    height: int
    ascii_only: bool = False


def clean(text: object, most: int = 200) -> str:
    """The first `most` characters; each that commands a terminal, or is not exactly one cell wide, becomes `?`."""
    return "".join(letter if letter.isprintable() and cell_len(letter) == 1 else "?" for letter in str(text)[:most])


def line_of(text: str = "", style: str = "") -> Text:
    """A line that is cut, not folded, where there is no space for it."""
    return Text(text, style=style, no_wrap=True, overflow="crop")


def labelled(label: str, text: str = "", style: str = "") -> Text:
    return line_of().append(f"{INDENT}{label:<{LABEL}}", "dim").append(text, style)


def folded(label: str, text: str, page: Page) -> Lines:
    """The text behind its label, in a few lines."""
    text_lines = []
    for part in wrap(text, max(10, page.width - len(INDENT) - LABEL))[:MOST_FOLDED]:
        text_lines.append(labelled(label, part))
        label = ""
    return text_lines


def at_right(line: Text, right_text: Text, page: Page) -> Text:
    """`right_text` at the right edge, where it fits with two blanks before it."""
    blanks = page.width - line.cell_len - right_text.cell_len
    return line.append(" " * blanks).append_text(right_text) if blanks >= 2 else line


def progress_lines(steps: Progress, goal: Progress | None, page: Page) -> Lines:
    """The bars of budget and goal, both as long as the text leaves space for; no bars where it leaves none."""
    width = page.width - len(INDENT) - LABEL
    bars = [steps, goal] if goal else [steps]
    texts = [_progress_text(progress, width) for progress in bars]
    length = min(LONGEST_BAR, width - max(text.cell_len for text in texts) - len(INDENT))
    text_lines = []
    for progress, text in zip(bars, texts, strict=True):
        line = labelled(progress.label)
        if progress.fraction is not None and length >= SHORTEST_BAR:
            done, remaining = bar(progress.fraction, length, page.ascii_only)
            line.append(done, _progress_style(progress)).append(remaining, "dim").append(INDENT)
        text_lines.append(line.append_text(text))
    return text_lines


def _progress_style(progress: Progress) -> str:
    if progress.label == "steps":
        return "cyan"
    return "green" if progress.reached else "magenta"


def _progress_text(progress: Progress, width: int) -> Text:
    """The text behind a bar, with the longest addition that leaves space for a bar."""
    style = "bold"
    if progress.label != "steps" and progress.fraction is not None:
        style = f"bold {_progress_style(progress)}"
    text = Text().append(progress.words, style)
    available = width - text.cell_len - len(INDENT) - SHORTEST_BAR
    for addition in progress.more:
        if len(addition) + 3 <= available:
            return text.append(f"   {addition}", "dim")
    return text


def metric_table(rows: Sequence[MetricRow], page: Page, hidden: str = "") -> Lines:
    """A line per metric, area by area; below them `hidden`, which counts the metrics that are not shown."""
    most = TITLE if page.width >= NARROW else NARROW_TITLE
    title_width = min(most, max((len(metric_row.metric.title) for metric_row in rows), default=0))
    text_lines = []
    area = ""
    for metric_row in rows:
        row_area = area_of(metric_row.metric.name)
        is_named = row_area == area or row_area in NAMES  # Evaluation and Test are their own headings
        text_lines.append(_metric_line(metric_row, "" if is_named else row_area, title_width, page))
        area = row_area
    if hidden:
        text_lines.append(line_of(f"{INDENT}{hidden}", "dim"))
    return text_lines


def _metric_line(metric_row: MetricRow, area: str, title_width: int, page: Page) -> Text:
    """area, title, value, change, sparkline, what is alarming; the unit where the page is wide enough."""
    metric = metric_row.metric
    line = labelled(clean(area)[: LABEL - 1])
    line.append(f"{clean(metric.title)[:title_width]:<{title_width}}", "bold" if metric.highlight else "")
    value = f"! {metric_row.value}" if metric_row.bound else metric_row.value
    line.append(f"{value:>{VALUE}}", "bold yellow" if metric_row.bound else "bold")
    if page.width >= WIDE:
        unit = clean(metric.unit.replace("none", ""))
        if page.ascii_only:
            unit = unit.encode("ascii", "replace").decode()
        line.append(f" {unit:<{UNIT}}"[: UNIT + 1], "dim")
    change = ""
    style = "dim"
    if metric_row.change:  # an arrow and the difference, green where it is for the better
        change = f"  {('-+' if page.ascii_only else '▼▲')[metric_row.rises]} {metric_row.change}"
        if metric_row.good is not None:
            style = "green" if metric_row.good else "red"
    line.append(f"{change:<{CHANGE}}", style)
    available = page.width - line.cell_len - len(INDENT)
    bound_width = len(metric_row.bound) + len(INDENT)
    if metric_row.bound and available - bound_width >= SPARKLINE:
        cells = min(TAIL, available - bound_width)
        line.append(f"{INDENT}{sparkline(metric_row.tail, cells, page.ascii_only):<{cells}}", "cyan")
        line.append(f"{INDENT}{clean(metric_row.bound)}", "yellow")
    elif available >= FEWEST_CELLS:  # a bound that leaves too little space is told below the table only
        line.append(INDENT + sparkline(metric_row.tail, min(TAIL, available), page.ascii_only), "cyan")
    line.truncate(page.width)
    return line


def alert_lines(alerts: Sequence[Alert], page: Page, most: int = MOST_ALERTS) -> Lines:
    """A line for each open alert: which bound is exceeded, and what to try."""
    text_lines = []
    for alert in alerts[:most]:
        line = line_of().append(f"{INDENT}! ", "bold yellow")
        line.append(clean(f"{alert.title} {alert.bound}"), "yellow").append(f"  {clean(alert.tip, 400)}", "dim")
        if line.cell_len > page.width:
            line.truncate(page.width - 3)
            line.append("...", "dim")
        text_lines.append(line)
    if len(alerts) > most:
        text_lines.append(line_of(f"{INDENT}! and {len(alerts) - most} more", "yellow"))
    return text_lines


def curve_lines(curves: Mapping[str, Points], page: Page) -> Lines:
    """Each curve, of points (env steps, value), below its title; as many as there is space for."""
    text_lines: Lines = []
    for title, points in curves.items():
        height = min(TALLEST_CURVE, page.height // len(curves) - 4)  # beside it title, axis of two lines, a free one
        if height >= LOWEST_CURVE:
            steps, values = zip(*points, strict=True)
            chart = area_chart(steps, values, max(20, page.width - AXIS), height)
            text_lines.append(line_of(title, "bold"))
            text_lines += [line_of(text, "cyan") for text in chart.split("\n")]
            text_lines.append(line_of())
    return text_lines[: page.height]


def drawable(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of a curve whose values are finite; [] where they make no curve yet."""
    finite_points = [point for point in points if math.isfinite(point[1])]
    return finite_points if len(finite_points) > 1 and finite_points[0][0] < finite_points[-1][0] else []


def encoded(text_lines: Iterable[Text], unicode: bool, colours: bool) -> list[str]:
    """Each line as a terminal takes it; without `unicode` every character beyond ASCII becomes `?`."""
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="standard" if colours else None, no_color=False
    )
    texts = []
    for line in text_lines:
        with console.capture() as captured:
            console.print(line, end="", soft_wrap=True)
        text = captured.get()
        if not unicode:
            text = text.replace("±", "+-").encode("ascii", "replace").decode()
        texts.append(text)
    return texts
