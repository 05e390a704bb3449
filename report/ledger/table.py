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
LEFT_ALIGNED = {*WORDS, "started"}
SCORES = {"test", "best", "score", "last", "goal"}
COUNTS = {"steps", "seed", "speed", "test_episodes"}


def table(briefs: Sequence[Brief], columns: Sequence[str], fields: Mapping[str, Look], width: int | None) -> list[str]:
    """A heading and a line a run, aligned; at most `width` characters where columns can be spared."""
    cells = {}
    for column_name in columns:
        field = SHOWN.get(column_name, fields[column_name])
        cells[column_name] = [column_name, *(cell(column_name, field(run_brief)) for run_brief in briefs)]
    return aligned(cells, LEFT_ALIGNED, width, DISPENSABLE)


def aligned(
    cells: Mapping[str, Sequence[str]],
    left_aligned: set[str],
    width: int | None = None,
    dispensable: Sequence[str] = (),
) -> list[str]:
    """Columns, each with its heading, side by side."""
    widths = {column_name: max(map(len, column)) for column_name, column in cells.items()}
    for column_name in dispensable:
        if width is None or sum(widths.values()) + 2 * (len(widths) - 1) <= width:
            break
        widths.pop(column_name, None)
    line_format = "  ".join(
        f"{{:{'<' if column_name in left_aligned else '>'}{size}}}" for column_name, size in widths.items()
    )
    rows = zip(*(cells[column_name] for column_name in widths), strict=True)
    return [line_format.format(*row).rstrip() for row in rows]


def cell(column_name: str, value: Value) -> str:
    """A value as its column shows it, "" where there is none."""
    if value is None:
        return ""
    if isinstance(value, str):
        text = printable(value)
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    if column_name in SCORES:
        return score(value)
    if column_name in ("took", "age"):
        return duration(value)
    if column_name == "started":
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(value))
    return f"{value:,.0f}" if column_name in COUNTS else plain(value)


def plain(value: float) -> str:
    """A number of unknown kind: 0.00025, 12,345,678, 0.7071."""
    return number(value, 0) if value == int(value) and abs(value) < 1e9 else f"{value:.4g}"


def joined_pairs(value: object) -> str:
    """`python 3.12, torch 2.9` for a mapping, other values as text."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return str(value)


def data(run_brief: Brief, fields: Mapping[str, Look]) -> dict[str, object]:
    """An object for programs."""
    values = {column_name: look(run_brief) for column_name, look in fields.items()}
    return {**values, "tags": [*run_brief.labels.tags], "fault": run_brief.fault, "reason": run_brief.reason}
