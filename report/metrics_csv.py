"""metrics.csv of a run: one whole line per row, and a header that grows.

Which rows exist and when they are due is decided by export_metrics.
"""

import errno
import itertools
import logging
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from stride.config.metrics import load_metrics
from stride.runstore import run_files
from stride.runstore.metrics_table import STEPS as STEPS
from stride.runstore.metrics_table import Row, format_number, parse, read_lines, rows_of
from stride.runstore.outcome import Outcome
from stride.trainer_callbacks.sink import Sink

log = logging.getLogger("stride")
COLUMN = re.compile(r"[A-Za-z0-9_.+-]{1,80}(/[A-Za-z0-9_.+-]{1,80}){0,5}")


def _row_of(columns: list[str], cells: list[str]) -> Row:
    """{} for a line that is damaged."""
    return next(rows_of([",".join(cells).encode()], columns), {})


def _before(columns: list[str], lines: list[list[str]], resume_at: int) -> list[list[str]]:
    """The lines up to `resume_at` env steps, less the closing test; a line without a clock goes with the last."""
    kept, steps = [], 0.0
    for cells in lines:
        row = parse(columns, cells)
        steps = row.get(STEPS, steps)
        if row and steps <= resume_at and not any(name.startswith("test/") for name in row):
            kept.append(cells)
    return kept


def _damage(columns: list[str], lines: list[list[str]], kept: list[list[str]], resume_at: int) -> str:
    """What the file lacks of the rows up to `resume_at`, in words; "" where it has them all."""
    if not columns:
        return "it is empty" if resume_at else ""
    if STEPS not in columns or len({*columns}) < len(columns) or not all(map(COLUMN.fullmatch, columns)):
        return "its first line does not hold the names of metrics"
    damaged = sum(not parse(columns, cells) for cells in lines)
    if damaged:
        return f"{damaged:,} of its lines are damaged"
    last = max((parse(columns, cells).get(STEPS, 0.0) for cells in kept), default=0.0)
    return f"its rows end at {last:,.0f} env steps" if last < resume_at else ""


def _free(path: Path) -> Path:
    """Where a damaged file is kept: a name beside it that is not taken."""
    names = (path.with_name(f"{path.stem}.damaged-{number}{path.suffix}") for number in itertools.count(1))
    return next(name for name in names if not os.path.lexists(name))


class MetricsCsv(Sink):
    """The file stays open; a row is one write of one whole line.

    Columns stand in the order of config/metrics.yaml with the clock first, undeclared ones behind by name,
    so equal rows give equal files however they were interrupted. `resume_at` (env steps) keeps the rows up to there.
    """

    def __init__(self, path: Path | str, resume_at: int | None = None, order: Iterable[str] | None = None) -> None:
        self.path = Path(path)
        declared = list(load_metrics() if order is None else order)
        declared.sort(key=lambda name: "/clock/" not in name)  # stable: the clock first, the rest as declared
        self._place = {name: place for place, name in enumerate(declared)}
        self._columns: list[str] = []
        self._known: frozenset[str] = frozenset()
        lines: list[list[str]] = []
        if resume_at is not None:
            self._columns, lines = self._taken_over(resume_at)
        self._rewrite(self._columns, lines)

    def _taken_over(self, resume_at: int) -> tuple[list[str], list[list[str]]]:
        """What is kept of the file that is there; where rows are lost that is told, and the file as it was kept."""
        if not run_files.exists(self.path):
            if resume_at:
                log.warning(f"{self.path.name} is missing: the rows up to {resume_at:,} env steps are lost")
            return [], []
        columns, lines = read_lines(self.path)
        kept = _before(columns, lines, resume_at)
        damage = _damage(columns, lines, kept, resume_at)
        if damage:
            aside = _free(self.path)
            run_files.copy(self.path, aside)
            log.warning(f"{self.path.name} lacks rows up to {resume_at:,} env steps: {damage}; kept as {aside.name}")
        return (columns, kept) if not damage.startswith("its first") else ([], [])

    def row(self, row: Mapping[str, float]) -> None:
        if not row.keys() <= self._known:
            self._grow(row.keys() - self._known)
        cells = [format_number(row[name]) if name in row else "" for name in self._columns]
        line = (",".join(cells) + "\n").encode()
        written = self._file.write(line)
        if written != len(line):  # the disk is full: leave no half line behind
            self._file.truncate(self._file.tell() - (written or 0))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def end(self, outcome: Outcome | None) -> None:
        self._file.close()

    def _grow(self, names: Iterable[str]) -> None:
        """Rewrite the file with `names` among its columns; the cells already there are moved, not reparsed."""
        columns = sorted({*self._columns, *names}, key=lambda name: (self._place.get(name, math.inf), name))
        old, lines = read_lines(self.path)
        source = [old.index(name) if name in old else None for name in columns]
        before = self._file
        self._rewrite(columns, [["" if place is None else cells[place] for place in source] for cells in lines])
        before.close()

    def _rewrite(self, columns: list[str], lines: list[list[str]]) -> None:
        """Put a whole new file in the old one's place, then append to it."""
        text = "".join(",".join(cells) + "\n" for cells in ([columns] if columns else []) + lines)
        with run_files.replacing(self.path) as file:
            file.write(text.encode())
        self._columns, self._known = columns, frozenset(columns)
        # kept open: opening per row would cost more than the row
        self._file = run_files.open_to_write(self.path, append=True)
