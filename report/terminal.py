"""How a run is drawn on a terminal: pure functions from a RunView to lines of rich Text, for console and monitor.

Columns are set by hand: a table of twenty rows is drawn four times a second next to the training and must stay cheap.
What came from outside passes `clean` first: nothing that commands a terminal, nothing wider than a cell.
"""

import io
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from stride.config.metric_order import area_of
from stride.report.run_view import MetricRow, Progress
from stride.runstore.history import TAIL, Alert
from stride.utils.typography import area_chart, bar, sparkline

INDENT = "  "
LABEL, VALUE, UNIT, CHANGE = 8, 11, 8, 12  # widths of columns
TITLE, NARROW_TITLE = 26, 18  # most columns of a title; where less than NARROW are there
NARROW, WIDE = 70, 99  # columns; from WIDE on there is room for units
LONGEST_BAR, SHORTEST_BAR = 40, 8
SPARK = 6  # cells of a sparkline that words beside it leave
FEWEST_CELLS = 4  # of a sparkline
MOST_FOLDED = 3  # lines that one label takes
MOST_ALERTS = 3  # lines below the table
AXIS = 12  # columns beside a curve
TALLEST_CURVE, LOWEST_CURVE = 12, 3  # lines


class Page(NamedTuple):
    """Where is drawn."""

    width: int
    """columns that may be written on: the last one of a terminal stays free, or some of them wrap"""
    height: int
    ascii_only: bool = False


def clean(text: object, most: int = 200) -> str:
    """Any text as cells of a line: what commands a terminal, or is no cell wide, or two, becomes `?`."""
    return "".join(letter if _is_one_cell(letter) else "?" for letter in str(text)[:most])


def _is_one_cell(letter: str) -> bool:
    if " " <= letter <= "~":
        return True
    is_wide = unicodedata.east_asian_width(letter) in "WF"
    return letter.isprintable() and not unicodedata.combining(letter) and not is_wide


def line_of(text: str = "", style: str = "") -> Text:
    """A line that is cut, not folded, where there is no room for it."""
    return Text(text, style=style, no_wrap=True, overflow="crop")


def labelled(label: str, words: str = "", style: str = "") -> Text:
    line = line_of().append(f"{INDENT}{label:<{LABEL}}", "dim")
    return line.append(words, style)


def folded(label: str, words: str, page: Page) -> list[Text]:
    """The words behind their label, in a few lines."""
    room = max(10, page.width - len(INDENT) - LABEL)
    parts = wrap(words, room)[:MOST_FOLDED]
    return [labelled(label if number == 0 else "", part) for number, part in enumerate(parts)]


def at_right(line: Text, other: Text, page: Page) -> Text:
    """`other` at the right edge, where it fits with two blanks before it."""
    room = page.width - line.cell_len - other.cell_len
    return line.append(" " * room).append_text(other) if room >= 2 else line


def progress_lines(steps: Progress, goal: Progress | None, page: Page) -> list[Text]:
    """Both bars as long as the words leave room for; no bars where they leave none."""
    bars = [steps, *([goal] if goal else [])]
    room = page.width - len(INDENT) - LABEL
    words = [_progress_words(progress, room) for progress in bars]
    length = min(LONGEST_BAR, *(room - text.cell_len - len(INDENT) for text in words))
    lines = []
    for progress, text in zip(bars, words, strict=True):
        line = labelled(progress.label)
        if progress.fraction is not None and length >= SHORTEST_BAR:
            done, rest = bar(progress.fraction, length, page.ascii_only)
            line.append(done, _progress_style(progress)).append(rest, "dim").append(INDENT)
        lines.append(line.append_text(text))
    return lines


def _progress_style(progress: Progress) -> str:
    if progress.label == "steps":
        return "cyan"
    return "green" if progress.reached else "magenta"


def _progress_words(progress: Progress, room: int) -> Text:
    """And as much of what may follow as leaves room for a bar."""
    style = "bold" if progress.label == "steps" else f"bold {_progress_style(progress)}"
    text = Text(progress.words, style if progress.fraction is not None else "bold")
    left = room - text.cell_len - len(INDENT) - SHORTEST_BAR
    more = next((f"   {words}" for words in progress.more if len(words) + 3 <= left), "")
    return Text().append_text(text).append(more, "dim")


def metric_table(rows: Sequence[MetricRow], page: Page, hidden: str = "") -> list[Text]:
    """A line per metric, area by area, and below them how many are hidden."""
    most = TITLE if page.width >= NARROW else NARROW_TITLE
    width = min(most, max((len(row.metric.title) for row in rows), default=0))
    lines, area = [], ""
    for row in rows:
        before, area = area, area_of(row.metric.name)
        lines.append(_metric_line(row, area if area != before else "", width, page))
    return [*lines, *([line_of(f"{INDENT}{hidden}", "dim")] if hidden else [])]


def _metric_line(row: MetricRow, area: str, title_width: int, page: Page) -> Text:
    """area, title, value, change, sparkline, what is alarming; the unit where the page is wide enough."""
    metric = row.metric
    line = labelled(clean(area)[: LABEL - 1])
    title = clean(metric.title)[:title_width]
    line.append(f"{title:<{title_width}}", "bold" if metric.highlight else "")
    value = f"! {row.value}" if row.bound else row.value
    line.append(f"{value:>{VALUE}}", "bold yellow" if row.bound else "bold")
    if page.width >= WIDE:
        line.append(f" {_unit(metric.unit, page):<{UNIT}}"[: UNIT + 1], "dim")
    line.append(*_change(row, page))
    room = page.width - line.cell_len - len(INDENT)
    # words that leave too little room for the sparkline stand below the table alone
    words = clean(row.bound) if room - len(row.bound) - len(INDENT) >= SPARK else ""
    cells = min(TAIL, room - len(words) - len(INDENT) if words else room)
    if cells >= FEWEST_CELLS:
        spark = sparkline(row.tail, cells, page.ascii_only)
        line.append(f"{INDENT}{spark:<{cells if words else 0}}", "cyan")
    if words:
        line.append(f"{INDENT}{words}", "yellow")
    line.truncate(page.width)
    return line


def _unit(unit: str, page: Page) -> str:
    if unit == "none":
        return ""
    return unit.encode("ascii", "replace").decode() if page.ascii_only else clean(unit)


def _change(row: MetricRow, page: Page) -> tuple[str, str]:
    """An arrow and the difference, green where it is for the better, and its style."""
    if not row.change:
        return " " * CHANGE, ""
    up, down = ("+", "-") if page.ascii_only else ("▲", "▼")
    style = "dim" if row.good is None else "green" if row.good else "red"
    return f"  {up if row.rises else down} {row.change:<{CHANGE - 4}}", style


def alert_lines(alerts: Sequence[Alert], page: Page, most: int = MOST_ALERTS) -> list[Text]:
    """A line for each alert that is open: what is outside, and what to try."""
    lines = []
    for alert in alerts[:most]:
        line = line_of().append(f"{INDENT}! ", "bold yellow")
        line.append(clean(f"{alert.title} {alert.bound}"), "yellow").append(f"  {clean(alert.tip, 400)}", "dim")
        if line.cell_len > page.width:
            line.truncate(page.width - 3)
            line.append("...", "dim")
        lines.append(line)
    if len(alerts) > most:
        lines.append(line_of(f"{INDENT}! and {len(alerts) - most} more", "yellow"))
    return lines


def curve_lines(curves: Mapping[str, Sequence[tuple[float, float]]], page: Page) -> list[Text]:
    """Each curve, of points (env steps, value), below its title; as many as there is room for."""
    lines: list[Text] = []
    for title, points in curves.items():
        height = min(TALLEST_CURVE, page.height // len(curves) - 4)  # beside it title, axis of two lines, a free one
        if height >= LOWEST_CURVE:
            steps, values = zip(*points, strict=True)
            chart = area_chart(steps, values, max(20, page.width - AXIS), height)
            lines += [line_of(title, "bold"), *(line_of(text, "cyan") for text in chart.split("\n")), line_of()]
    return lines[: page.height]


def drawable(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of a curve that are numbers; [] where they make no curve yet."""
    finite = [point for point in points if math.isfinite(point[1])]
    return finite if len(finite) > 1 and finite[0][0] < finite[-1][0] else []


def encoded(lines: Iterable[Text], unicode: bool, colours: bool) -> list[str]:
    """Each line as a terminal takes it; without `unicode` what ASCII lacks becomes `?`, which renderers avoid."""
    pen = Console(file=io.StringIO(), force_terminal=True, color_system="standard" if colours else None, no_color=False)
    texts = []
    for line in lines:
        with pen.capture() as captured:
            pen.print(line, end="", soft_wrap=True)
        texts.append(captured.get())
    return texts if unicode else [text.replace("±", "+-").encode("ascii", "replace").decode() for text in texts]
