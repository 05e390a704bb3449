"""A table of all runs below the root, which SQLite filters and sorts. Commands, the monitor and the inspector use it.

The table is in memory. `refresh` and `brief` read a run's files again if they changed; the runs are never locked. An
error in a run appears in its line and does not affect others. Between commands the table is stored in a file
(`run_shelf`), which may be deleted at any time.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from stride.runstore.metrics_table import MetricsTable, Tail
from stride.runstore.run_brief import (
    COLUMN_NAMES,
    COLUMNS,
    ENTRY_COLUMNS,
    GONE,
    LINE_NAMES,
    RUNS_TABLE,
    Brief,
    best_of,
    cells_of,
    head_of,
    line_of,
    read_labels,
)
from stride.runstore.run_names import ID, STAMP, runs_root
from stride.runstore.run_shelf import Shelf, Value, picked
from stride.utils.user_error import UserError

MIN_STORED_RUNS = 50  # for fewer runs, reading all is as fast as reading a stored table
# a row is stored only if the run's files had rested this long: a running run changes soon anyway, and a file that
# changed just before it was read may change again without a new time
RUNNING_REST_NS, REST_NS = 60 * 10**9, 10**9
REPORT_SECONDS, REPORT_RUNS = 0.1, 256  # progress is reported after so many seconds, checked every so many runs
FILES = ("", "/config.json", "/metrics.csv", "/checkpoints")  # in a run's folder; "" is the folder itself
# SQL: ids that start with a time, then folders that were named by hand
NEWEST_FIRST = f"id GLOB '{'[0-9]' * 8}-{'[0-9]' * 6}-*' DESC, id DESC"
MAY_CHANGE = "own = 'running' OR status = 'damaged'"  # SQL: runs that each refresh reads again
INSERT_RUN = f"INSERT OR REPLACE INTO runs VALUES ({', '.join('?' * (len(COLUMNS)))})"
Report = Callable[[int, int], None]
MAX_NEW_FOLDERS = 200  # folders that are not runs yet, of which each call checks whether they have become one


class Listing:
    """The ids of all runs below the root. The root's modification time shows whether names came or went."""

    def __init__(self) -> None:
        self.expect(Path(), [])

    def expect(self, root: Path, run_ids: Iterable[str]) -> None:
        """Start from ids that were runs before: those that still exist are not checked again."""
        self._root, self._stamp = root, 0
        self._ids = dict.fromkeys(run_ids)
        self._others: list[str] = []

    def ids(self) -> dict[str, None]:
        """Return the ids of all runs in the order in which they are shown, as keys of a dict."""
        root = runs_root()
        try:
            stamp = os.stat(root).st_mtime_ns
        except OSError:
            self.expect(root, [])
            return self._ids
        if (root, stamp) != (self._root, self._stamp):
            earlier_ids = self._ids if root == self._root else {}
            self._root, self._stamp = root, stamp if time.time_ns() - stamp > REST_NS else 0
            self._scan(earlier_ids)
        new_run_ids = {name for name in self._others[:MAX_NEW_FOLDERS] if self._is_run(name)}
        if new_run_ids:
            self._others = [name for name in self._others if name not in new_run_ids]
            self._ids = _newest_first([*self._ids, *new_run_ids])
        return self._ids

    def _scan(self, earlier_ids: dict[str, None]) -> None:
        with os.scandir(self._root) as entries:
            folders = [
                entry.name for entry in entries if ID.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
        self._others = [name for name in folders if name not in earlier_ids and not self._is_run(name)]
        self._ids = _newest_first([*{*folders}.difference(self._others)])

    def _is_run(self, name: str) -> bool:
        """Whether the folder contains a name that a run has; reading the run shows whether it is one."""
        return any(os.path.lexists(self._root / name / entry) for entry in ("config.json", "checkpoints"))


def _newest_first(names: list[str]) -> dict[str, None]:
    """Sort ids by time, newest first; folders that were named by hand, without a time, come last."""
    names.sort(reverse=True)
    stamped = dict.fromkeys(name for name in names if STAMP.match(name))
    return stamped if len(stamped) == len(names) else stamped | dict.fromkeys(names)


class IndexEntry(NamedTuple):
    """A row of the table: a run's line, and "inode size time" of each file it was read from ("" if missing)."""

    id: str
    mark: int = 0
    """a number that changes with the folder or config.json; 0 before anything was read"""
    folder: str = ""
    config: str = ""
    metrics: str = ""
    checkpoints: str = ""
    own: str = ""
    """the status that config.json states"""
    head_fault: str = ""
    """what is wrong with config.json; the next two: with best.json, with labels.json"""
    best_fault: str = ""
    labels_fault: str = ""
    rest: int = 0
    """nanoseconds from the last change of the run's files until they were read"""
    is_saved: int = 0
    """1 if the stored table has this very row"""
    line: Brief = Brief("")
    """the run's line as it was last shown"""

    @property
    def stamps(self) -> tuple[str, ...]:
        """Return the stamps of FILES, in that order."""
        return self.folder, self.config, self.metrics, self.checkpoints

    @property
    def row(self) -> list[object]:
        """Return the values for the columns of the table."""
        return [*self[: 1 + len(ENTRY_COLUMNS)], *cells_of(self.line)]


class RunIndex:
    """The table of all runs; one thread at a time may use it. `kept` False: ignore the stored table, read every run."""

    def __init__(self, kept: bool = True) -> None:
        self._kept, self._listing = kept, Listing()
        self._root = ""
        self._shelf: Shelf | None = None
        self._table = _open_table(b"")

    def ids(self) -> dict[str, None]:
        """Return all ids, newest first. If the runs root has changed, load the stored table of the new one first."""
        if (root := str(runs_root())) != self._root:
            self._root = root
            self._shelf = Shelf(Path(root)) if self._kept and os.path.isdir(root) else None
            self._table = _open_table(self._shelf.table() if self._shelf and self._shelf.exists else b"")
            self._listing.expect(Path(root), [run_id for (run_id,) in self._table.execute("SELECT id FROM runs")])
        return self._listing.ids()

    def forget(self) -> None:
        """Empty the table, so that every run is read again."""
        self.ids()
        self._table = _open_table(b"")

    def refresh(self, report: Report | None = None) -> None:
        """Read runs whose files have changed. An ended run is checked only by its folder and config.json.

        `report(done, of)` is called now and then while this takes long.
        """
        run_ids = self.ids()
        report = _limited(report) if report else None
        missing_rows = [row for row in self._table.execute("SELECT id FROM runs") if row[0] not in run_ids]
        self._table.executemany("DELETE FROM runs WHERE id = ?", missing_rows)
        changed = self._changed(run_ids, report)
        for count, run_id in enumerate(changed, 1):
            self.brief(run_id)
            if report:
                report(count, len(changed))

    def _changed(self, run_ids: Collection[str], report: Report | None) -> list[str]:
        """Return the ids of the runs to read again. With ten thousand runs, this loop is most of the work."""
        ended_marks = dict(self._table.execute(f"SELECT id, seen FROM runs WHERE NOT ({MAY_CHANGE})"))
        changed = []
        for count, run_id in enumerate(run_ids):
            folder = f"{self._root}/{run_id}"
            mark = mark_of(_stat(folder), _stat(f"{folder}/config.json"))
            if not mark or mark != ended_marks.get(run_id):
                changed.append(run_id)
            if report and not count % REPORT_RUNS:
                report(count, len(run_ids))
        return changed

    def all(self, report: Report | None = None) -> list[Brief]:
        """Refresh the table and return every run's line, newest first."""
        self.refresh(report)
        return self.select()

    def select(
        self, where: str = "1", values: Sequence[object] = (), order: str = NEWEST_FIRST, limit: int = 0
    ) -> list[Brief]:
        """Return the lines that match an SQL condition (`values` are for its question marks), without a refresh."""
        query = f"SELECT {LINE_NAMES} FROM runs WHERE {where} ORDER BY {order} LIMIT ?"
        return [line_of(row) for row in self._table.execute(query, [*values, limit or -1])]

    def ended(self) -> set[str]:
        """Return the ids of runs that had ended when they were last read."""
        return {run_id for (run_id,) in self._table.execute(f"SELECT id FROM runs WHERE NOT ({MAY_CHANGE})")}

    def entry(self, run_id: str) -> IndexEntry:
        """Return the table's row of a run; an empty one if there is none."""
        row = self._table.execute(f"SELECT {COLUMN_NAMES} FROM runs WHERE id = ?", [run_id]).fetchone()
        return _entry_of(row) if row else IndexEntry(run_id)

    def brief(self, run_id: str) -> Brief:
        """Check all files of a run, read those that have changed, and return its line."""
        folder = Path(self._root, run_id)
        looked_at = time.time_ns()
        old_entry = entry = self.entry(run_id)
        stats = [_stat(f"{folder}{name}") for name in FILES]
        stamps = [_stamp(stat) for stat in stats]
        if stamps != [*old_entry.stamps] or not old_entry.config:
            entry = _read(old_entry, folder, stamps)
            changed_at = max((stat.st_ctime_ns for stat in stats if stat), default=0)
            entry = entry._replace(mark=mark_of(*stats[:2]), rest=looked_at - changed_at, is_saved=0)
        is_known_dead = old_entry.line.reason == GONE and entry is old_entry
        entry = entry._replace(line=with_process_state(entry, folder, is_known_dead))
        if entry != old_entry:
            self._table.execute(INSERT_RUN, entry.row)
        return entry.line

    def values(self, keys: Sequence[str]) -> dict[str, dict[str, Value]]:
        """Return {key: {run id: value}} of config keys and last metrics; the value is None if the run has none.

        They also go into the table `cells`, for the conditions of `select`.
        """
        stored = self._shelf.values(keys) if self._shelf and self._shelf.exists else {}
        values: dict[str, dict[str, Value]] = {key: {} for key in keys}
        cells = []
        for run_id, mark, is_stored in self._table.execute("SELECT id, seen, kept FROM runs").fetchall():
            stored_values = stored.get((run_id, mark)) if is_stored else None
            for key, value in (stored_values or picked(Path(self._root, run_id), keys)).items():
                values[key][run_id] = value
                if value is not None:
                    cells.append((key, run_id, value))
        self._table.execute("DELETE FROM cells")
        self._table.executemany("INSERT INTO cells VALUES (?, ?, ?)", cells)
        return values

    def save(self) -> None:
        """Store the rows that were read since the last save, if the runs folder can be written to."""
        run_ids = self._listing.ids()
        if self._shelf is None or len(run_ids) < MIN_STORED_RUNS:
            return
        rows: list[list[object]] = []  # those whose files had rested long enough (see REST_NS)
        for row in self._table.execute(f"SELECT {COLUMN_NAMES} FROM runs WHERE kept = 0"):
            entry = _entry_of(row)
            if entry.rest > (max(REST_NS, RUNNING_REST_NS) if entry.own == "running" else REST_NS):
                rows.append(entry._replace(is_saved=1, line=as_stored(entry)).row)
        if rows and self._shelf.write(rows, run_ids):
            self._table.executemany("UPDATE runs SET kept = 1 WHERE id = ?", [row[:1] for row in rows])


def folded(value: object) -> str:
    """Return the text in the form in which words are compared: lower case; "" for nothing."""
    return str(value or "").casefold()


def look_at(folder: Path) -> Brief:
    """Return the line of one run, wherever its folder is."""
    entry = _read(IndexEntry(folder.name), folder, [_stamp(_stat(f"{folder}{name}")) for name in FILES])
    return with_process_state(entry, folder)


def as_stored(entry: IndexEntry) -> Brief:
    """Return a row's line from its files alone, without a look at the run's process."""
    line = entry.line
    fault = entry.head_fault or line.tail.fault or entry.best_fault or entry.labels_fault
    reason = "" if entry.own == "running" else line.reason
    return line._replace(status="damaged" if fault else entry.own, standing=entry.own, fault=fault, reason=reason)


def with_process_state(entry: IndexEntry, folder: Path, is_known_dead: bool = False) -> Brief:
    """Return a row's line; if config.json says "running", its status comes from the run's process (run_state).

    `is_known_dead`: it was dead at the last look and its files have not changed; then only its lock is read.
    """
    line = as_stored(entry)
    if entry.own != "running":
        return line
    from stride.runstore.run_state import DEAD, HALTED, SILENT, state_of, still_dead  # here: rarely needed, and slow

    state = DEAD if is_known_dead and still_dead(folder) else state_of(folder, {"status": entry.own})
    if state not in (DEAD, SILENT, HALTED):
        return line
    shown_status = line.status if line.fault else state
    return line._replace(status=shown_status, standing=state, reason=GONE if state == DEAD else line.reason)


def _read(entry: IndexEntry, folder: Path, stamps: Sequence[str]) -> IndexEntry:
    """Return the row after reading the files whose stamps changed. Faults are stored without the folder's name."""
    line = entry.line
    prefix = f"{folder}/"
    old_stamps = entry.stamps
    entry = entry._replace(folder=stamps[0], config=stamps[1], metrics=stamps[2], checkpoints=stamps[3])
    if stamps[1] != old_stamps[1] or not stamps[1]:
        config_line = head_of(folder)
        entry = entry._replace(own=config_line.status, head_fault=config_line.fault.replace(prefix, ""))
        line = config_line._replace(tail=line.tail, score=line.score, labels=line.labels)
    if stamps[2] != old_stamps[2]:
        tail = MetricsTable(folder / "metrics.csv").tail() if stamps[2] else Tail()
        line = line._replace(tail=tail._replace(fault=tail.fault.replace(prefix, "")))
    if stamps[3] != old_stamps[3]:
        score, best_fault = best_of(folder)
        line = line._replace(score=score)
        entry = entry._replace(best_fault=best_fault.replace(prefix, ""))
    if stamps[0] != old_stamps[0]:
        try:
            line = line._replace(labels=read_labels(folder))
            entry = entry._replace(labels_fault="")
        except UserError as error:
            entry = entry._replace(labels_fault=str(error).replace(prefix, ""))
    return entry._replace(line=line)


def mark_of(folder: os.stat_result | None, config: os.stat_result | None) -> int:
    """Return a number that changes with the folder or config.json; 0 if one is missing."""
    if folder is None or config is None:
        return 0
    values = (folder.st_ino, folder.st_size, folder.st_ctime_ns, config.st_ino, config.st_size, config.st_ctime_ns)
    return hash(values)  # for whole numbers it is the same in every process; 64 bits


def _open_table(data: bytes) -> sqlite3.Connection:
    """Return an SQLite database in memory with the table of runs: the stored one in `data`, or an empty one for b""."""
    table = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    if data:
        table.deserialize(data)
    else:
        table.execute(f"CREATE TABLE {RUNS_TABLE}")
    # values of config keys and metrics that a query asked for
    table.execute("CREATE TABLE cells (key TEXT, id TEXT, value, PRIMARY KEY (key, id)) WITHOUT ROWID")
    table.create_function("folded", 1, folded, deterministic=True)
    table.create_function("now", 0, time.time)
    return table


def _entry_of(row: Sequence[object]) -> IndexEntry:
    entry_fields = 1 + len(ENTRY_COLUMNS)
    return IndexEntry._make((*row[:entry_fields], line_of((row[0], *row[entry_fields:]))))


def _stat(path: str) -> os.stat_result | None:
    """Return the status of the path itself, links not followed; None if it cannot be read."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def _stamp(stat: os.stat_result | None) -> str:
    return f"{stat.st_ino} {stat.st_size} {stat.st_ctime_ns}" if stat else ""


def _limited(report: Report) -> Report:
    """Return a function that passes on calls of `report`, but at most one in REPORT_SECONDS."""
    last_report = time.monotonic()

    def report_rarely(done: int, of: int) -> None:
        nonlocal last_report
        if time.monotonic() - last_report > REPORT_SECONDS:
            last_report = time.monotonic()
            report(done, of)

    return report_rarely
