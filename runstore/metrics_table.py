"""Read metrics.csv of a run: all rows, its end, or what was appended since the last look. No torch.

A row is a line with as many cells as the header has names; the requested cells are numbers or empty. The last line
counts only after its newline was written. If a name occurs twice, its first column counts. `rows` reads the whole file.
Everything else reads a bounded part of a file of any size, and skips rows whose clock (env steps) is impossible.
"""

import math
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from stride.runstore import run_files
from stride.runstore.run_facts import INTEGER_LIMIT
from stride.runstore.run_files import open_file, status
from stride.utils.user_error import UserError

STEPS = "train/clock/env_steps"
EPOCH = "train/clock/epoch"
SECONDS = "train/time/seconds"
RATE = "train/time/env_steps_per_second"
TRAIN = "train/roll/ep_rew/mean"
TRAIN_BEST = "train/roll/ep_rew/best"
VAL = "val/roll/ep_rew/mean"
VAL_BEST = "val/roll/ep_rew/best"
NAMES = {"train": "return", "val": "evaluation", "test": "test"}  # what screens call the mean return of each stage
TAIL_METRICS = (STEPS, TRAIN, TRAIN_BEST, VAL, VAL_BEST, SECONDS, RATE)

MAX_HEADER_BYTES = 1 << 16  # of the first line, which has the names
MAX_COLUMNS = 400  # columns that `refresh` reads
TAIL_BYTES = (1 << 14, 1 << 17, 1 << 20)  # read from the end; the next size only if no evaluation was found
LAST_ROWS = 40  # rows in which `last` looks for each metric
SPREAD_BYTES = 2 << 20  # with `spread`: bytes that are read of a larger file
PIECE_BYTES = 1 << 13  # with `spread`: bytes of each part, at least
MARK_BYTES = 256  # bytes before the position, compared later to see whether it is still the same file
MAX_POINTS = 800  # of a curve; a screen cannot show more
MAX_EPOCHS = 5000  # evaluations whose epoch is stored

Row = dict[str, float]  # metric -> value; empty cells are left out


class Point(NamedTuple):
    """A point of a curve: x in env steps."""

    x: float
    y: float


class Tail(NamedTuple):
    """The state of a run by the end of its metrics.csv. `best` is None if only a large file's beginning has it."""

    steps: int = 0
    best: float | None = None
    last: float | None = None
    fault: str = ""
    seconds: float | None = None
    evaluated: bool = True
    """whether best and last are returns of evaluations; otherwise they are returns of training"""
    rate: float | None = None
    """env steps per second in the last row that has it"""


class Curve:
    """Points of one metric. If there are too many, every n-th is kept, and always the last."""

    def __init__(self) -> None:
        self._points: list[Point] = []
        self._last = Point(0.0, math.nan)
        self._count = 0
        self._every = 1

    def add(self, x: float, y: float) -> None:
        self._last = Point(x, y)
        if self._count % self._every == 0:
            self._points.append(self._last)
            if len(self._points) > MAX_POINTS:
                self._points = self._points[::2]
                self._every *= 2
        self._count += 1

    def points(self) -> list[Point]:
        return self._points + [self._last] * (self._points[-1:] != [self._last])


class MetricsTable:
    """One metrics.csv. `names` are the columns to read; empty: all.

    `spread`: of a large file, read parts from everywhere instead of the end.
    """

    def __init__(self, path: Path, names: Collection[str] = (), spread: bool = False) -> None:
        self.path, self._names, self._spread = path, names, spread
        self.version = 0
        """increases whenever the contents change"""
        self._reset()

    def _reset(self, columns: Sequence[str] = ()) -> None:
        self.fault = ""
        self.columns = [*columns]
        self.curves: dict[str, Curve] = {}
        self.returns: dict[int, float] = {}
        """returns of evaluations, by epoch"""
        self.sampled = 0
        """size in bytes of a file of which only parts were read, else 0"""
        self._stamp = (0, 0, 0)  # inode, size and time of change at the last look
        self._header = self._before = b""
        self._end, self._steps = 0, 0.0
        self.version += 1
        self.begin()

    def begin(self) -> None:
        """Subclasses: forget the rows taken so far, because the file was replaced."""

    def take(self, row: Row) -> None:
        """Subclasses: receive a row, in the order of the file."""

    def rows(self) -> list[Row]:
        """Return all rows, whatever their clock; [] if the first line is too long to have names."""
        with open_file(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            self.columns = []
            with suppress(UserError):
                self.columns = _names_of(_first_line(file))
            lines = file.read(size - file.tell()).split(b"\n")[:-1] if self.columns else []
        return [*rows_of(lines, self.columns, self._names)]

    def last(self) -> Row:
        """Return the last value of each metric that the end of the file has; {} if it has none."""
        values: Row = {}
        for row in self.end(TAIL_BYTES[1], LAST_ROWS):
            values |= row
        return values

    def end(self, span: int = TAIL_BYTES[-1], most: int = sys.maxsize) -> list[Row]:
        """Return at most `most` rows of the last `span` bytes; [] if the file cannot be read."""
        try:
            with open_file(self.path) as file:
                columns = _with_clock(_names_of(_first_line(file)))
                lines = _lines_from(file, file.tell(), span)
        except (UserError, OSError):
            return []
        return [*rows_of(lines[-most:], columns, self._names)]

    def tail(self) -> Tail:
        """Return the run's state by its evaluations, or by training if there are none; `fault` says what is wrong."""
        try:
            with open_file(self.path) as file:
                return _tail_of(file)
        except (UserError, OSError) as error:
            return Tail(fault=self._fault_of(error))

    def points(self, name: str) -> list[Point]:
        """Return (env steps, value) of what `refresh` has read; [] if the metric was never measured."""
        return self.curves[name].points() if name in self.curves else []

    def refresh(self) -> None:
        """Read what was appended since the last call; if the file was replaced, all of it. Sets `fault` to an error."""
        try:
            self._read_changes()
        except (UserError, OSError) as error:
            fault = self._fault_of(error)
            if fault != self.fault:
                self._reset()
                self.fault = fault

    def _fault_of(self, error: UserError | OSError) -> str:
        return str(error) if isinstance(error, UserError) else f"cannot read {self.path}: {error.strerror}"

    def _read_changes(self) -> None:
        file_status = status(self.path)
        if file_status is None:
            if self._stamp[0] or self.fault:
                self._reset()
            return
        if _stamp_of(file_status) == self._stamp:
            return
        with open_file(self.path) as file:
            file_status = os.fstat(file.fileno())
            header = _first_line(file)
            if not self._has_grown(file, file_status, header):
                columns = _with_clock(_names_of(header))  # an error here leaves the state unchanged: read again later
                self._reset(columns)
                self._header = self._before = header
                self._end = file.tell()
            self._stamp = _stamp_of(file_status)
            self.version += 1
            if self.columns:
                self._read(file, file_status.st_size)

    def _has_grown(self, file: BinaryIO, file_status: os.stat_result, header: bytes) -> bool:
        """Whether this is the same file as before, with more bytes. A new file may have the inode of a deleted one."""
        header_end = file.tell()
        file.seek(self._end - len(self._before))
        is_same = file.read(len(self._before)) == self._before and header == self._header
        file.seek(header_end)
        return is_same and file_status.st_ino == self._stamp[0] and file_status.st_size > self._stamp[1]

    def _read(self, file: BinaryIO, size: int) -> None:
        read_columns = [name for name in self.columns[:MAX_COLUMNS] if not self._names or name in self._names]
        for lines in self._pieces(file, size):
            for row in rows_of(lines, self.columns, read_columns):
                self._add(row)

    def _pieces(self, file: BinaryIO, size: int) -> Iterator[list[bytes]]:
        """Yield complete lines after the last position. If they are too many: parts of them (`spread`), or the end."""
        start = self._end
        if self._spread and size - start > SPREAD_BYTES:
            self.sampled = size
            piece_size = max(PIECE_BYTES, 8 * len(self._header))  # lines are about as long as the first
            piece_count = SPREAD_BYTES // piece_size
            # pieces at equal distances; what follows the last one is read completely below
            last_piece = size - 4 * piece_size
            for number in range(piece_count):
                offset = file.seek(start + (last_piece - start) * number // piece_count)
                lines = file.read(piece_size).split(b"\n")
                yield lines[:-1] if offset == start else lines[1:-1]
            start = _next_line(file, last_piece)
        elif not self._spread and size - start > TAIL_BYTES[-1]:
            start = _next_line(file, size - TAIL_BYTES[-1])
        file.seek(start)
        contents = file.read(max(0, size - start))
        length = contents.rfind(b"\n") + 1  # bytes up to the last newline
        self._end = start + length
        self._before = contents[max(0, length - MARK_BYTES) : length]
        yield contents[:length].split(b"\n")[:-1]

    def _add(self, row: Row) -> None:
        """Add a row to the curves; a row without a clock gets that of the row before."""
        try:
            self._steps = float(steps_of(row.get(STEPS, self._steps)))
        except UserError as error:
            self.fault = str(error)
            return
        for name, value in row.items():
            if name not in self.curves:
                self.curves[name] = Curve()
            self.curves[name].add(self._steps, value)
        if VAL in row and 0 <= row.get(EPOCH, -1.0) < 2**53 and len(self.returns) < MAX_EPOCHS:
            self.returns[int(row[EPOCH])] = row[VAL]
        self.take(row)


def steps_of(value: float) -> int:
    """Return a clock as a whole number; UserError if no training can have had it."""
    if not math.isfinite(value) or not 0 <= value < INTEGER_LIMIT:
        raise UserError(f"metrics.csv is damaged: {STEPS} is {value:g}")
    return int(value)


def rows_of(lines: Iterable[bytes], columns: Sequence[str], names: Collection[str] = ()) -> Iterator[Row]:
    """Yield a row per line, with these names only (empty: all); damaged lines are left out."""
    indices: dict[str, int] = {}
    for index, name in enumerate(columns):
        if not names or name in names:
            indices.setdefault(name, index)
    last_index = max(indices.values(), default=-1)
    for line in lines:
        if line.count(b",") != len(columns) - 1:
            continue
        cells = line.split(b",", last_index + 1)
        try:
            row = {name: float(cells[index]) for name, index in indices.items() if cells[index]}
        except ValueError:  # a power cut can leave zero bytes in the middle of a file
            continue
        if row:
            yield row


def _first_line(file: BinaryIO) -> bytes:
    """Return the first line; b"" if it is not complete yet. UserError if it is too long."""
    line = file.readline(MAX_HEADER_BYTES)
    if line.endswith(b"\n"):
        return line
    if len(line) == MAX_HEADER_BYTES:
        raise UserError("the first line of metrics.csv does not have the names")
    return b""


def _names_of(line: bytes) -> list[str]:
    return line.decode("utf-8", "replace").rstrip("\r\n").split(",") if line else []


def _with_clock(columns: list[str]) -> list[str]:
    if columns and STEPS not in columns:
        raise UserError(f"metrics.csv has no column {STEPS}")
    return columns


def _stamp_of(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_ino, stat.st_size, stat.st_ctime_ns


def _next_line(file: BinaryIO, at: int) -> int:
    """Return the position of the first complete line after this position."""
    file.seek(at)
    file.readline(TAIL_BYTES[-1])
    return file.tell()


def _lines_from(file: BinaryIO, begin: int, span: int) -> list[bytes]:
    """Return the complete lines of the last `span` bytes that start at `begin` or later."""
    size = os.fstat(file.fileno()).st_size
    start = file.seek(max(begin, size - span))
    lines = file.read(max(0, size - start)).split(b"\n")[:-1]
    return lines if start == begin else lines[1:]


def _tail_of(file: BinaryIO) -> Tail:
    """Read ever more bytes from the end until they have an evaluation, and summarize them."""
    columns = _with_clock(_names_of(_first_line(file)))
    if not columns:
        return Tail()
    begin = file.tell()
    file_size = os.fstat(file.fileno()).st_size
    metric = VAL if VAL in columns else TRAIN
    lines: list[bytes] = []
    values: dict[str, list[float]] = {}
    is_complete = False
    for span in TAIL_BYTES:
        lines = _lines_from(file, begin, span)
        is_complete = file_size - span <= begin
        values = {name: [] for name in TAIL_METRICS}
        for row in rows_of(lines, columns, TAIL_METRICS):
            for name, value in row.items():
                values[name].append(value)
        if is_complete or values[metric]:
            break
    if not any(values.values()) and (lines or not is_complete):
        raise UserError("metrics.csv is damaged: none of its rows can be read")
    return _summary(values, is_complete)


def _summary(values: dict[str, list[float]], is_complete: bool) -> Tail:
    """Return the state of a run; `values` are by metric, oldest first. `is_complete`: they are all of the file."""
    steps = max(map(steps_of, values[STEPS]), default=0)
    evaluated = bool(values[VAL])
    returns = values[VAL if evaluated else TRAIN]
    records = [value for value in values[VAL_BEST if evaluated else TRAIN_BEST] if math.isfinite(value)]
    best = None
    if is_complete or records:
        best = max(records + [value for value in returns if math.isfinite(value)], default=None)
    last = returns[-1] if returns else None
    seconds = next((value for value in reversed(values[SECONDS]) if 0 <= value < INTEGER_LIMIT), None)
    rate = next((value for value in reversed(values[RATE]) if math.isfinite(value)), None)
    return Tail(steps, best, last, "", seconds, evaluated, rate)


EXACT_INTEGERS = 2.0**53  # a float holds whole numbers below this exactly


def format_number(value: float) -> str:
    """Return seven digits; whole numbers in full, because a clock of 12,345,678 must not become 1.234568e+07."""
    value = float(value)
    return str(int(value)) if value.is_integer() and abs(value) < EXACT_INTEGERS else f"{value:.7g}"


def read_csv(path: Path | str) -> list[Row]:
    """Return the rows of a metrics.csv without empty cells. Lines that were cut or overwritten are skipped."""
    return MetricsTable(Path(path)).rows()


def points(rows: Sequence[Mapping[str, float]], name: str) -> list[Point]:
    """Return (env steps, value) of the rows that have the metric; a row without a clock gets the one before."""
    curve_points = []
    steps = 0.0
    for row in rows:
        steps = row.get(STEPS, steps)
        if name in row:
            curve_points.append(Point(steps, row[name]))
    return curve_points


def parse(columns: list[str], cells: list[str]) -> Row:
    """Return the row in these cells; {} if they are damaged."""
    return next(rows_of([",".join(cells).encode()], columns), {})


def read_lines(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return (columns, rows of cells) as text. An incomplete last line is left out."""
    text = run_files.read_bytes(path).decode("utf-8", errors="replace")
    cells = [line.split(",") for line in text.split("\n")[:-1]]
    return (cells[0], cells[1:]) if cells else ([], [])
