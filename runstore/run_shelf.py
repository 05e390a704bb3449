"""The table of all runs, kept between two commands: an SQLite file beside the runs, made anew whenever it is wrong.

The file is never the truth. Whatever it is (damaged, of another version, a link, not to be written to) a command does
without it, or puts another one in its place. Anybody may have written it: it is opened by own_sqlite, thrown away where
it is not ours or does not answer in time, and its rows count by a checksum, their types and their printable texts.
"""

import json
import math
import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

from stride.runstore.metrics_table import MetricsTable
from stride.runstore.run_brief import RUNS, TEXTS
from stride.runstore.run_facts import finite, mapping
from stride.runstore.run_files import read_json
from stride.utils.user_error import UserError

NAME = ".index.sqlite"
KEY = re.compile(r"[A-Za-z0-9_.+/-]{1,120}")
LARGEST_DETAIL = 1 << 17  # characters of a config or of a row
MOST_WHOLE = 2.0**63  # of what a cell holds
HEAD = 100  # bytes in which a database tells its version
READING, WRITING_ROW = 0.5, 0.01  # seconds that the file may take, and those for each row that is written
SLICE = 1000  # runs whose details are in memory at a time
TABLES = {
    "runs": f"CREATE TABLE {RUNS}",
    # of all rows of `runs`, in the one row that is here
    "checksums": "CREATE TABLE checksums (runs INTEGER NOT NULL) STRICT",
    # the keys of a run's config and the last values of its metrics, as JSON
    "details": "CREATE TABLE details (id TEXT NOT NULL PRIMARY KEY, seen INTEGER NOT NULL, contents TEXT NOT NULL, "
    "checksum INTEGER NOT NULL) STRICT",
}
DAMAGED = (sqlite3.Error, ValueError, TypeError, LookupError, RecursionError)
Value = float | str | None
Details = tuple[dict[str, Value], dict[str, float]]
Row = Sequence[Any]
T = TypeVar("T")
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
        with sqlite3.connect(":memory:") as table_rows:
            self._make(table_rows)
            self._schema = {*_schema_of(table_rows)}
        table_rows.close()

    @contextmanager
    def opened(self, seconds: float) -> Iterator[sqlite3.Connection]:
        """For about so long at most: then what is asked raises sqlite3.OperationalError. UserError where something
        else is in its place, DatabaseError where it is not one of ours."""
        seconds += self._check_place() / PACE
        file = sqlite3.connect(self.path, timeout=PATIENCE)
        try:
            file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
            file.text_factory = partial(str, encoding="utf-8", errors="replace")
            deadline = time.monotonic() + seconds
            file.set_progress_handler(lambda: time.monotonic() > deadline, OPERATIONS)
            file.execute("PRAGMA trusted_schema = OFF")
            file.execute("PRAGMA synchronous = OFF")  # what a power cut spoils is made anew
            yield file
        finally:
            file.close()

    def is_made(self, file: sqlite3.Connection) -> bool:
        """Whether our tables are there; DatabaseError where anything else is."""
        schema = _schema_of(file, len(self._schema) + 1)
        if schema and {*schema} != self._schema:
            raise sqlite3.DatabaseError("a schema that is not ours")
        return bool(schema)

    def make(self, file: sqlite3.Connection) -> bool:
        """Our tables, unless they are there; whether they were not."""
        if self.is_made(file):
            return False
        self._make(file)
        return True

    def discard(self) -> None:
        for suffix in ("", JOURNAL, *FOREIGN):
            with suppress(OSError):
                os.unlink(f"{self.path}{suffix}")

    def _make(self, file: sqlite3.Connection) -> None:
        for text in self._tables.values():
            file.execute(text)

    def _check_place(self) -> int:
        """Bytes of what SQLite will open: it would wait for ever at a FIFO, and follow links."""
        main_status, journal, *foreign = (_look(f"{self.path}{suffix}") for suffix in ("", JOURNAL, *FOREIGN))
        if main_status and not stat.S_ISREG(main_status.st_mode):
            raise UserError(f"{self.path} is not a file")
        if any(foreign) or (journal and not stat.S_ISREG(journal.st_mode)):
            raise sqlite3.DatabaseError("files beside it that are never written here")
        size = max(status.st_size if status else 0 for status in (main_status, journal))
        if size > ALWAYS + FOR_A_NAME * len(os.listdir(self.path.parent)):
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


class Shelf:
    """The file under one root."""

    def __init__(self, root: Path) -> None:
        self._root, self._file = root, OwnSqlite(root / NAME, TABLES)

    @property
    def there(self) -> bool:
        return os.path.lexists(self._file.path)

    def table(self) -> bytes:
        """A database that holds the rows of `runs`; b"" where the file is not what we write."""

        def read(file: sqlite3.Connection) -> bytes:
            file.execute("ATTACH ':memory:' AS copy")
            file.execute("BEGIN")
            table_bytes = _checked(file)
            [shown_texts] = file.execute(f"SELECT group_concat({TEXTS}, '') FROM copy.runs").fetchone()
            if not (shown_texts or "").isprintable():
                raise ValueError("a text is none of ours")
            return table_bytes

        return self._ask(read, b"")

    def values(self, keys: Sequence[str]) -> dict[tuple[str, int], dict[str, Value]]:
        """By run and its `seen`, what is kept of it under these keys; nothing where nobody can read it."""

        def read(file: sqlite3.Connection) -> dict[tuple[str, int], dict[str, Value]]:
            rows = file.execute("SELECT id, seen, contents, checksum FROM details")
            return {row[:2]: _picked_from(row[2], keys) for row in rows if _checksum_of(*row[:-1]) == row[-1]}

        return self._ask(read, {})

    def write(self, rows: Sequence[Row], known: Collection[str]) -> bool:
        """Keep these rows (id and `seen` first), and none of a run that is gone; whether that was possible."""
        run_ids_json = json.dumps([*known])
        return all(self._write(rows[first : first + SLICE], run_ids_json) for first in range(0, len(rows), SLICE))

    def _write(self, rows: Sequence[Row], known: str) -> bool:
        details = []
        for run_id, mark, *_ in rows:
            contents = json.dumps(_merged(details_of(self._root / run_id)))
            details.append((run_id, mark, contents, _checksum_of(run_id, mark, contents)))
        for _ in range(2):  # the second time into a file of our own
            try:
                with self._file.opened(READING + WRITING_ROW * len(rows)) as file, file:
                    for name in ("copy", "result"):
                        file.execute(f"ATTACH ':memory:' AS {name}")
                    file.execute("BEGIN IMMEDIATE")
                    if not self._file.make(file):
                        _checked(file)  # what somebody has changed there is not taken for ours
                    for table, table_rows in (("runs", rows), ("details", details)):
                        file.execute(f"DELETE FROM {table} WHERE id NOT IN (SELECT value FROM json_each(?))", [known])
                        placeholders = ", ".join("?" * len(table_rows[0]))
                        file.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({placeholders})", table_rows)
                    file.execute("DELETE FROM checksums")
                    file.execute("INSERT INTO checksums VALUES (?)", [crc32(_copied(file, "result")[HEAD:])])
                return True
            except (UserError, OSError):
                return False
            except DAMAGED as error:
                if isinstance(error, sqlite3.Error) and is_elsewhere(error):
                    return False
                self._file.discard()
        return False

    def _ask(self, question: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """The result of a query. A file that is not ours, is damaged, or takes too long is deleted."""
        try:
            with self._file.opened(READING) as file:
                return question(file) if self._file.is_made(file) else nothing
        except (UserError, OSError):
            pass
        except DAMAGED as error:
            if not (isinstance(error, sqlite3.Error) and is_elsewhere(error)):
                self._file.discard()
        return nothing


def _copied(file: sqlite3.Connection, to: str) -> bytes:
    """All rows in a database of their own: equal rows give equal bytes, but for its head."""
    file.execute(f"CREATE TABLE {to}.{RUNS}")
    file.execute(f"INSERT INTO {to}.runs SELECT * FROM main.runs WHERE true")  # the condition has their types checked
    return file.serialize(name=to)


def _checked(file: sqlite3.Connection) -> bytes:
    """The bytes without their checksum; ValueError where it does not match."""
    table_bytes = _copied(file, "copy")
    if [(crc32(table_bytes[HEAD:]),)] != file.execute("SELECT runs FROM checksums LIMIT 2").fetchall():
        raise ValueError("a row is damaged")
    return table_bytes


def _checksum_of(run_id: str, seen: int, contents: str) -> int:
    return crc32(f"{run_id} {seen} {contents}".encode())


def details_of(folder: Path) -> Details:
    """The config of a run, what is no number as text, and the last value of each of its metrics."""
    try:
        config = mapping(mapping(read_json(folder / "config.json", LARGEST_DETAIL)).get("config"))
    except UserError:
        config = {}
    last_values = MetricsTable(folder / "metrics.csv").last()
    finite_values = {key: value for key, value in last_values.items() if math.isfinite(value)}
    return {key: _plain(value) for key, value in config.items()}, finite_values


def picked(folder: Path, keys: Iterable[str]) -> dict[str, Value]:
    """Values of these keys in a run's own files, None where they are not there."""
    merged = _merged(details_of(folder))
    return {key: merged.get(key) for key in keys}


def _picked_from(contents: str, keys: Iterable[str]) -> dict[str, Value]:
    """Values of these keys in a run's stored row, of which only they are decoded; ValueError where it is not ours."""
    decoder = json.JSONDecoder()
    values: dict[str, Value] = {}
    for key in keys:
        prefix = f'"{key}": '
        position = contents.find(prefix)
        values[key] = decoder.raw_decode(contents, position + len(prefix))[0] if position >= 0 else None
        if not _is_value(values[key]):
            raise ValueError(f"{key} is neither a number nor a text")
    return values


def _is_value(value: object) -> bool:
    if type(value) is int:
        return abs(value) < MOST_WHOLE
    return value is None or type(value) is str or (type(value) is float and math.isfinite(value))


def _merged(details: Details) -> dict[str, Value]:
    """By what can be asked for; a name with a slash is a metric's."""
    config, metrics = details
    merged: dict[str, Value] = {key: value for key, value in config.items() if "/" not in key and value is not None}
    merged |= {key: value for key, value in metrics.items() if "/" in key}
    return {key: value for key, value in merged.items() if KEY.fullmatch(key)}


def _plain(value: object) -> Value:
    """As a cell holds it."""
    if isinstance(value, str):  # JSON can say what no file can hold: half a character
        return value if value.isprintable() else value.encode(errors="replace").decode()
    finite_number = finite(value)
    if finite_number is None:
        return None if value is None else json.dumps(value)
    return value if abs(finite_number) < MOST_WHOLE else finite_number  # type: ignore[return-value]
