"""What is known of all runs: a line of each, read again only when its files have changed.

Read only, never locked. What is wrong with a run is told in its line, and harms no other. Between two commands the
lines are kept in a file (`run_shelf`) that is never the truth: whoever doubts it deletes it.
"""

import json
import os
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from utils.metrics_table import MetricsTable, Tail
from utils.run_brief import GONE, Brief, best_of, head_of
from utils.run_columns import FIELDS, Columns, is_text
from utils.run_labels import read_labels
from utils.run_listing import Listing
from utils.run_shelf import Kept, Rest, Shelf, Value, details_of
from utils.runs_root import runs_root
from utils.user_error import UserError

FEWEST = 50  # of fewer runs all is read as quickly as a file about them
FEW = 1000  # of more the columns are quicker to read than their rows
QUIET = 60 * 10**9  # ns: until then a run that is running will have changed by the next look
SETTLED = 1_000_000_000  # ns: what changed just before it was read may change again at the same reading of the clock
TOLD_EVERY, TOLD_OF = 0.1, 256  # seconds, runs
FILES = ("", "/config.json", "/metrics.csv", "/checkpoints")
Told = Callable[[int, int], None]
MAY_CHANGE = ("running", "damaged")  # what the shelf says of a run that is looked into each time
UNREAD = Brief("")


class Entry:
    """What was read of a run, and inode, size and time of its files by then, "" of those that were not there."""

    folder: str = ""
    config: str = ""
    metrics: str = ""
    checkpoints: str = ""
    head: Brief = UNREAD
    line: Brief = UNREAD
    """all of it, as it was told last"""
    tail: Tail = UNREAD.tail
    best: str = ""
    """what is wrong with best.json"""
    labels: str = ""
    """what is wrong with labels.json"""
    seen: int = 0
    """by which it is seen that folder or config.json have changed"""
    changed: int = 0
    """when the newest of the files had changed, and when that was looked at, in ns"""
    looked: int = 0
    dead: bool = False
    """whether its process was gone by then"""
    shelved: bool = False
    """whether the shelf holds just this"""


class RunIndex:
    """All runs under the root. One thread at a time. Not `kept`: every run is read, whatever was kept of it."""

    def __init__(self, kept: bool = True) -> None:
        self._kept, self._listing = kept, Listing()
        self._entries: dict[str, Entry] = {}
        self._root = ""
        self._shelf: Shelf | None = None
        self._columns, self._marks = Columns({}), dict[str, tuple[int, str]]()
        self._lines: dict[str, Brief] = {}
        self._rows: dict[str, Kept] = {}

    def ids(self) -> dict[str, None]:
        """The newest first. Where the root is another one, what its shelf holds is known at once."""
        if (root := str(runs_root())) != self._root:
            self._root = root
            self._shelf = Shelf(Path(root)) if self._kept and os.path.isdir(root) else None
            self._know(self._shelf.columns() if self._shelf and self._shelf.there else Columns({}))
            self._listing.expect(Path(root), self._marks)
        known = self._listing.ids()
        if len(self._entries) > len(known):
            self._entries = {run_id: entry for run_id, entry in self._entries.items() if run_id in known}
        return known

    def _know(self, columns: Columns) -> None:
        self._columns, self._marks, self._lines = columns, columns.marks(), {}
        self._entries, self._rows = {}, {}

    def forget(self) -> None:
        """Read every run anew."""
        self.ids()
        self._know(Columns({}))

    def entry(self, run_id: str) -> Entry:
        if run_id not in self._entries:
            self._fetch([run_id])
            kept = self._rows.get(run_id)
            self._entries[run_id] = _entry(kept) if kept else Entry()
        return self._entries[run_id]

    def known(self, run_id: str) -> Brief | None:
        """What was told of a run that has ended, without a look at it."""
        if not self._has_ended(run_id):
            return None
        if entry := self._entries.get(run_id):
            return entry.line
        return self._told(FIELDS).get(run_id)

    def all(self, told: Told | None = None, fields: Collection[str] = FIELDS) -> list[Brief]:
        """Every run, the newest first. One that has ended is read again where its folder or its config.json has
        changed; `told(done, of)` while that takes long. Of fields that are not asked for a line may tell None."""
        known = self.ids()
        told = _seldom(told) if told else None
        lines = self._still(known, fields, told)
        others = [run_id for run_id in known if run_id not in lines]
        self._fetch(others)
        for place, run_id in enumerate(others):
            lines[run_id] = self.brief(run_id)
            if told:
                told(place + 1, len(others))
        return [lines[run_id] for run_id in known]

    def whole(self, lines: Collection[Brief]) -> list[Brief]:
        """The same runs, nothing left out."""
        if len(lines) < FEW:
            self._fetch(line.id for line in lines)
            found = {run_id: row.line for run_id, row in self._rows.items()}
        else:
            found = self._told(FIELDS)
        found = found | {run_id: entry.line for run_id, entry in self._entries.items()}
        return [found.get(line.id) or self.brief(line.id) for line in lines]

    def _fetch(self, ids: Iterable[str]) -> None:
        """All that the shelf knows of these, unless another command has put something else there since."""
        asked = [each for each in ids if each in self._marks and each not in self._entries and each not in self._rows]
        found = self._shelf.rows(asked) if asked and self._shelf else {}
        self._rows |= {run_id: row for run_id, row in found.items() if row.seen == self._marks[run_id][0]}

    def _told(self, fields: Collection[str]) -> dict[str, Brief]:
        if fields == FIELDS and not self._lines:
            self._lines = self._columns.lines(FIELDS)
        return self._lines or self._columns.lines(fields)

    def _has_ended(self, run_id: str) -> bool:
        """By what was told of it."""
        if entry := self._entries.get(run_id):
            return bool(entry.line.id) and entry.head.status != "running"
        return run_id in self._marks and self._marks[run_id][1] not in MAY_CHANGE

    def _still(self, known: Collection[str], fields: Collection[str], told: Told | None) -> dict[str, Brief]:
        """Those that have ended, and whose folder and config.json are as they were.

        Of what is done for each of ten thousand runs this is most.
        """
        lines = self._told(fields)
        if len(lines) < len(self._marks):
            self.forget()
        lines = lines | {run_id: entry.line for run_id, entry in self._entries.items()}
        before = {run_id: mark for run_id, (mark, status) in self._marks.items() if status not in MAY_CHANGE}
        before |= {run_id: entry.seen if self._has_ended(run_id) else 0 for run_id, entry in self._entries.items()}
        found, lstat, root = {}, os.lstat, f"{self._root}/"
        for place, run_id in enumerate(known):
            if mark := before.get(run_id):
                try:
                    if seen(lstat(root + run_id), lstat(f"{root}{run_id}/config.json")) == mark:
                        found[run_id] = lines[run_id]
                except OSError:
                    continue
            if told and not place % TOLD_OF:
                told(place, len(known))
        return found

    def brief(self, run_id: str) -> Brief:
        """The whole line, every file of it looked at."""
        entry, folder, looked = self.entry(run_id), f"{self._root}/{run_id}", time.time_ns()
        stats = [_stat(f"{folder}{name}") for name in FILES]
        entry.seen, stamps = seen(stats[0], stats[1]), tuple(map(_stamp, stats))
        before = entry.folder, entry.config, entry.metrics, entry.checkpoints
        if stamps != before or not stamps[1]:
            entry.shelved, entry.looked = False, looked
            entry.changed = max((each.st_ctime_ns for each in stats if each), default=0)
            _read(entry, Path(folder), before, stamps)
        known_dead = entry.dead and stamps == before
        told = standing(entry.head, Path(folder), known_dead)
        entry.dead, entry.line = told.reason == GONE, line_of(entry, told)
        return entry.line

    def values(self, keys: Iterable[str], lines: Iterable[Brief]) -> dict[str, dict[str, Value]]:
        """By key, by run, what its config or the end of its metrics.csv say of it; None where they say nothing."""
        wanted = [*keys]
        found = self._shelf.values(wanted) if self._shelf and self._shelf.there else {}
        there = found[wanted[0]] if found else {}
        unread = [line.id for line in lines if line.id not in there or not self._is_shelved(line.id)]
        for run_id in unread:
            for key, value in picked(Path(self._root, run_id), wanted).items():
                found.setdefault(key, {})[run_id] = value
        return found

    def _is_shelved(self, run_id: str) -> bool:
        """Whether the shelf holds just what is known of a run."""
        entry = self._entries.get(run_id)
        return entry.shelved if entry else run_id in self._marks

    def save(self) -> None:
        """Keep what was read since on the shelf, where there is one: a folder that cannot be written to has none."""
        if self._shelf is None or len(self._listing.ids()) < FEWEST:
            return
        fresh = [(run_id, each) for run_id, each in self._entries.items() if not each.shelved and each.line.id]
        settled = [(run_id, each) for run_id, each in fresh if each.looked - each.changed > _rest_of(each)]
        if settled and self._shelf.write([(run_id, _kept(each)) for run_id, each in settled], self._listing.ids()):
            for _, each in settled:
                each.shelved = True


def look_at(folder: Path) -> Brief:
    """The line of one run, wherever it lies."""
    entry, found = Entry(), [_stat(f"{folder}{name}") for name in FILES]
    _read(entry, folder, ("", "", "", ""), tuple(map(_stamp, found)))
    return line_of(entry, standing(entry.head, folder))


def line_of(entry: Entry, head: Brief) -> Brief:
    if fault := head.fault or entry.tail.fault or entry.best or entry.labels:
        head = head._replace(status="damaged", fault=fault)
    return head._replace(tail=entry.tail)


def picked(folder: Path, keys: Iterable[str]) -> dict[str, Value]:
    """What a run's own files say of these keys."""
    config, final = details_of(folder)
    return {key: final.get(key) if "/" in key else config.get(key) for key in keys}


def _read(entry: Entry, folder: Path, before: tuple[str, ...], now: tuple[str, ...]) -> None:
    """What has changed, and no more; what is wrong is told without the folder's name."""
    entry.folder, entry.config, entry.metrics, entry.checkpoints = now
    own = f"{folder}/"
    if now[1] != before[1] or not now[1]:
        head = head_of(folder)
        fault = head.fault.replace(own, "")
        entry.head = head._replace(fault=fault, score=entry.head.score, labels=entry.head.labels)
    if now[2] != before[2]:
        tail = MetricsTable(folder / "metrics.csv").tail() if now[2] else Tail()
        entry.tail = tail._replace(fault=tail.fault.replace(own, ""))
    if now[3] != before[3]:
        score, wrong = best_of(folder)
        entry.head, entry.best = entry.head._replace(score=score), wrong.replace(own, "")
    if now[0] != before[0]:
        try:
            entry.head, entry.labels = entry.head._replace(labels=read_labels(folder)), ""
        except UserError as error:
            entry.labels = str(error).replace(own, "")


def standing(head: Brief, folder: Path, known_dead: bool = False) -> Brief:
    """The same; of a run that is running by its own account what can be seen of its process.

    Of one that is known to be dead, and is as it was, nothing is read again.
    """
    if head.status != "running":
        return head
    from utils.run_state import DEAD, HALTED, SILENT, state_of, still_dead  # brings what reads metrics.mmap

    state = DEAD if known_dead and still_dead(folder) else state_of(folder, {"status": head.status})
    if state == DEAD:
        return head._replace(status=DEAD, reason=GONE)
    return head._replace(status=state) if state in (SILENT, HALTED) else head


def _stat(path: str) -> os.stat_result | None:
    """Of what lies there itself, whatever it is; it is opened by run_files alone."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def seen(folder: os.stat_result | None, config: os.stat_result | None) -> int:
    """Another number where either has changed; 0 where one is not there."""
    if folder is None or config is None:
        return 0
    told = (folder.st_ino, folder.st_size, folder.st_ctime_ns, config.st_ino, config.st_size, config.st_ctime_ns)
    return hash(told)  # of whole numbers it is the same in every process, and 64 bits


def _stamp(found: os.stat_result | None) -> str:
    return f"{found.st_ino} {found.st_size} {found.st_ctime_ns}" if found else ""


def _rest_of(entry: Entry) -> int:
    """For how long nothing has changed of what is worth keeping."""
    return max(SETTLED, QUIET) if entry.head.status == "running" else SETTLED


def _kept(entry: Entry) -> Kept:
    """Its status by its own account: what was seen of its process was so at that moment only."""
    stamps = entry.folder, entry.config, entry.metrics, entry.checkpoints
    rest = Rest(*stamps, entry.head.status, entry.head.fault, entry.best, entry.labels)
    return Kept(entry.seen, line_of(entry, entry.head), json.dumps(rest))


def _entry(kept: Kept) -> Entry:
    """Of a run that the shelf knows; of one of which it holds what we do not write, nothing."""
    entry = Entry()
    try:
        rest = Rest._make(json.loads(kept.rest))
    except (ValueError, TypeError, RecursionError):
        return entry
    if not all(map(is_text, rest)):
        return entry
    entry.folder, entry.config, entry.metrics, entry.checkpoints = rest[:4]
    entry.seen, entry.line, entry.tail, entry.shelved = kept.seen, kept.line, kept.line.tail, True
    entry.head = kept.line._replace(status=rest.status, fault=rest.config_fault)
    entry.best, entry.labels = rest.best_fault, rest.labels_fault
    return entry


def _seldom(told: Told) -> Told:
    """The same, as often as an eye sees."""
    said = time.monotonic()

    def tell(done: int, of: int) -> None:
        nonlocal said
        if time.monotonic() - said > TOLD_EVERY:
            said = time.monotonic()
            told(done, of)

    return tell
