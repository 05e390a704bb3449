"""metrics.csv of a run, read: rows of numbers by the names of metrics; a torn end is forgiven.

report/metrics_sinks.py writes it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from stride.runstore import run_files
from stride.runstore.metrics_table import STEPS, MetricsTable, Row, rows_of
from stride.utils.curve import Point

EXACT = 2.0**53  # integers beyond this are not exact in a float anyway


def format_number(value: float) -> str:
    """Seven digits; whole numbers in full, because a clock of 12,345,678 must not become 1.234568e+07."""
    value = float(value)
    return str(int(value)) if value.is_integer() and abs(value) < EXACT else f"{value:.7g}"


def read_csv(path: Path | str) -> list[Row]:
    """The rows of a metrics.csv, empty cells left out. Lines that were cut or overwritten are skipped."""
    return MetricsTable(Path(path)).rows()


def points(rows: Sequence[Mapping[str, float]], name: str) -> list[Point]:
    """(env steps, value) of the rows that carry the metric; a row without a clock stands where the last one stood."""
    found, steps = [], 0.0
    for row in rows:
        steps = row.get(STEPS, steps)
        if name in row:
            found.append(Point(steps, row[name]))
    return found


def parse(columns: list[str], cells: list[str]) -> Row:
    """{} for a line that is damaged."""
    return next(rows_of([",".join(cells).encode()], columns), {})


def read_lines(path: Path) -> tuple[list[str], list[list[str]]]:
    """(columns, rows of cells). What follows the last newline was never finished and is dropped."""
    text = run_files.read_bytes(path).decode("utf-8", errors="replace")
    whole = text.split("\n")[:-1]
    return (whole[0].split(","), [line.split(",") for line in whole[1:]]) if whole else ([], [])
