"""Lines about runs that are kept between two commands: an SQLite file beside the runs, made anew whenever it is wrong.

It is never the truth. Whatever it is (damaged, of another version, a link, not to be written to) a command does
without it, or puts another one in its place.
"""

import json
import math
import os
import re
import sqlite3
import stat
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
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
DETAILS = "CREATE TABLE details (id TEXT PRIMARY KEY, config TEXT, final TEXT)"
Value = float | str | None


class Rest(NamedTuple):
    """What is only asked of a run that is looked into: stamps of its other files, and what was wrong with three."""

    metrics: str
    checkpoints: str
    status: str
    """by the account of its config.json"""
    config_fault: str
    best_fault: str
    labels_fault: str


class Kept(NamedTuple):
    """What is kept of a run: its line as it was told, and by what it is seen that it has changed."""

    stamps: str
    """of its folder and of its config.json, | between them"""
    line: Brief
    rest: str
    """a Rest as JSON"""


TAIL, LABELS = Brief._fields.index("tail") - 1, Brief._fields.index("labels") - 1  # behind the id
FORM = " ".join((*Brief._fields, *Tail._fields, *Labels._fields, *Rest._fields))
# one column is called after all that is in a line, so that a file of another form has no such column
LINES = f"CREATE TABLE lines (id TEXT PRIMARY KEY, stamps TEXT, [{FORM}] TEXT, rest TEXT)"
Rows = Sequence[tuple[str, Kept]]


class Shelf:
    """The file under one root."""

    def __init__(self, root: Path) -> None:
        self._root, self._path = root, root / NAME

    @property
    def there(self) -> bool:
        return os.path.lexists(self._path)

    def read(self) -> dict[str, Kept]:
        """All of it by its id; nothing where it is not what we write."""
        try:
            with closing(self._open()) as file:
                rows = file.execute(f"SELECT id, stamps, rest, [{FORM}] FROM lines").fetchall()
            lines = json.loads(f"[{','.join([row[3] for row in rows])}]")  # one long list is the quickest to read
            return {row[0]: _kept(row[0], row[1], row[2], line) for row, line in zip(rows, lines, strict=True)}
        except (sqlite3.Error, UserError, ValueError, TypeError, LookupError):
            return {}

    def values(self, keys: Iterable[str]) -> dict[str, dict[str, Value]]:
        """By run, its values of these keys of the config or names of metrics."""
        wanted = [key for key in keys if KEY.fullmatch(key) and self.there]
        if not wanted:
            return {}
        places = ", ".join(f"json_extract({'final' if '/' in key else 'config'}, ?)" for key in wanted)
        try:
            with closing(self._open()) as file:
                rows = file.execute(f"SELECT id, {places} FROM details", [f'$."{key}"' for key in wanted])
                return {run_id: dict(zip(wanted, found, strict=True)) for run_id, *found in rows}
        except (sqlite3.Error, UserError, ValueError):
            return {}

    def write(self, rows: Rows, known: Iterable[str]) -> bool:
        """Keep these, and of no run that is gone; whether that was possible."""
        details = [(run_id, *map(json.dumps, details_of(self._root / run_id))) for run_id, _ in rows]
        for attempt in (1, 2):
            try:
                with closing(self._open()) as file, file:
                    self._replace(file, rows, details, known)
                return True
            except (sqlite3.OperationalError, UserError):  # another command holds it, or nobody may write there
                return False
            except sqlite3.DatabaseError:
                if attempt == 1:
                    with suppress(OSError):
                        os.unlink(self._path)
        return False

    @staticmethod
    def _replace(file: sqlite3.Connection, rows: Rows, details: Sequence[Sequence[str]], known: Iterable[str]) -> None:
        made = {name for (name,) in file.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL")}
        if made != {LINES, DETAILS}:
            for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                file.execute(f'DROP TABLE "{name}"')
            file.execute(LINES)
            file.execute(DETAILS)
        gone = [(name,) for (name,) in file.execute("SELECT id FROM lines") if name not in known]
        for table in ("lines", "details"):
            file.executemany(f"DELETE FROM {table} WHERE id = ?", gone)
        lines = [(run_id, each.stamps, _text(each.line), each.rest) for run_id, each in rows]
        file.executemany("INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?)", lines)
        file.executemany("INSERT OR REPLACE INTO details VALUES (?, ?, ?)", details)

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


def details_of(folder: Path) -> tuple[dict[str, Value], dict[str, float]]:
    """The config of a run, what is no number as text, and the last value of each of its metrics."""
    try:
        config = mapping(mapping(read_json(folder / "config.json", LARGEST_DETAIL)).get("config"))
    except UserError:
        config = {}
    final = {key: value for key, value in last_values(folder / "metrics.csv").items() if math.isfinite(value)}
    return {key: _plain(value) for key, value in config.items()}, final


def _plain(value: object) -> Value:
    if value is None or isinstance(value, str) or finite(value) is not None:
        return value  # type: ignore[return-value]
    return json.dumps(value)


def _text(line: Brief) -> str:
    """All but the id, as a list."""
    told: list[object] = [*line[1:]]
    told[LABELS] = None if line.labels == NOTHING else line.labels
    return json.dumps(told)


def _kept(run_id: str, stamps: str, rest: str, told: list[Any]) -> Kept:
    """Thousands are made while somebody waits for a list."""
    told[TAIL], labels = Tail._make(told[TAIL]), told[LABELS]
    told[LABELS] = Labels(tuple(labels[0]), labels[1]) if labels else NOTHING
    return Kept(stamps, Brief(run_id, *told), rest)
