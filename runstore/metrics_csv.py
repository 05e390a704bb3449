"""metrics.csv of a run, read: rows of numbers by the names of metrics; a torn end is forgiven.

report/metrics_csv.py writes it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from runstore import run_files
from runstore.history import STEPS
from utils.curve import Point

EXACT = 2.0**53  # integers beyond this are not exact in a float anyway


def format_number(value: float) -> str:
    """Seven digits; whole numbers in full, because a clock of 12,345,678 must not become 1.234568e+07."""
    value = float(value)
    return str(int(value)) if value.is_integer() and abs(value) < EXACT else f"{value:.7g}"


def read_csv(path: Path | str) -> list[dict[str, float]]:
    """The rows of a metrics.csv, empty cells left out. Lines that were cut or overwritten are skipped."""
    columns, lines = read_lines(Path(path))
    rows = [parse(columns, cells) for cells in lines]
    return [row for row in rows if row]


def points(rows: Sequence[Mapping[str, float]], name: str) -> list[Point]:
    """(env steps, value) of the rows that carry the metric; a row without a clock stands where the last one stood."""
    found, steps = [], 0.0
    for row in rows:
        steps = row.get(STEPS, steps)
        if name in row:
            found.append(Point(steps, row[name]))
    return found


def parse(columns: list[str], cells: list[str]) -> dict[str, float]:
    """{} for a line that is damaged."""
    try:
        return {name: float(cell) for name, cell in zip(columns, cells, strict=True) if cell}
    except ValueError:  # a power cut can leave zero bytes in the middle of a file
        return {}


def read_lines(path: Path) -> tuple[list[str], list[list[str]]]:
    """(columns, rows of cells). What follows the last newline was never finished and is dropped."""
    text = run_files.read_bytes(path).decode("utf-8", errors="replace")
    whole = text.split("\n")[:-1]
    return (whole[0].split(","), [line.split(",") for line in whole[1:]]) if whole else ([], [])
