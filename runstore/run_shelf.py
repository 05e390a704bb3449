"""The table of all runs, stored between commands: an SQLite file beside the runs. RunIndex alone uses it.

The runs' own files decide, never this file. If it is damaged, of another version, a link, or locked by another command,
a command works without it or replaces it. Anybody who may write into the folder can change its contents (SECURITY.md),
but cannot make a command wait, fail, or write control characters to the terminal.
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
COMPANION_SUFFIXES = ("-journal", "-wal", "-shm")  # of files that SQLite may open beside it
KEY = re.compile(r"[A-Za-z0-9_.+/-]{1,120}")
MAX_CONFIG_BYTES = 1 << 17  # of a config.json whose keys are stored
MAX_CELL_BYTES = 1 << 26
INTEGER_LIMIT = 2.0**63  # whole numbers in a cell are below this
LOCK_WAIT_SECONDS = 0.2  # how long to wait while another command holds the file
READ_SECONDS, ROW_WRITE_SECONDS = 2.0, 0.01  # time limit of a query, and more for each row written
CLOCK_OPERATIONS = 1000  # SQLite operations between two checks of the time limit
SLICE_RUNS = 1000  # runs written in one transaction
TABLES = {
    "runs": f"CREATE TABLE {RUNS_TABLE}",
    # the keys of a run's config and the last values of its metrics, as JSON
    "details": "CREATE TABLE details (id TEXT NOT NULL PRIMARY KEY, seen INTEGER NOT NULL, contents TEXT NOT NULL) "
    "STRICT, WITHOUT ROWID",
}
DAMAGE_ERRORS = (sqlite3.Error, ValueError, TypeError, LookupError, RecursionError)
# errors of SQLite that do not mean a damaged file: another command holds it, or disk or folder refuse
BLAMELESS_CODES = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM,
}  # fmt: skip
Value = float | str | None
Details = tuple[dict[str, Value], dict[str, float]]
Row = Sequence[Any]
T = TypeVar("T")


class Shelf:
    """The stored table below one runs root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / NAME

    @property
    def exists(self) -> bool:
        return os.path.lexists(self._path)

    def table(self) -> bytes:
        """Return a serialized database with the table `runs`; b"" if the file is missing or not one of ours."""

        def read(file: sqlite3.Connection) -> bytes:
            file.execute("ATTACH ':memory:' AS copy")
            file.execute(f"CREATE TABLE copy.{RUNS_TABLE}")
            # `WHERE true` makes SQLite copy row by row, which checks the type of each cell
            file.execute("INSERT INTO copy.runs SELECT * FROM main.runs WHERE true")
            [shown_texts] = file.execute(f"SELECT group_concat({ALL_TEXTS}, '') FROM copy.runs").fetchone()
            if not (shown_texts or "").isprintable():
                raise ValueError("a text is none of ours")
            return file.serialize(name="copy")

        return self._query(read, b"")

    def values(self, keys: Sequence[str]) -> dict[tuple[str, int], dict[str, Value]]:
        """Return {(run id, `seen`): {key: value}} of the stored details; {} if the file cannot be read."""

        def read(file: sqlite3.Connection) -> dict[tuple[str, int], dict[str, Value]]:
            rows = file.execute("SELECT id, seen, contents FROM details")
            return {(run_id, mark): _picked_from(contents, keys) for run_id, mark, contents in rows}

        return self._query(read, {})

    def write(self, rows: Sequence[Row], run_ids: Collection[str]) -> bool:
        """Store these rows (id and `seen` first), delete all others than `run_ids`; return whether that worked."""
        run_ids_json = json.dumps([*run_ids])
        starts = range(0, len(rows), SLICE_RUNS)
        return all(self._write(rows[start : start + SLICE_RUNS], run_ids_json) for start in starts)

    def _write(self, rows: Sequence[Row], run_ids_json: str) -> bool:
        details = []
        for run_id, mark, *_ in rows:
            details.append((run_id, mark, json.dumps(_merged_details(details_of(self._root / run_id)))))
        for _ in range(2):  # the second time into a new file, if the first one was damaged and deleted
            try:
                with self._connected(READ_SECONDS + ROW_WRITE_SECONDS * len(rows)) as file, file:
                    file.execute("BEGIN IMMEDIATE")
                    if not _has_tables(file):
                        for text in TABLES.values():
                            file.execute(text)
                    for table, table_rows in (("runs", rows), ("details", details)):
                        file.execute(
                            f"DELETE FROM {table} WHERE id NOT IN (SELECT value FROM json_each(?))", [run_ids_json]
                        )
                        placeholders = ", ".join("?" * len(table_rows[0]))
                        file.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({placeholders})", table_rows)
                return True
            except (UserError, OSError):
                return False
            except DAMAGE_ERRORS as error:
                if not self._discard(error):
                    return False
        return False

    def _query(self, read_rows: Callable[[sqlite3.Connection], T], default: T) -> T:
        """Return what `read_rows` reads from the file; `default` without a file. A damaged file is deleted."""
        try:
            with self._connected(READ_SECONDS) as file:
                return read_rows(file) if _has_tables(file) else default
        except (UserError, OSError):
            pass
        except DAMAGE_ERRORS as error:
            self._discard(error)
        return default

    @contextmanager
    def _connected(self, seconds: float) -> Iterator[sqlite3.Connection]:
        """Yield a connection to the file. A query that takes longer than `seconds` raises sqlite3.OperationalError.

        UserError if the path is not a regular file.
        """
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
            file.execute("PRAGMA synchronous = OFF")  # a file damaged by a power cut is replaced
            yield file
        finally:
            file.close()

    def _discard(self, error: Exception) -> bool:
        """Delete the file unless the error has another cause (BLAMELESS_CODES); return whether it was deleted."""
        if isinstance(error, sqlite3.Error):
            code = vars(error).get("sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
            if code & 0xFF in BLAMELESS_CODES:
                return False
        for suffix in ("", *COMPANION_SUFFIXES):
            with suppress(OSError):
                os.unlink(f"{self._path}{suffix}")
        return True


def _has_tables(file: sqlite3.Connection) -> bool:
    """Whether the file has our tables; False if it is empty, DatabaseError if it has any other schema."""
    schema = {sql for (sql,) in file.execute("SELECT sql FROM sqlite_master LIMIT ?", [len(TABLES) + 1])}
    if schema and schema != {*TABLES.values()}:
        raise sqlite3.DatabaseError("a schema that is not ours")
    return bool(schema)


def details_of(folder: Path) -> Details:
    """Return a run's config (values that are not numbers as text) and the last finite value of each metric."""
    try:
        config = mapping(mapping(read_json(folder / "config.json", MAX_CONFIG_BYTES)).get("config"))
    except UserError:
        config = {}
    last_values = MetricsTable(folder / "metrics.csv").last()
    finite_values = {key: value for key, value in last_values.items() if math.isfinite(value)}
    return {key: _cell_value(value) for key, value in config.items()}, finite_values


def picked(folder: Path, keys: Iterable[str]) -> dict[str, Value]:
    """Return {key: value} from a run's own files, None for a key that they do not have."""
    merged = _merged_details(details_of(folder))
    return {key: merged.get(key) for key in keys}


def _picked_from(contents: str, keys: Iterable[str]) -> dict[str, Value]:
    """Return {key: value} from a run's stored JSON, decoding only these keys; ValueError if it is not ours."""
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
    """Whether a decoded value is one that this module stores."""
    if type(value) is int:
        return abs(value) < INTEGER_LIMIT
    return value is None or type(value) is str or (type(value) is float and math.isfinite(value))


def _merged_details(details: Details) -> dict[str, Value]:
    """Return config and metrics in one dict; names with a slash are metrics."""
    config, metrics = details
    merged: dict[str, Value] = {key: value for key, value in config.items() if "/" not in key and value is not None}
    merged |= {key: value for key, value in metrics.items() if "/" in key}
    return {key: value for key, value in merged.items() if KEY.fullmatch(key)}


def _cell_value(value: object) -> Value:
    """Return a config value as a table cell can store it: number, text or None."""
    if isinstance(value, str):  # JSON may contain half a surrogate pair, which UTF-8 cannot store
        return value if value.isprintable() else value.encode(errors="replace").decode()
    finite_number = finite(value)
    if finite_number is None:
        return None if value is None else json.dumps(value)
    return value if abs(finite_number) < INTEGER_LIMIT else finite_number  # type: ignore[return-value]
