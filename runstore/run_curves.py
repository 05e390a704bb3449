"""The measurements of one run as curves of bounded size: a large file is sampled, one that grows is read on."""

import math
import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from runstore.run_files import open_file, status
from runstore.run_tail import STEPS, VAL, header, steps_of
from utils.curve import Point
from utils.user_error import UserError

WHOLE = 2 << 20  # bytes that are read at once; of a larger file as many, in pieces from all over it
PIECE = 1 << 13
POINTS = 800  # of a curve; more cannot be seen
MOST_COLUMNS = 400
EPOCH = "train/clock/epoch"
EPOCHS = 5000  # evaluations whose epoch is remembered


class Series:
    """One curve: every n-th point of many, and the last."""

    def __init__(self) -> None:
        self.xs, self.ys = array("d"), array("d")
        self.last = Point(0.0, math.nan)
        self._count, self._every = 0, 1

    def add(self, x: float, y: float) -> None:
        self.last = Point(x, y)
        if self._count % self._every == 0:
            self.xs.append(x)
            self.ys.append(y)
            if len(self.xs) > POINTS:
                self.xs, self.ys, self._every = self.xs[::2], self.ys[::2], 2 * self._every
        self._count += 1

    def points(self) -> list[Point]:
        found = [*map(Point, self.xs, self.ys)]
        return found if found and found[-1] == self.last else [*found, self.last]


class Curves:
    """All columns of a metrics.csv, kept up to date by `refresh`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 0
        """changes with what is told"""
        self._forget()
        self._stamp: tuple[int, int, int] | None = None

    def _forget(self) -> None:
        self.series: dict[str, Series] = {}
        self.returns: dict[int, float] = {}
        self.fault = ""
        self.sampled = 0
        """bytes of a file of which only a part was read, else 0"""
        self._columns: list[str] = []
        self._end, self._steps = 0, 0.0

    def points(self, name: str) -> list[Point]:
        """(env steps, value); [] where it was never measured."""
        return self.series[name].points() if name in self.series else []

    def refresh(self) -> None:
        """Read what was appended since, or everything anew where the file is another one."""
        try:
            found = status(self.path)
            stamp = (found.st_ino, found.st_size, found.st_ctime_ns) if found else None
            if stamp == self._stamp:
                return
            self.version += 1
            before, self._stamp = self._stamp, stamp
            grown = before is not None and stamp is not None and stamp[0] == before[0] and stamp[1] > before[1]
            if not grown:
                self._forget()
            if stamp:
                with open_file(self.path) as file:
                    self._read(file)
        except UserError as error:
            self.fault, self._stamp = str(error), None
        except OSError as error:
            self.fault, self._stamp = f"cannot read {self.path}: {error.strerror}", None

    def _read(self, file: BinaryIO) -> None:
        self._columns = header(file)
        if self._columns:
            for lines in self._pieces(file, max(self._end, file.tell()), os.fstat(file.fileno()).st_size):
                for line in lines:
                    self._add(line.split(b","))

    def _pieces(self, file: BinaryIO, start: int, size: int) -> Iterator[list[bytes]]:
        """Whole lines from `start` on; the rest of a piece that begins or ends within a line is left out."""
        if size - start > WHOLE:
            self.sampled = size
            piece = max(PIECE, 8 * len(",".join(self._columns)))  # lines are about as long as the first
            count = WHOLE // piece
            last = size - 4 * piece
            for number in range(count):
                at = start + (last - start) * number // count
                file.seek(at)
                lines = file.read(piece).split(b"\n")
                yield lines[:-1] if at == start else lines[1:-1]
            file.seek(last)
            file.readline()
            start = file.tell()
        file.seek(start)
        text = file.read(size - start)
        whole = text.rfind(b"\n") + 1
        self._end = start + whole
        yield text[:whole].split(b"\n")[:-1]

    def _add(self, cells: list[bytes]) -> None:
        """A row; one that was cut or overwritten is none."""
        if len(cells) != len(self._columns):
            return
        try:
            row = {name: float(cell) for name, cell in zip(self._columns[:MOST_COLUMNS], cells, strict=False) if cell}
            self._steps = float(steps_of(row.get(STEPS, self._steps)))
        except UserError as error:
            self.fault = str(error)
            return
        except ValueError:
            return
        for name, value in row.items():
            if name not in self.series:
                self.series[name] = Series()
            self.series[name].add(self._steps, value)
        if VAL in row and 0 <= row.get(EPOCH, -1.0) < 2**53 and len(self.returns) < EPOCHS:
            self.returns[int(row[EPOCH])] = row[VAL]
