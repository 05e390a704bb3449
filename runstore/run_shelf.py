"""The table of all runs, kept between two commands: an SQLite file beside the runs, made anew whenever it is wrong.

The file is never the truth. Where it is damaged, of another version, a link or held by another command, a command does
without it or puts another one in its place. Whoever may write into the folder can change what it says (SECURITY.md),
but not make a command wait, fail or write to the terminal.
"""

import json
import math
import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from stride.runstore.metrics_table import MetricsTable
from stride.runstore.run_brief import ALL_TEXTS, RUNS_TABLE
from stride.runstore.run_facts import finite, mapping
from stride.runstore.run_files import read_json
from stride.utils.user_error import UserError

NAME = ".index.sqlite"
COMPANION_SUFFIXES = ("-journal", "-wal", "-shm")  # what SQLite may open with it
KEY = re.compile(r"[A-Za-z0-9_.+/-]{1,120}")
MAX_CONFIG_BYTES = 1 << 17  # characters of a config or of a row
MAX_CELL_BYTES = 1 << 26  # bytes of a cell
INTEGER_LIMIT = 2.0**63  # of what a cell holds
LOCK_WAIT_SECONDS = 0.2  # seconds that another command may hold it
READ_SECONDS, ROW_WRITE_SECONDS = 2.0, 0.01  # seconds that the file may take, and those for each row that is written
CLOCK_OPERATIONS = 1000  # of SQLite between two looks at the clock
SLICE_RUNS = 1000  # runs whose details are in memory at a time
TABLES = {
    "runs": f"CREATE TABLE {RUNS_TABLE}",
    # the keys of a run's config and the last values of its metrics, as JSON
    "details": "CREATE TABLE details (id TEXT NOT NULL PRIMARY KEY, seen INTEGER NOT NULL, contents TEXT NOT NULL) "
    "STRICT, WITHOUT ROWID",
}
DAMAGE_ERRORS = (sqlite3.Error, ValueError, TypeError, LookupError, RecursionError)
# errors that say nothing against the file: another command holds it, or the disk or the folder refuses
BLAMELESS_CODES = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM,
}  # fmt: skip
Value = float | str | None
Details = tuple[dict[str, Value], dict[str, float]]
Row = Sequence[Any]
T = TypeVar("T")


class Shelf:
    """The file under one root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / NAME

    @property
    def there(self) -> bool:
        return os.path.lexists(self._path)

    def table(self) -> bytes:
        """A database that holds the rows of `runs`; b"" where the file is not what we write."""

        def read(file: sqlite3.Connection) -> bytes:
            file.execute("ATTACH ':memory:' AS copy")
            file.execute(f"CREATE TABLE copy.{RUNS_TABLE}")
            # the condition, which is always true, has SQLite check the type of each cell
            file.execute("INSERT INTO copy.runs SELECT * FROM main.runs WHERE true")
            [shown_texts] = file.execute(f"SELECT group_concat({ALL_TEXTS}, '') FROM copy.runs").fetchone()
            if not (shown_texts or "").isprintable():
                raise ValueError("a text is none of ours")
            return file.serialize(name="copy")

        return self._query(read, b"")

    def values(self, keys: Sequence[str]) -> dict[tuple[str, int], dict[str, Value]]:
        """By run and its `seen`, what is kept of it under these keys; nothing where nobody can read it."""

        def read(file: sqlite3.Connection) -> dict[tuple[str, int], dict[str, Value]]:
            rows = file.execute("SELECT id, seen, contents FROM details")
            return {(run_id, mark): _picked_from(contents, keys) for run_id, mark, contents in rows}

        return self._query(read, {})

    def write(self, rows: Sequence[Row], known: Collection[str]) -> bool:
        """Keep these rows (id and `seen` first), and none of a run that is gone; whether that was possible."""
        run_ids_json = json.dumps([*known])
        return all(
            self._write(rows[first : first + SLICE_RUNS], run_ids_json) for first in range(0, len(rows), SLICE_RUNS)
        )

    def _write(self, rows: Sequence[Row], known: str) -> bool:
        details = []
        for run_id, mark, *_ in rows:
            details.append((run_id, mark, json.dumps(_merged_details(details_of(self._root / run_id)))))
        for _ in range(2):  # the second time into a file of our own
            try:
                with self._connected(READ_SECONDS + ROW_WRITE_SECONDS * len(rows)) as file, file:
                    file.execute("BEGIN IMMEDIATE")
                    if not _has_tables(file):
                        for text in TABLES.values():
                            file.execute(text)
                    for table, table_rows in (("runs", rows), ("details", details)):
                        file.execute(f"DELETE FROM {table} WHERE id NOT IN (SELECT value FROM json_each(?))", [known])
                        placeholders = ", ".join("?" * len(table_rows[0]))
                        file.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({placeholders})", table_rows)
                return True
            except (UserError, OSError):
                return False
            except DAMAGE_ERRORS as error:
                if not self._discard(error):
                    return False
        return False

    def _query(self, question: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """The result of a query; `nothing` where there is no file, or none of ours, which is deleted."""
        try:
            with self._connected(READ_SECONDS) as file:
                return question(file) if _has_tables(file) else nothing
        except (UserError, OSError):
            pass
        except DAMAGE_ERRORS as error:
            self._discard(error)
        return nothing

    @contextmanager
    def _connected(self, seconds: float) -> Iterator[sqlite3.Connection]:
        """For about so long at most: then what is asked raises sqlite3.OperationalError. UserError where something
        else is in its place."""
        for suffix in ("", *COMPANION_SUFFIXES):  # SQLite would wait for ever at a FIFO, and follow links
            path = f"{self._path}{suffix}"
            if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
                raise UserError(f"{path} is not a file")
        file = sqlite3.connect(self._path, timeout=LOCK_WAIT_SECONDS)
        try:
            deadline = time.monotonic() + seconds
            file.set_progress_handler(lambda: time.monotonic() > deadline, CLOCK_OPERATIONS)
            file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL_BYTES)
            file.text_factory = partial(str, encoding="utf-8", errors="replace")
            file.execute("PRAGMA trusted_schema = OFF")
            file.execute("PRAGMA synchronous = OFF")  # what a power cut spoils is made anew
            yield file
        finally:
            file.close()

    def _discard(self, error: Exception) -> bool:
        """Delete the file, unless the error says nothing against it; whether it was deleted."""
        if isinstance(error, sqlite3.Error):
            code = vars(error).get("sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
            if code & 0xFF in BLAMELESS_CODES:
                return False
        for suffix in ("", *COMPANION_SUFFIXES):
            with suppress(OSError):
                os.unlink(f"{self._path}{suffix}")
        return True


def _has_tables(file: sqlite3.Connection) -> bool:
    """Whether our tables are there, False of an empty file; DatabaseError where anything else is."""
    schema = {sql for (sql,) in file.execute("SELECT sql FROM sqlite_master LIMIT ?", [len(TABLES) + 1])}
    if schema and schema != {*TABLES.values()}:
        raise sqlite3.DatabaseError("a schema that is not ours")
    return bool(schema)


def details_of(folder: Path) -> Details:
    """The config of a run, what is no number as text, and the last value of each of its metrics."""
    try:
        config = mapping(mapping(read_json(folder / "config.json", MAX_CONFIG_BYTES)).get("config"))
    except UserError:
        config = {}
    last_values = MetricsTable(folder / "metrics.csv").last()
    finite_values = {key: value for key, value in last_values.items() if math.isfinite(value)}
    return {key: _cell_value(value) for key, value in config.items()}, finite_values


def picked(folder: Path, keys: Iterable[str]) -> dict[str, Value]:
    """Values of these keys in a run's own files, None where they are not there."""
    merged = _merged_details(details_of(folder))
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
        return abs(value) < INTEGER_LIMIT
    return value is None or type(value) is str or (type(value) is float and math.isfinite(value))


def _merged_details(details: Details) -> dict[str, Value]:
    """By what can be asked for; a name with a slash is a metric's."""
    config, metrics = details
    merged: dict[str, Value] = {key: value for key, value in config.items() if "/" not in key and value is not None}
    merged |= {key: value for key, value in metrics.items() if "/" in key}
    return {key: value for key, value in merged.items() if KEY.fullmatch(key)}


def _cell_value(value: object) -> Value:
    """As a cell holds it."""
    if isinstance(value, str):  # JSON can say what no file can hold: half a character
        return value if value.isprintable() else value.encode(errors="replace").decode()
    finite_number = finite(value)
    if finite_number is None:
        return None if value is None else json.dumps(value)
    return value if abs(finite_number) < INTEGER_LIMIT else finite_number  # type: ignore[return-value]
