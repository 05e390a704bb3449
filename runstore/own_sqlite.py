"""An SQLite file that a program makes anew whenever it is wrong, and that anybody may have written. No torch.

It is asked nothing before its schema is known to be exactly that of a fresh one: no view, no trigger and no other
table is ever reached. Whatever it is asked has a deadline. What is in its rows is checked by who reads them.
"""

import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from stride.utils.user_error import UserError

PATIENCE = 0.2  # seconds that another command may hold it
OPERATIONS = 1000  # of SQLite between two looks at the clock
PACE = 32 << 20  # bytes of the file for which a question may take a second more
LONGEST = 1 << 26  # bytes of a text in it
ALWAYS, FOR_A_NAME = 4 << 20, 1 << 16  # bytes that it may have, and as many more for each name in its folder
JOURNAL, FOREIGN = "-journal", ("-wal", "-shm")  # beside it: SQLite's own, and those of a mode that is never used here
# errors that say nothing against the file: another command holds it, or the disk or the folder refuses
ELSEWHERE = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM,
}  # fmt: skip


class OwnSqlite:
    """The file at `path`; `tables`: the text that makes each, by its name."""

    def __init__(self, path: Path, tables: Mapping[str, str]) -> None:
        self.path, self._tables = path, tables
        with sqlite3.connect(":memory:") as fresh:
            self._make(fresh)
            self._schema = {*_schema_of(fresh)}
        fresh.close()

    @contextmanager
    def opened(self, seconds: float) -> Iterator[sqlite3.Connection]:
        """For about so long at most: then what is asked raises sqlite3.OperationalError. UserError where something
        else is in its place, DatabaseError where it is not one of ours."""
        seconds += self._check_place() / PACE
        file = sqlite3.connect(self.path, timeout=PATIENCE)
        try:
            file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
            file.text_factory = _decoded
            until = time.monotonic() + seconds
            file.set_progress_handler(lambda: time.monotonic() > until, OPERATIONS)
            file.execute("PRAGMA trusted_schema = OFF")
            file.execute("PRAGMA synchronous = OFF")  # what a power cut spoils is made anew
            yield file
        finally:
            file.close()

    def is_made(self, file: sqlite3.Connection) -> bool:
        """Whether our tables are there; DatabaseError where anything else is."""
        found = _schema_of(file, len(self._schema) + 1)
        if found and {*found} != self._schema:
            raise sqlite3.DatabaseError("a schema that is not ours")
        return bool(found)

    def make(self, file: sqlite3.Connection) -> bool:
        """Our tables, unless they are there; whether they were not."""
        if self.is_made(file):
            return False
        self._make(file)
        return True

    def discard(self) -> None:
        for side in ("", JOURNAL, *FOREIGN):
            with suppress(OSError):
                os.unlink(f"{self.path}{side}")

    def _make(self, file: sqlite3.Connection) -> None:
        for text in self._tables.values():
            file.execute(text)

    def _check_place(self) -> int:
        """Bytes of what SQLite will open: it would wait for ever at a FIFO, and follow links."""
        main, journal, *foreign = (_look(f"{self.path}{side}") for side in ("", JOURNAL, *FOREIGN))
        if main and not stat.S_ISREG(main.st_mode):
            raise UserError(f"{self.path} is not a file")
        if any(foreign) or (journal and not stat.S_ISREG(journal.st_mode)):
            raise sqlite3.DatabaseError("files beside it that are never written here")
        size = max(found.st_size if found else 0 for found in (main, journal))
        if size > ALWAYS and size > ALWAYS + FOR_A_NAME * len(os.listdir(self.path.parent)):
            raise sqlite3.DatabaseError("larger than any that is written here")
        return size


def is_elsewhere(error: sqlite3.Error) -> bool:
    """Whether the error says nothing against the file itself."""
    return vars(error).get("sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in ELSEWHERE


def _schema_of(file: sqlite3.Connection, most: int = -1) -> list[tuple[str, str, str, str | None]]:
    return file.execute("SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT ?", [most]).fetchall()


def _look(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace")
