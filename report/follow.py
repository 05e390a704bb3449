"""A metrics.csv that another process writes, read on from where the last look ended: a look costs what was appended."""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from runstore.history import RATE, STEPS, TRAIN, TRAIN_BEST, VAL, VAL_BEST, History
from runstore.run_files import open_file, status
from runstore.run_tail import MOST_HEADER
from utils.user_error import UserError

WANTED = (STEPS, RATE, TRAIN, VAL, TRAIN_BEST, VAL_BEST)
MOST = 1 << 20  # bytes that one look reads; of a longer file the first look reads the end


class Follower:
    """How far a run is, and how well it does; who wants more of a row overrides `wanted`, `begin` and `take`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = (0, 0)
        self._forget()

    def wanted(self, columns: Sequence[str]) -> Collection[str]:
        """The columns that are read."""
        return WANTED

    def begin(self, columns: Sequence[str]) -> None:
        """What was taken so far is read anew, or there is nothing yet."""
        self.history = History(())

    def take(self, row: Mapping[str, float]) -> None:
        self.history.add(row)

    def _forget(self) -> None:
        self.begin(())
        self._at = 0
        self._header, self._width = b"", 0
        self._places: Mapping[str, int] = {}

    def look(self) -> None:
        """Fold what was written since; a file that was replaced, as a new column does it, is read anew."""
        try:
            found = status(self._path)
            if found is None or (found.st_ino, found.st_size) == self._stamp:
                return
            with open_file(self._path) as file:
                now, header = os.fstat(file.fileno()), file.readline(MOST_HEADER)
                if not header.endswith(b"\n"):  # not written yet, or no line of names however far one reads
                    header = b""
                if header != self._header or now.st_ino != self._stamp[0] or now.st_size < self._at:
                    self._forget()
                    self._head(header)
                    self._at = max(file.tell(), now.st_size - MOST)
                self._stamp = now.st_ino, now.st_size
                file.seek(self._at)
                lines = file.read(MOST).split(b"\n")
        except UserError:  # a display: what is wrong with the file is told by who trains, and where runs are shown
            return
        self._at += sum(len(line) + 1 for line in lines[:-1])  # the last is still being written
        for line in lines[:-1]:
            self._fold(line.decode(errors="replace").split(","))

    def _head(self, line: bytes) -> None:
        self._header = line
        columns = line.decode(errors="replace").strip().split(",")
        self._width = len(columns)
        self._places = {name: columns.index(name) for name in self.wanted(columns) if name in columns}
        self.begin(columns)

    def _fold(self, cells: Sequence[str]) -> None:
        if len(cells) != self._width:
            return  # cut by the place where reading began
        try:
            row = {name: float(cells[place]) for name, place in self._places.items() if cells[place]}
        except ValueError:
            return
        self.take(row)
