"""Lines about runs that are kept between two commands: an SQLite file beside the runs, made anew whenever it is wrong.

Each line stands in it twice: as a row, for who asks of a few runs, and in columns, one of each field, of which those
asked for are decoded and no others, because a list of ten thousand runs waits for them. The file is never the truth.
Whatever it is (damaged, of another version, a link, not to be written to) a command does without it, or puts another
one in its place.
"""

import json
import math
import os
import re
import sqlite3
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from utils.run_brief import Brief
from utils.run_facts import finite, mapping
from utils.run_files import read_json
from utils.run_labels import Labels
from utils.run_tail import Tail, last_values
from utils.user_error import UserError

NOTHING = Labels()
NAME = ".index.sqlite"
PATIENCE = 0.2  # seconds that another command may hold it
KEY = re.compile(r"[A-Za-z0-9_.+/-]{1,120}")
LARGEST_DETAIL = 1 << 17  # characters of a config or of a row
MOST_WHOLE = 2.0**63  # of what a cell holds
CACHE = 1 << 16  # KiB: a run has a cell in each of some hundred places of the file
SLICE = 1000  # runs whose values are in memory at a time
MANY = 100  # runs of which it is quicker to look at every cell than to look for theirs
Value = float | str | None
Details = tuple[dict[str, Value], dict[str, float]]


class Rest(NamedTuple):
    """What is only asked of a run that is looked into: stamps of its files, and what was wrong with three."""

    folder: str
    config: str
    metrics: str
    checkpoints: str
    status: str
    """by the account of its config.json"""
    config_fault: str
    best_fault: str
    labels_fault: str


class Kept(NamedTuple):
    """What is kept of a run: its line as it was told, and by what it is seen that it has changed."""

    seen: int
    """of its folder and of its config.json"""
    line: Brief
    rest: str
    """a Rest as JSON"""


TAIL, LABELS = Brief._fields.index("tail") - 1, Brief._fields.index("labels") - 1  # behind the id
TAILS = tuple(f"tail.{name}" for name in Tail._fields)
FIELDS = frozenset((*Brief._fields, *TAILS)) - {"tail"}
FORM = " ".join((*Brief._fields, *Tail._fields, *Labels._fields, *Rest._fields))
TABLES = {
    # one column is called after all that is in a line, so that a file of another form has no such column
    "lines": f"CREATE TABLE lines (number INTEGER PRIMARY KEY, id TEXT UNIQUE, seen INTEGER, [{FORM}] TEXT, rest TEXT)",
    "columns": "CREATE TABLE columns (name TEXT PRIMARY KEY, told TEXT)",
    "keys": "CREATE TABLE keys (number INTEGER PRIMARY KEY, key TEXT UNIQUE)",
    "cells": "CREATE TABLE cells (key INTEGER, line INTEGER, value, PRIMARY KEY (key, line)) WITHOUT ROWID",
}
ROWS = f"SELECT id, seen, rest, [{FORM}] FROM lines WHERE id IN (SELECT value FROM json_each(?))"
NUMBERS = "SELECT name, told FROM columns WHERE name IN ('id', 'number')"
CELLS = "SELECT line, value FROM keys JOIN cells ON cells.key = keys.number WHERE keys.key = ?"
Rows = Sequence[tuple[str, Kept]]


class Columns:
    """All that is kept, as it was at one instant; nothing where it is not what we write."""

    def __init__(self, told: Mapping[str, str]) -> None:
        self._told, self._lists = told, dict[str, list[Any]]()

    def marks(self) -> dict[str, tuple[int, str]]:
        """By id: by what it is seen that a run has changed, and its status."""
        try:
            return dict(zip(self._of("id"), zip(self._of("seen"), self._of("status"), strict=True), strict=True))
        except (ValueError, TypeError):
            return {}

    def lines(self, fields: Collection[str]) -> dict[str, Brief]:
        """By id, the FIELDS that are asked for; None for all others."""
        try:
            ids = self._of("id")
            nothing = [None] * len(ids)
            told = {name: self._of(name) if name in fields else nothing for name in FIELDS} | {"id": ids}
            told["tail"] = [*map(Tail._make, zip(*(told[name] for name in TAILS), strict=True))]
            told["labels"] = [Labels(tuple(each[0]), each[1]) if each else NOTHING for each in told["labels"]]
            lines = map(Brief._make, zip(*(told[name] for name in Brief._fields), strict=True))
            return dict(zip(ids, lines, strict=True))
        except (ValueError, TypeError, LookupError):
            return {}

    def numbers(self) -> dict[int, str]:
        """The ids, by the number under which their values are found."""
        return dict(zip(self._of("number"), self._of("id"), strict=True))

    def _of(self, name: str) -> list[Any]:
        if name not in self._lists:
            self._lists[name] = json.loads(self._told.get(name, ""))
        return self._lists[name]


class Shelf:
    """The file under one root."""

    def __init__(self, root: Path) -> None:
        self._root, self._path = root, root / NAME

    @property
    def there(self) -> bool:
        return os.path.lexists(self._path)

    def columns(self) -> Columns:
        """Nothing where the file is not what we write."""
        try:
            with closing(self._open()) as file:
                return Columns(dict(file.execute("SELECT name, told FROM columns")))
        except (sqlite3.Error, UserError, ValueError):
            return Columns({})

    def rows(self, ids: Collection[str]) -> dict[str, Kept]:
        """What is kept of these runs; nothing where the file is not what we write."""
        try:
            with closing(self._open()) as file:
                rows = file.execute(ROWS, [json.dumps([*ids])]).fetchall()
            lines = json.loads(f"[{','.join([row[3] for row in rows])}]")  # one long list is the quickest to read
            return {row[0]: Kept(row[1], _line(row[0], line), row[2]) for row, line in zip(rows, lines, strict=True)}
        except (sqlite3.Error, UserError, ValueError, TypeError, LookupError):
            return {}

    def values(self, keys: Iterable[str]) -> dict[str, dict[str, Value]]:
        """By key of the config or name of a metric, by run, None where it has none; {} where nobody can read them."""
        try:
            with closing(self._open()) as file:
                file.execute("BEGIN")
                ids = Columns(dict(file.execute(NUMBERS))).numbers()
                none: dict[str, Value] = dict.fromkeys(ids.values())
                cells = {key: file.execute(CELLS, [key]).fetchall() for key in keys}
            return {key: none | {ids[line]: value for line, value in found} for key, found in cells.items()}
        except (sqlite3.Error, UserError, ValueError, TypeError, LookupError):
            return {}

    def write(self, rows: Rows, known: Iterable[str]) -> bool:
        """Keep these, and of no run that is gone; whether that was possible."""
        return all(
            self._write(rows[first : first + SLICE], known, first + SLICE >= len(rows))
            for first in range(0, len(rows), SLICE)
        )

    def _write(self, rows: Rows, known: Iterable[str], last: bool) -> bool:
        details = [details_of(self._root / run_id) for run_id, _ in rows]
        for attempt in (1, 2):
            try:
                with closing(self._open()) as file, file:
                    file.execute(f"PRAGMA cache_size = -{CACHE}")
                    file.execute("BEGIN IMMEDIATE")
                    _prepare(file)
                    first = _forget(file, {run_id for run_id, _ in rows}, known)
                    _put_lines(file, first, rows)
                    _put_cells(file, first, details)
                    if last:  # a row that no column tells of is a run that is read anew
                        _put_columns(file)
                return True
            except (sqlite3.OperationalError, UserError):  # another command holds it, or nobody may write there
                return False
            except sqlite3.DatabaseError:
                if attempt == 1:
                    with suppress(OSError):
                        os.unlink(self._path)
        return False

    def _open(self) -> sqlite3.Connection:
        """UserError where something else is in its place."""
        try:
            if not stat.S_ISREG(os.lstat(self._path).st_mode):
                raise UserError(f"{self._path} is not a file")
        except FileNotFoundError:
            pass
        file = sqlite3.connect(self._path, timeout=PATIENCE)
        file.execute("PRAGMA synchronous = OFF")  # what a power cut spoils is made anew
        return file


def _prepare(file: sqlite3.Connection) -> None:
    """Our tables and no others."""
    made = dict(file.execute("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL"))
    if made != TABLES:
        for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            file.execute(f'DROP TABLE "{name}"')
        for text in TABLES.values():
            file.execute(text)


def _forget(file: sqlite3.Connection, fresh: Collection[str], known: Iterable[str]) -> int:
    """Whatever was kept of these, and of those that are not known; a number that all larger ones are free from."""
    lines = file.execute("SELECT number, id FROM lines").fetchall()
    gone = [(number,) for number, run_id in lines if run_id in fresh or run_id not in known]
    file.executemany("DELETE FROM lines WHERE number = ?", gone)
    if len(gone) < MANY:
        file.executemany("DELETE FROM cells WHERE key IN (SELECT number FROM keys) AND line = ?", gone)
    else:
        file.execute("DELETE FROM cells WHERE line NOT IN (SELECT number FROM lines)")
    return 1 + max((number for number, _ in lines), default=0)


def _put_lines(file: sqlite3.Connection, first: int, rows: Rows) -> None:
    told = [(line, run_id, each.seen, _text(each.line), each.rest) for line, (run_id, each) in enumerate(rows, first)]
    file.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?)", told)


def _put_cells(file: sqlite3.Connection, first: int, details: Sequence[Details]) -> None:
    names = {*chain.from_iterable(part for parts in details for part in parts)}
    file.executemany("INSERT OR IGNORE INTO keys (key) VALUES (?)", [(key,) for key in names if KEY.fullmatch(key)])
    keys = dict(file.execute("SELECT key, number FROM keys"))
    cells: dict[int, list[tuple[int, int, Value]]] = {number: [] for number in keys.values()}
    for line, (config, final) in enumerate(details, first):
        for key, value in (config | final).items():
            if value is not None and key in keys:
                cells[keys[key]].append((keys[key], line, value))
    file.executemany("INSERT INTO cells VALUES (?, ?, ?)", chain.from_iterable(cells.values()))  # in the order of cells


def _put_columns(file: sqlite3.Connection) -> None:
    """What the rows say."""
    rows = file.execute(f"SELECT number, id, seen, [{FORM}] FROM lines").fetchall()
    lines = json.loads(f"[{','.join([row[3] for row in rows])}]")
    told = {name: [row[place] for row in rows] for place, name in enumerate(("number", "id", "seen"))}
    told |= {name: [line[place] for line in lines] for place, name in enumerate(Brief._fields[1:])}
    told |= {name: [tail[place] for tail in told["tail"]] for place, name in enumerate(TAILS)}
    kept = [(name, json.dumps(told[name])) for name in told if name != "tail"]
    file.executemany("INSERT OR REPLACE INTO columns VALUES (?, ?)", kept)


def details_of(folder: Path) -> Details:
    """The config of a run, what is no number as text, and the last value of each of its metrics."""
    try:
        config = mapping(mapping(read_json(folder / "config.json", LARGEST_DETAIL)).get("config"))
    except UserError:
        config = {}
    final = {key: value for key, value in last_values(folder / "metrics.csv").items() if math.isfinite(value)}
    return {key: _plain(value) for key, value in config.items()}, final


def _plain(value: object) -> Value:
    """As a cell holds it."""
    if isinstance(value, str):  # JSON can say what no file can hold: half a character
        return value if value.isprintable() else value.encode(errors="replace").decode()
    number = finite(value)
    if number is None:
        return None if value is None else json.dumps(value)
    return value if abs(number) < MOST_WHOLE else number  # type: ignore[return-value]


def _text(line: Brief) -> str:
    """All but the id, as a list."""
    told: list[object] = [*line[1:]]
    told[LABELS] = None if line.labels == NOTHING else line.labels
    return json.dumps(told)


def _line(run_id: str, told: list[Any]) -> Brief:
    told[TAIL], labels = Tail._make(told[TAIL]), told[LABELS]
    told[LABELS] = Labels(tuple(labels[0]), labels[1]) if labels else NOTHING
    return Brief(run_id, *told)
