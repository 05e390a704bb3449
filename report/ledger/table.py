"""Runs as a table of text or as data."""

import time
from collections.abc import Mapping, Sequence

from stride.runstore.run_brief import Brief
from stride.runstore.run_query import SHOWN, WORDS, Look
from stride.runstore.run_shelf import Value
from stride.utils.typography import duration, number, score
from stride.utils.user_error import printable

COLUMNS = ("id", "run", "seed", "status", "result", "test", "best", "steps", "took", "tag")
DISPENSABLE = ("tag", "seed", "took", "best", "run", "steps", "result")  # left out in this order until a line fits
LONGEST = 60  # characters of a cell
AT_LEFT = {*WORDS, "started"}
SCORES = {"test", "best", "score", "last", "goal"}
WHOLE = {"steps", "seed", "speed", "test_episodes"}


def table(lines: Sequence[Brief], columns: Sequence[str], fields: Mapping[str, Look], width: int | None) -> list[str]:
    """A heading and a line a run, aligned; at most `width` characters where columns can be spared."""
    cells = {name: [name, *column(name, [SHOWN.get(name, fields[name])(line) for line in lines])] for name in columns}
    return aligned(cells, AT_LEFT, width, DISPENSABLE)


def column(name: str, values: Sequence[Value]) -> list[str]:
    """What stands in a column; of ten thousand values many are alike."""
    told = {value: cell(name, value) for value in {*values}}
    return [told[value] for value in values]


def aligned(
    cells: Mapping[str, Sequence[str]], at_left: set[str], width: int | None = None, dispensable: Sequence[str] = ()
) -> list[str]:
    """Columns, each with its heading, side by side."""
    widths = {name: max(map(len, column)) for name, column in cells.items()}
    for name in dispensable:
        if width is None or sum(widths.values()) + 2 * (len(widths) - 1) <= width:
            break
        widths.pop(name, None)
    form = "  ".join(f"{{:{'<' if name in at_left else '>'}{size}}}" for name, size in widths.items())
    return [form.format(*row).rstrip() for row in zip(*(cells[name] for name in widths), strict=True)]


def cell(name: str, value: Value) -> str:
    """A value as its column shows it, "" where there is none."""
    if value is None:
        return ""
    if isinstance(value, str):
        text = printable(value)
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    if name in SCORES:
        return score(value)
    if name in ("took", "age"):
        return duration(value)
    if name == "started":
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(value))
    return f"{value:,.0f}" if name in WHOLE else plain(value)


def plain(value: float) -> str:
    """A number of unknown kind: 0.00025, 12,345,678, 0.7071."""
    return number(value, 0) if value == int(value) and abs(value) < 1e9 else f"{value:.4g}"


def data(line: Brief, fields: Mapping[str, Look]) -> dict[str, object]:
    """The same for a program."""
    told = {name: look(line) for name, look in fields.items()}
    return {**told, "tags": [*line.labels.tags], "fault": line.fault, "reason": line.reason}
