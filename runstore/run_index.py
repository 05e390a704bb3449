"""All runs under the root as one table, which SQLite filters and sorts; a run is read again when its files change.

The table lies in memory, and is as true as the last `refresh` or `brief`. Read only, never locked. What is wrong with a
run is told in its line, and harms no other. Between two commands the table is kept in a file (`run_shelf`) that is
never the truth: whoever doubts it deletes it.
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

MIN_STORED_RUNS = 50  # of fewer runs all is read as quickly as a file about them
RUNNING_REST_NS = 60 * 10**9  # ns: until then a run that is running will have changed by the next look
REST_NS = 1_000_000_000  # ns: what changed just before it was read may change again at the same reading of the clock
REPORT_SECONDS, REPORT_RUNS = 0.1, 256  # seconds, runs
FILES = ("", "/config.json", "/metrics.csv", "/checkpoints")
# ids begin with the time; folders that were named by hand come last
NEWEST_FIRST = f"id GLOB '{'[0-9]' * 8}-{'[0-9]' * 6}-*' DESC, id DESC"
MAY_CHANGE = "own = 'running' OR status = 'damaged'"  # runs that are looked into each time
INSERT_RUN = f"INSERT OR REPLACE INTO runs VALUES ({', '.join('?' * (len(COLUMNS)))})"
Report = Callable[[int, int], None]
MAX_NEW_FOLDERS = 200  # folders that are no runs yet, looked into each time


class Listing:
    """The ids under the runs root: a folder's time tells whether names came or went."""

    def __init__(self) -> None:
        self.expect(Path(), [])

    def expect(self, root: Path, run_ids: Iterable[str]) -> None:
        """Names that were runs when somebody last looked: of these that are there, nothing else is asked."""
        self._root, self._stamp = root, 0
        self._ids = dict.fromkeys(run_ids)
        self._others: list[str] = []

    def ids(self) -> dict[str, None]:
        """All runs in the order in which they are shown."""
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
        """Whether anything in the folder is called as in a run's; what it is shows when it is read."""
        return any(os.path.lexists(self._root / name / entry) for entry in ("config.json", "checkpoints"))


def _newest_first(names: list[str]) -> dict[str, None]:
    """Ids begin with the time; folders named by hand come last."""
    names.sort(reverse=True)
    stamped = dict.fromkeys(name for name in names if STAMP.match(name))
    return stamped if len(stamped) == len(names) else stamped | dict.fromkeys(names)


class IndexEntry(NamedTuple):
    """A row of the table: a run's line, and inode, size and time of each file it was read from ("" if absent)."""

    id: str
    mark: int = 0
    """another number once folder or config.json have changed, 0 before anything was read"""
    folder: str = ""
    config: str = ""
    metrics: str = ""
    checkpoints: str = ""
    own: str = ""
    """its status by its own account"""
    head_fault: str = ""
    """what is wrong with config.json, with best.json, with labels.json"""
    best_fault: str = ""
    labels_fault: str = ""
    rest: int = 0
    """ns from the last change of its files to the look at them"""
    is_saved: int = 0
    """whether the file that is kept holds just this"""
    line: Brief = Brief("")
    """as it was told last"""

    @property
    def stamps(self) -> tuple[str, ...]:
        return self.folder, self.config, self.metrics, self.checkpoints

    @property
    def row(self) -> list[object]:
        return [*self[: 1 + len(ENTRY_COLUMNS)], *cells_of(self.line)]


class RunIndex:
    """One thread at a time. Not `kept`: every run is read, whatever was kept of it."""

    def __init__(self, kept: bool = True) -> None:
        self._kept, self._listing = kept, Listing()
        self._root = ""
        self._shelf: Shelf | None = None
        self._table = _open_table(b"")

    def ids(self) -> dict[str, None]:
        """The newest first. Where the root is another one, what is kept of its runs is in the table at once."""
        if (root := str(runs_root())) != self._root:
            self._root = root
            self._shelf = Shelf(Path(root)) if self._kept and os.path.isdir(root) else None
            self._table = _open_table(self._shelf.table() if self._shelf and self._shelf.there else b"")
            self._listing.expect(Path(root), [run_id for (run_id,) in self._table.execute("SELECT id FROM runs")])
        return self._listing.ids()

    def forget(self) -> None:
        """Read every run anew."""
        self.ids()
        self._table = _open_table(b"")

    def refresh(self, report: Report | None = None) -> None:
        """Read what has changed of every run: one that has ended is read again where its folder or its config.json
        has changed. `report(done, of)` while that takes long."""
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
        """Ids of the runs to be read again. This loop is most of the work for ten thousand runs."""
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
        """Every run as it is now, the newest first."""
        self.refresh(report)
        return self.select()

    def select(
        self, where: str = "1", values: Sequence[object] = (), order: str = NEWEST_FIRST, limit: int = 0
    ) -> list[Brief]:
        """The lines that a condition of SQL lets through, as they are in the table."""
        query = f"SELECT {LINE_NAMES} FROM runs WHERE {where} ORDER BY {order} LIMIT ?"
        return [line_of(row) for row in self._table.execute(query, [*values, limit or -1])]

    def ended(self) -> set[str]:
        """The runs that had ended when they were looked at."""
        return {run_id for (run_id,) in self._table.execute(f"SELECT id FROM runs WHERE NOT ({MAY_CHANGE})")}

    def entry(self, run_id: str) -> IndexEntry:
        """The table's row of a run."""
        row = self._table.execute(f"SELECT {COLUMN_NAMES} FROM runs WHERE id = ?", [run_id]).fetchone()
        return _entry_of(row) if row else IndexEntry(run_id)

    def brief(self, run_id: str) -> Brief:
        """The line of a run, every file of it looked at."""
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
        """By key, by run, what its config or the end of its metrics.csv say of it; None where they say nothing.

        `cells` of the table holds them from here on, for conditions of `select`."""
        stored = self._shelf.values(keys) if self._shelf and self._shelf.there else {}
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
        """Keep what was read since, where that is possible: a folder that cannot be written to has no file."""
        run_ids = self._listing.ids()
        if self._shelf is None or len(run_ids) < MIN_STORED_RUNS:
            return
        rows: list[list[object]] = []
        for row in self._table.execute(f"SELECT {COLUMN_NAMES} FROM runs WHERE kept = 0"):
            entry = _entry_of(row)
            if entry.rest > (max(REST_NS, RUNNING_REST_NS) if entry.own == "running" else REST_NS):
                rows.append(entry._replace(is_saved=1, line=as_stored(entry)).row)
        if rows and self._shelf.write(rows, run_ids):
            self._table.executemany("UPDATE runs SET kept = 1 WHERE id = ?", [row[:1] for row in rows])


def folded(value: object) -> str:
    """As words are compared."""
    return str(value or "").casefold()


def look_at(folder: Path) -> Brief:
    """The line of one run, wherever it lies."""
    entry = _read(IndexEntry(folder.name), folder, [_stamp(_stat(f"{folder}{name}")) for name in FILES])
    return with_process_state(entry, folder)


def as_stored(entry: IndexEntry) -> Brief:
    """Its line, as if nothing could be seen of its process."""
    line = entry.line
    fault = entry.head_fault or line.tail.fault or entry.best_fault or entry.labels_fault
    reason = "" if entry.own == "running" else line.reason
    return line._replace(status="damaged" if fault else entry.own, standing=entry.own, fault=fault, reason=reason)


def with_process_state(entry: IndexEntry, folder: Path, is_known_dead: bool = False) -> Brief:
    """Its line; of a run that is running by its own account, what can be seen of its process.

    Of one that is known to be dead, and is as it was, nothing is read again.
    """
    line = as_stored(entry)
    if entry.own != "running":
        return line
    from stride.runstore.run_state import DEAD, HALTED, SILENT, state_of, still_dead  # brings what reads metrics.mmap

    state = DEAD if is_known_dead and still_dead(folder) else state_of(folder, {"status": entry.own})
    if state not in (DEAD, SILENT, HALTED):
        return line
    shown_status = line.status if line.fault else state
    return line._replace(status=shown_status, standing=state, reason=GONE if state == DEAD else line.reason)


def _read(entry: IndexEntry, folder: Path, stamps: Sequence[str]) -> IndexEntry:
    """Read only what has changed; faults are stored without the folder's name."""
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
    """Another number where either has changed; 0 where one is missing."""
    if folder is None or config is None:
        return 0
    values = (folder.st_ino, folder.st_size, folder.st_ctime_ns, config.st_ino, config.st_size, config.st_ctime_ns)
    return hash(values)  # of whole numbers it is the same in every process, and 64 bits


def _open_table(data: bytes) -> sqlite3.Connection:
    """A database in memory with the table of runs, empty or as it was kept."""
    table = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    if data:
        table.deserialize(data)
    else:
        table.execute(f"CREATE TABLE {RUNS_TABLE}")
    # what was asked for beside the lines: keys of configs, names of metrics
    table.execute("CREATE TABLE cells (key TEXT, id TEXT, value, PRIMARY KEY (key, id)) WITHOUT ROWID")
    table.create_function("folded", 1, folded, deterministic=True)
    table.create_function("now", 0, time.time)
    return table


def _entry_of(row: Sequence[object]) -> IndexEntry:
    entry_fields = 1 + len(ENTRY_COLUMNS)
    return IndexEntry._make((*row[:entry_fields], line_of((row[0], *row[entry_fields:]))))


def _stat(path: str) -> os.stat_result | None:
    """The status of the path itself, links not followed; files are opened by run_files alone."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def _stamp(stat: os.stat_result | None) -> str:
    return f"{stat.st_ino} {stat.st_size} {stat.st_ctime_ns}" if stat else ""


def _limited(report: Report) -> Report:
    """As often as an eye sees."""
    last_report = time.monotonic()

    def report_rarely(done: int, of: int) -> None:
        nonlocal last_report
        if time.monotonic() - last_report > REPORT_SECONDS:
            last_report = time.monotonic()
            report(done, of)

    return report_rarely
