"""What is known of all runs: a line of each, read again only when its files have changed.

Read only, never locked. What is wrong with a run is told in its line, and harms no other. Between two commands the
lines are kept in a file (`run_shelf`) that is never the truth: whoever doubts it deletes it.
"""

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from utils.run_brief import GONE, Brief, best_of, head_of
from utils.run_labels import read_labels
from utils.run_listing import Listing
from utils.run_shelf import Kept, Rest, Shelf, Value, details_of
from utils.run_tail import Tail, read_tail
from utils.runs_root import runs_root
from utils.user_error import UserError

FEWEST = 50  # of fewer runs all is read as quickly as a file about them
SETTLED = 1_000_000_000  # ns: what changed just before it was read may change again at the same reading of the clock
TOLD_EVERY = 0.1  # seconds
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
    changed: int = 0
    """when the newest of the files had changed, and when that was looked at, in ns"""
    looked: int = 0
    dead: bool = False
    """whether its process was gone by then"""
    shelved: bool = False
    """whether the shelf holds just this"""


class RunIndex:
    """All runs under the root. One thread at a time."""

    def __init__(self) -> None:
        self._listing = Listing()
        self._entries: dict[str, Entry] = {}
        self._root = ""
        self._shelf: Shelf | None = None
        self._shelved: dict[str, Kept] = {}

    def ids(self) -> dict[str, None]:
        """The newest first. Where the root is another one, what its shelf holds is known at once."""
        if (root := str(runs_root())) != self._root:
            self._root, self._entries = root, {}
            self._shelf = Shelf(Path(root)) if os.path.isdir(root) else None
            self._shelved = self._shelf.read() if self._shelf and self._shelf.there else {}
            self._listing.expect(Path(root), self._shelved)
        known = self._listing.ids()
        if len(self._entries) > len(known):
            self._entries = {run_id: entry for run_id, entry in self._entries.items() if run_id in known}
        return known

    def forget(self) -> None:
        """Read every run anew."""
        self.ids()
        self._entries, self._shelved = {}, {}

    def entry(self, run_id: str) -> Entry:
        if run_id not in self._entries:
            kept = self._shelved.get(run_id)
            self._entries[run_id] = _entry(kept) if kept else Entry()
        return self._entries[run_id]

    def known(self, run_id: str) -> Brief | None:
        """What was told of a run that has ended, without a look at it."""
        entry, kept = self._entries.get(run_id), self._shelved.get(run_id)
        if entry:
            return entry.line if entry.line.id and entry.head.status != "running" else None
        return kept.line if kept and kept.line.status not in MAY_CHANGE else None

    def all(self, told: Told | None = None) -> list[Brief]:
        """Every run, the newest first. One that has ended is read again where its folder or its config.json has
        changed; `told(done, of)` while that takes long."""
        known, found, said = self.ids(), [], time.monotonic()
        for run_id in known:
            found.append(self._known_still(run_id) or self.brief(run_id))
            if told and time.monotonic() - said > TOLD_EVERY:
                said = time.monotonic()
                told(len(found), len(known))
        return found

    def _known_still(self, run_id: str) -> Brief | None:
        """Of what is done for each of ten thousand runs this is most."""
        line = self.known(run_id)
        if line is None:
            return None
        entry, folder = self._entries.get(run_id), f"{self._root}/{run_id}"
        before = f"{entry.folder}|{entry.config}" if entry else self._shelved[run_id].stamps
        try:
            lies, config = os.lstat(folder), os.lstat(f"{folder}/config.json")
        except OSError:
            return None
        return line if f"{_stamp(lies)}|{_stamp(config)}" == before else None

    def brief(self, run_id: str) -> Brief:
        """The whole line, every file of it looked at."""
        entry, folder, looked = self.entry(run_id), f"{self._root}/{run_id}", time.time_ns()
        stats = [_stat(f"{folder}{name}") for name in FILES]
        stamps = tuple(map(_stamp, stats))
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
        """By run, what its config or the end of its metrics.csv say of these keys; None where they have none."""
        wanted = [*keys]
        there = self._shelf.values(wanted) if self._shelf and wanted else {}
        return {
            line.id: there[line.id] if line.id in there and self._is_shelved(line.id)
            else picked(Path(self._root, line.id), wanted)
            for line in lines
        }  # fmt: skip

    def _is_shelved(self, run_id: str) -> bool:
        """Whether the shelf holds just what is known of a run."""
        entry = self._entries.get(run_id)
        return entry.shelved if entry else run_id in self._shelved

    def save(self) -> None:
        """Keep what was read since on the shelf, where there is one: a folder that cannot be written to has none."""
        if self._shelf is None or len(self._listing.ids()) < FEWEST:
            return
        fresh = [(run_id, each) for run_id, each in self._entries.items() if not each.shelved and each.line.id]
        settled = [(run_id, each) for run_id, each in fresh if each.looked - each.changed > SETTLED]
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
        tail = read_tail(folder / "metrics.csv") if now[2] else Tail()
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
    from utils.run_state import DEAD, PAUSED, SILENT, state_of, still_dead  # brings what reads metrics.mmap

    state = DEAD if known_dead and still_dead(folder) else state_of(folder, {"status": head.status})
    if state == DEAD:
        return head._replace(status=DEAD, reason=GONE)
    return head._replace(status=state) if state in (SILENT, PAUSED) else head


def _stat(path: str) -> os.stat_result | None:
    """Of what lies there itself, whatever it is; it is opened by run_files alone."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def _stamp(found: os.stat_result | None) -> str:
    return f"{found.st_ino} {found.st_size} {found.st_ctime_ns}" if found else ""


def _kept(entry: Entry) -> Kept:
    """Its status by its own account: what was seen of its process was so at that moment only."""
    told = line_of(entry, entry.head)
    rest = Rest(entry.metrics, entry.checkpoints, entry.head.status, entry.head.fault, entry.best, entry.labels)
    return Kept(f"{entry.folder}|{entry.config}", told, json.dumps(rest))


def _entry(kept: Kept) -> Entry:
    """Of a run that the shelf knows; of one of which it holds what we do not write, nothing."""
    entry = Entry()
    try:
        rest = Rest._make(json.loads(kept.rest))
    except (ValueError, TypeError):
        return entry
    entry.folder, _, entry.config = kept.stamps.partition("|")
    entry.metrics, entry.checkpoints = rest.metrics, rest.checkpoints
    entry.line, entry.tail, entry.shelved = kept.line, kept.line.tail, True
    entry.head = kept.line._replace(status=rest.status, fault=rest.config_fault)
    entry.best, entry.labels = rest.best_fault, rest.labels_fault
    return entry
