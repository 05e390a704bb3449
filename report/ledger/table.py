"""Format runs as a table of text, or as data for --json."""

import time
from collections.abc import Mapping, Sequence

from stride.runstore.run_brief import Brief
from stride.runstore.run_query import SHOWN, WORDS, Look
from stride.runstore.run_shelf import Value
from stride.utils.typography import duration, number, score
from stride.utils.user_error import printable

COLUMNS = ("id", "run", "seed", "status", "result", "test", "best", "steps", "took", "tag", "changes")
# columns to leave out, in this order, until a line fits into the terminal
OPTIONAL_COLUMNS = ("tag", "seed", "took", "best", "changes", "run", "steps", "result")
MAX_CELL = 60  # characters of a cell; longer texts are cut
LEFT_ALIGNED = {*WORDS, "started"}
SCORES = {"test", "best", "score", "last", "goal"}
COUNTS = {"steps", "seed", "speed", "test_episodes"}


def table(briefs: Sequence[Brief], columns: Sequence[str], fields: Mapping[str, Look], width: int | None) -> list[str]:
    """Return a heading and a line for each run. OPTIONAL_COLUMNS are left out until lines have `width` characters."""
    looks = {**fields, **SHOWN}
    rows = [[cell(column_name, looks[column_name](run_brief)) for column_name in columns] for run_brief in briefs]
    return aligned(columns, rows, LEFT_ALIGNED, width, OPTIONAL_COLUMNS)


def aligned(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    left_aligned: set[str],
    width: int | None = None,
    dispensable: Sequence[str] = (),
) -> list[str]:
    """Return the lines of a table in aligned columns, the head first.

    `left_aligned`: heads of left-aligned columns. `width`: characters of a line, None for any number.
    `dispensable`: heads of columns to leave out, in this order, until the table fits.
    """
    padded = {}
    for position, column in enumerate(zip(head, *rows, strict=True)):
        size = max(map(len, column))
        side = "<" if column[0] in left_aligned else ">"
        padded[position] = [f"{text:{side}{size}}" for text in column]
    for column_name in dispensable:
        if width is None or sum(len(column[0]) + 2 for column in padded.values()) <= width + 2:
            break
        if column_name in head:
            del padded[head.index(column_name)]
    return ["  ".join(row).rstrip() for row in zip(*padded.values(), strict=True)]


def cell(column_name: str, value: Value) -> str:
    """Format a value as its column shows it; "" for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        text = printable(value)
        return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"
    if column_name in SCORES:
        return score(value)
    if column_name in ("took", "age"):
        return duration(value)
    if column_name == "started":
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(value))
    return f"{value:,.0f}" if column_name in COUNTS else plain(value)


def plain(value: float) -> str:
    """Format a number of unknown kind: 0.00025, 12,345,678, 0.7071."""
    return number(value, 0) if value == int(value) and abs(value) < 1e9 else f"{value:.4g}"


def joined_pairs(value: object) -> str:
    """Format a mapping as `python 3.12, torch 2.9`, and other values with str()."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return str(value)


def data(run_brief: Brief, fields: Mapping[str, Look]) -> dict[str, object]:
    """Return a run as data for --json."""
    values = {column_name: look(run_brief) for column_name, look in fields.items()}
    return {**values, "tags": [*run_brief.labels.tags], "fault": run_brief.fault, "reason": run_brief.reason}
