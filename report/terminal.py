"""Draw a run on a terminal: pure functions from a RunView to lines of rich Text. Console and monitor use them.

Widths of columns are constants, because a table of twenty rows is drawn four times a second during the training and
must be cheap. Text from outside passes `clean` first: it may contain control codes or characters two cells wide.
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
TITLE, NARROW_TITLE = 26, 18  # columns of a title at most; NARROW_TITLE on pages below NARROW columns
NARROW, WIDE = 70, 99  # columns of a page; from WIDE on there is space for units
MAX_BAR, MIN_BAR = 40, 8  # columns of a progress bar
MIN_CELLS_BY_BOUND = 6  # cells of a sparkline with a bound beside it; with less space the bound is left out
MIN_CELLS = 4  # cells of a sparkline; with less space there is none
MAX_FOLDED_LINES = 3  # lines of one text
MAX_ALERTS = 3  # lines of alerts below the table
AXIS_WIDTH = 12  # columns for the axis of a curve
MAX_CURVE_HEIGHT, MIN_CURVE_HEIGHT = 12, 3  # lines of one curve

Lines = list[Text]
Points = Sequence[tuple[float, float]]


class Page(NamedTuple):
    """The space to draw on."""

    width: int
    """columns to write on: one less than the terminal has, because some terminals wrap after the last one"""
    height: int
    ascii_only: bool = False


def clean(text: object, most: int = 200) -> str:
    """Return the first `most` characters; control codes and characters not exactly one cell wide become `?`."""
    return "".join(letter if letter.isprintable() and cell_len(letter) == 1 else "?" for letter in str(text)[:most])


def line_of(text: str = "", style: str = "") -> Text:
    """Make a line that is cut, not folded, if the terminal is too narrow."""
    return Text(text, style=style, no_wrap=True, overflow="crop")


def labelled(label: str, text: str = "", style: str = "") -> Text:
    """Make a line with a dim label in its own column: `  speed   4,812 steps/s`."""
    return line_of().append(f"{INDENT}{label:<{LABEL}}", "dim").append(text, style)


def folded(label: str, text: str, page: Page) -> Lines:
    """Fold a text into at most MAX_FOLDED_LINES lines; the first one has the label."""
    text_lines = []
    for part in wrap(text, max(10, page.width - len(INDENT) - LABEL))[:MAX_FOLDED_LINES]:
        text_lines.append(labelled(label, part))
        label = ""
    return text_lines


def at_right(line: Text, right_text: Text, page: Page) -> Text:
    """Append `right_text` at the right edge of the line, if it fits with two blanks before it."""
    blanks = page.width - line.cell_len - right_text.cell_len
    return line.append(" " * blanks).append_text(right_text) if blanks >= 2 else line


def progress_lines(steps: Progress, goal: Progress | None, page: Page) -> Lines:
    """Draw the bars of budget and goal, equally long; without bars if the texts leave no space for them."""
    width = page.width - len(INDENT) - LABEL
    bars = [steps, goal] if goal else [steps]
    texts = [_progress_text(progress, width) for progress in bars]
    length = min(MAX_BAR, width - max(text.cell_len for text in texts) - len(INDENT))
    text_lines = []
    for progress, text in zip(bars, texts, strict=True):
        line = labelled(progress.label)
        if progress.fraction is not None and length >= MIN_BAR:
            done, remaining = bar(progress.fraction, length, page.ascii_only)
            line.append(done, _progress_style(progress)).append(remaining, "dim").append(INDENT)
        text_lines.append(line.append_text(text))
    return text_lines


def _progress_style(progress: Progress) -> str:
    if progress.label == "steps":
        return "cyan"
    return "green" if progress.reached else "magenta"


def _progress_text(progress: Progress, width: int) -> Text:
    """Return the text behind a bar, with the longest addition that leaves space for a bar."""
    style = "bold"
    if progress.label != "steps" and progress.fraction is not None:
        style = f"bold {_progress_style(progress)}"
    text = Text().append(progress.words, style)
    available = width - text.cell_len - len(INDENT) - MIN_BAR
    for addition in progress.more:
        if len(addition) + 3 <= available:
            return text.append(f"   {addition}", "dim")
    return text


def metric_table(rows: Sequence[MetricRow], page: Page, hidden: str = "") -> Lines:
    """Draw a line for each metric, with the name of its area where that changes.

    `hidden`: a last line about metrics that are not shown, "5 more in metrics.csv".
    """
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
    """Draw area, title, value, unit (on wide pages), change, sparkline, and the bound that the value exceeds."""
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
    if metric_row.change:  # an arrow and the difference, green for an improvement
        change = f"  {('-+' if page.ascii_only else '▼▲')[metric_row.rises]} {metric_row.change}"
        if metric_row.good is not None:
            style = "green" if metric_row.good else "red"
    line.append(f"{change:<{CHANGE}}", style)
    available = page.width - line.cell_len - len(INDENT)
    bound_width = len(metric_row.bound) + len(INDENT)
    if metric_row.bound and available - bound_width >= MIN_CELLS_BY_BOUND:
        cells = min(TAIL, available - bound_width)
        line.append(f"{INDENT}{sparkline(metric_row.tail, cells, page.ascii_only):<{cells}}", "cyan")
        line.append(f"{INDENT}{clean(metric_row.bound)}", "yellow")
    elif available >= MIN_CELLS:  # without the bound, which the alerts below the table repeat
        line.append(INDENT + sparkline(metric_row.tail, min(TAIL, available), page.ascii_only), "cyan")
    line.truncate(page.width)
    return line


def alert_lines(alerts: Sequence[Alert], page: Page, most: int = MAX_ALERTS) -> Lines:
    """Draw a line for each open alert, at most `most`: which bound is exceeded, and what to try."""
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
    """Draw each curve, a list of (env steps, value), below its title; curves without enough space are left out."""
    text_lines: Lines = []
    for title, points in curves.items():
        # 4 more lines: the title, the axis (two lines), a free one
        height = min(MAX_CURVE_HEIGHT, page.height // len(curves) - 4)
        if height >= MIN_CURVE_HEIGHT:
            steps, values = zip(*points, strict=True)
            chart = area_chart(steps, values, max(20, page.width - AXIS_WIDTH), height)
            text_lines.append(line_of(title, "bold"))
            text_lines += [line_of(text, "cyan") for text in chart.split("\n")]
            text_lines.append(line_of())
    return text_lines[: page.height]


def drawable(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points (env steps, value) whose values are finite; [] if they are too few for a curve."""
    finite_points = [point for point in points if math.isfinite(point[1])]
    return finite_points if len(finite_points) > 1 and finite_points[0][0] < finite_points[-1][0] else []


def encoded(text_lines: Iterable[Text], unicode: bool, colours: bool) -> list[str]:
    """Convert lines to strings with a terminal's colour codes; without `unicode` characters beyond ASCII become `?`."""
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
