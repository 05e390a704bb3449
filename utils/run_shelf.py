"""Lines about runs that are kept between two commands: an SQLite file beside the runs, made anew whenever it is wrong.

Each line stands in it twice: as a row, for who asks of a few runs, and in columns, one of each field, of which those
asked for are decoded and no others, because a list of ten thousand runs waits for them. The file is never the truth.
Whatever it is (damaged, of another version, a link, not to be written to) a command does without it, or puts another
one in its place.

Anybody may have written it: it is opened by own_sqlite, and thrown away where it is not ours or does not answer in
time. Rows and columns have a checksum, and what they hold has the types and the printable texts of a line.
"""

import json
import math
import os
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

from utils.metrics_table import MetricsTable, Tail
from utils.own_sqlite import OwnSqlite, is_elsewhere
from utils.run_brief import Brief
from utils.run_columns import FIELDS as FIELDS
from utils.run_columns import NAMES, TAILS, Columns, Keys, check_rows, checksum_of, line_of_text, text_of
from utils.run_facts import finite, mapping
from utils.run_files import read_json
from utils.run_labels import Labels
from utils.user_error import UserError

NAME = ".index.sqlite"
KEY = re.compile(r"[A-Za-z0-9_.+/-]{1,120}")
LARGEST_DETAIL = 1 << 17  # characters of a config or of a row
MOST_WHOLE = 2.0**63  # of what a cell holds
READING, WRITING_ROW = 0.5, 0.01  # seconds that the file may take, and those for each row that is written
CACHE = 1 << 16  # KiB: a run has a cell in each of some hundred places of the file
SLICE = 1000  # runs whose values are in memory at a time
MANY = 100  # runs of which it is quicker to look at every cell than to look for theirs
Value = float | str | None
Details = tuple[dict[str, Value], dict[str, float]]
T = TypeVar("T")


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


FORM = " ".join((*Brief._fields, *Tail._fields, *Labels._fields, *Rest._fields))
TABLES = {
    # one column is called after all that is in a line, so that a file of another form has no such column
    "lines": f"CREATE TABLE lines (number INTEGER PRIMARY KEY, id TEXT UNIQUE, seen INTEGER, [{FORM}] TEXT, rest TEXT, "
    "checksum INTEGER)",
    "columns": "CREATE TABLE columns (name TEXT PRIMARY KEY, told TEXT, checksum INTEGER)",
    "cells": "CREATE TABLE cells (key INTEGER, line INTEGER, value, PRIMARY KEY (key, line)) WITHOUT ROWID",
}
ROWS = f"SELECT id, seen, rest, [{FORM}], checksum FROM lines WHERE id IN (SELECT value FROM json_each(?))"
COLUMNS = "SELECT name, told, checksum FROM columns WHERE name IN (SELECT value FROM json_each(?))"
CELLS = "SELECT line, value FROM cells WHERE key = ?"
OF_LINE = "SELECT key, line, value FROM cells WHERE key IN (SELECT value FROM json_each(?)) AND line = ?"
OF_NONE = "SELECT key, line, value FROM cells WHERE line NOT IN (SELECT number FROM lines)"
Rows = Sequence[tuple[str, Kept]]


class Shelf:
    """The file under one root."""

    def __init__(self, root: Path) -> None:
        self._root, self._file = root, OwnSqlite(root / NAME, TABLES)

    @property
    def there(self) -> bool:
        return os.path.lexists(self._file.path)

    def columns(self) -> Columns:
        """Nothing where the file is not what we write."""
        return self._ask(lambda file: _columns(file, NAMES), Columns({}))

    def rows(self, ids: Collection[str]) -> dict[str, Kept]:
        """What is kept of these runs; nothing where the file is not what we write."""

        def ask(file: sqlite3.Connection) -> dict[str, Kept]:
            rows = file.execute(ROWS, [json.dumps([*ids])]).fetchall()
            check_rows(rows)
            lines = json.loads(f"[{','.join([row[3] for row in rows])}]")  # one long list is the quickest to read
            return {
                row[0]: Kept(row[1], line_of_text(row[0], line), row[2]) for row, line in zip(rows, lines, strict=True)
            }

        return self._ask(ask, {})

    def values(self, keys: Iterable[str]) -> dict[str, dict[str, Value]]:
        """By key of the config or name of a metric, by run, None where it has none; {} where nobody can read them."""

        def ask(file: sqlite3.Connection) -> dict[str, dict[str, Value]]:
            file.execute("BEGIN")
            columns = _columns(file, ("number", "id", "keys"))
            ids, known = columns.numbers(), columns.keys()
            none: dict[str, Value] = dict.fromkeys(ids.values())
            cells = {key: _cells(file, *known.get(key, (0, 0))) for key in keys}
            if not all(isinstance(value, int | float | str) for found in cells.values() for _, value in found):
                raise ValueError("a value is neither a number nor a text")
            return {
                key: none | {ids[line]: value for line, value in found if line in ids} for key, found in cells.items()
            }

        return self._ask(ask, {})

    def write(self, rows: Rows, known: Iterable[str]) -> bool:
        """Keep these, and of no run that is gone; whether that was possible."""
        return all(
            self._write(rows[first : first + SLICE], known, first + SLICE >= len(rows))
            for first in range(0, len(rows), SLICE)
        )

    def _write(self, rows: Rows, known: Iterable[str], last: bool) -> bool:
        details = [details_of(self._root / run_id) for run_id, _ in rows]
        for _ in range(2):  # the second time into a file of our own
            try:
                with self._file.opened(READING + WRITING_ROW * len(rows)) as file, file:
                    file.execute(f"PRAGMA cache_size = -{CACHE}")
                    file.execute("BEGIN IMMEDIATE")
                    keys = {} if self._file.make(file) else _columns(file, ("keys",)).keys()
                    first = _forget(file, {run_id for run_id, _ in rows}, known, keys)
                    _put_lines(file, first, rows)
                    _put_cells(file, first, details, keys)
                    if last:  # a row that no column tells of is a run that is read anew
                        _put_columns(file)
                return True
            except (UserError, OSError):
                return False
            except sqlite3.Error as error:
                if is_elsewhere(error):
                    return False
                self._file.discard()
            except (ValueError, TypeError, LookupError, RecursionError):
                self._file.discard()
        return False

    def _ask(self, ask: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """What the file answers. One that is not ours, is damaged, or comes to no end is thrown away."""
        try:
            with self._file.opened(READING) as file:
                return ask(file) if self._file.is_made(file) else nothing
        except (UserError, OSError):
            pass
        except sqlite3.Error as error:
            if not is_elsewhere(error):
                self._file.discard()
        except (ValueError, TypeError, LookupError, RecursionError):
            self._file.discard()
        return nothing


def _columns(file: sqlite3.Connection, names: Sequence[str]) -> Columns:
    rows = file.execute(COLUMNS, [json.dumps(names)])
    return Columns({name: (text, checksum) for name, text, checksum in rows})


def _cells(file: sqlite3.Connection, number: int, checksum: int) -> list[tuple[int, Value]]:
    """By line, all values of the key of this number; ValueError where one was changed or lost."""
    found = file.execute(CELLS, [number]).fetchall()
    for line, value in found:
        checksum ^= checksum_of(line, repr(value))
    if checksum:
        raise ValueError("a value is damaged")
    return found


def _forget(file: sqlite3.Connection, fresh: Collection[str], known: Iterable[str], keys: Keys) -> int:
    """Whatever was kept of these, and of those that are not known; a number that all larger ones are free from."""
    lines = file.execute("SELECT number, id FROM lines").fetchall()
    gone = [(number,) for number, run_id in lines if run_id in fresh or run_id not in known]
    file.executemany("DELETE FROM lines WHERE number = ?", gone)
    numbers = json.dumps([number for number, _ in keys.values()])
    if len(gone) < MANY:
        cells = [cell for line in gone for cell in file.execute(OF_LINE, [numbers, *line])]
    else:
        cells = file.execute(OF_NONE).fetchall()
    sums = {number: checksum for number, checksum in keys.values()}
    for number, line, value in cells:
        sums[number] ^= checksum_of(line, repr(value))
    keys |= {key: (number, sums[number]) for key, (number, _) in keys.items()}
    file.executemany("DELETE FROM cells WHERE key = ? AND line = ?", [cell[:2] for cell in cells])
    return 1 + max((number for number, _ in lines), default=0)


def _put_lines(file: sqlite3.Connection, first: int, rows: Rows) -> None:
    told = []
    for number, (run_id, each) in enumerate(rows, first):
        text = text_of(each.line)
        told.append((number, run_id, each.seen, text, each.rest, checksum_of(run_id, each.seen, each.rest, text)))
    file.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?)", told)


def _put_cells(file: sqlite3.Connection, first: int, details: Sequence[Details], keys: Keys) -> None:
    cells: dict[str, list[tuple[int, int, Value]]] = {key: [] for key in keys}
    for line, (config, final) in enumerate(details, first):
        for key, value in (config | final).items():
            if value is not None and (key in keys or KEY.fullmatch(key)):
                number, checksum = keys.setdefault(key, (len(keys) + 1, 0))
                keys[key] = number, checksum ^ checksum_of(line, repr(value))
                cells.setdefault(key, []).append((number, line, value))
    file.executemany("INSERT INTO cells VALUES (?, ?, ?)", chain.from_iterable(cells.values()))  # in the order of cells
    _put_texts(file, {"keys": json.dumps(keys)})


def _put_columns(file: sqlite3.Connection) -> None:
    """What the rows say."""
    rows = file.execute(f"SELECT number, id, seen, rest, [{FORM}], checksum FROM lines").fetchall()
    check_rows(row[1:] for row in rows)
    lines = json.loads(f"[{','.join([row[4] for row in rows])}]")
    told = {name: [row[place] for row in rows] for place, name in enumerate(("number", "id", "seen"))}
    told |= {name: [line[place] for line in lines] for place, name in enumerate(Brief._fields[1:])}
    told |= {name: [tail[place] for tail in told["tail"]] for place, name in enumerate(TAILS)}
    _put_texts(file, {name: json.dumps(told[name]) for name in told if name != "tail"})


def _put_texts(file: sqlite3.Connection, texts: Mapping[str, str]) -> None:
    kept = [(name, text, checksum_of(text)) for name, text in texts.items()]
    file.executemany("INSERT OR REPLACE INTO columns VALUES (?, ?, ?)", kept)


def details_of(folder: Path) -> Details:
    """The config of a run, what is no number as text, and the last value of each of its metrics."""
    try:
        config = mapping(mapping(read_json(folder / "config.json", LARGEST_DETAIL)).get("config"))
    except UserError:
        config = {}
    final = {key: value for key, value in MetricsTable(folder / "metrics.csv").last().items() if math.isfinite(value)}
    return {key: _plain(value) for key, value in config.items()}, final


def _plain(value: object) -> Value:
    """As a cell holds it."""
    if isinstance(value, str):  # JSON can say what no file can hold: half a character
        return value if value.isprintable() else value.encode(errors="replace").decode()
    number = finite(value)
    if number is None:
        return None if value is None else json.dumps(value)
    return value if abs(number) < MOST_WHOLE else number  # type: ignore[return-value]
