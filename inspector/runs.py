"""What is known of the runs: a line of each, kept until its files change, and all of the few that are looked into.

Read only, never locked. What is wrong with a run is told in its line, and harms no other.
"""

import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from inspector.brief import GONE, Brief, facts_of, head_of, wrong_best
from inspector.curves import Curves
from inspector.listing import Listing
from inspector.query import Query, parse
from inspector.tail import Tail, read_tail
from report.curve import Point
from utils.run_dir import RunDir, runs_root
from utils.run_lock import owner
from utils.user_error import UserError

SILENT_AFTER = 300.0  # seconds without a sign of life: the process was probably killed
BREATH = 5e-4  # seconds between two runs that nobody waits for
PAGE = 200  # runs that a table shows, until more are asked for
LOOKED_INTO = 12  # runs whose curves are kept
TURNS = 5  # looks at the table in which each run that a filter passes over is looked at once
Stamp = tuple[int, int, int] | None


UNREAD = Brief("")


@dataclass
class Entry:
    """What was read of a run, and when its files had last changed by then."""

    config: Stamp = None
    metrics: Stamp = None
    checkpoints: Stamp = None
    head: Brief = UNREAD
    line: Brief = UNREAD
    """all of it, as it was told last"""
    tail: Tail = UNREAD.tail
    best: str = ""
    """what is wrong with best.json"""


class Page(NamedTuple):
    """The lines to show, of how many that match; runs of a group are together, any other is alone."""

    items: list[list[Brief]]
    matching: int
    query: Query = Query()

    @property
    def lines(self) -> list[Brief]:
        return [line for members in self.items for line in members]

    @property
    def goes_on(self) -> bool:
        return len(self.lines) < self.matching


@dataclass(frozen=True)
class RunFacts:
    """All of a run that the rooms show."""

    run: RunDir
    brief: Brief
    facts: dict[str, Any]
    curves: Curves = field(compare=False)

    @property
    def fault(self) -> str:
        return self.brief.fault or self.curves.fault

    def points(self, name: str) -> list[Point]:
        return self.curves.points(name)

    @property
    def state(self) -> tuple[object, ...]:
        """Differs as soon as a room would."""
        return self.brief, self.curves, self.curves.version, id(self.facts)


class Runs:
    """All runs under the root; every page of the browser asks the same one."""

    def __init__(self) -> None:
        self._listing = Listing()
        self._entries: dict[str, Entry] = {}
        self._rooms: OrderedDict[str, tuple[Stamp, RunFacts]] = OrderedDict()
        self._turn = 0
        self._arranged: tuple[str, int, list[Brief], Page] = "", 0, [], Page([], 0)
        """the last answer, and what it was made of: pages ask again every two seconds"""
        self._lock = threading.Lock()

    def ids(self, most: int = PAGE) -> list[str]:
        """The newest."""
        with self._lock:
            return [*self._listing.ids()][:most]

    def page(self, words: str = "", most: int = PAGE) -> Page:
        """What the line of words asks for (query.py), the newest first where it asks for no other order."""
        query = parse(words)
        with self._lock:
            root, known = str(runs_root()), self._listing.ids()
            if len(self._entries) > len(known):
                self._entries = {run_id: entry for run_id, entry in self._entries.items() if run_id in known}
            if query.newest:
                return Page(query.arrange(self._newest(root, [*known], most)), len(known), query)
            found = query.select(self._all(root, known))
            if self._arranged[:3] != (words, most, found):
                page = Page(_cut(query.arrange(found), most), len(found), query)
                self._arranged = words, most, found, page
            return self._arranged[3]

    def read_ahead(self) -> None:
        """Every run once, one at a time between what pages ask for: the first question about all finds them read."""
        for run_id in self.ids(sys.maxsize):
            time.sleep(BREATH)
            with self._lock:
                self._brief(str(runs_root()), run_id)

    def _newest(self, root: str, known: list[str], most: int) -> list[Brief]:
        """As many, and the rest of the group that the last of them belongs to; no others are looked at."""
        found = [self._brief(root, run_id) for run_id in known[:most]]
        group = found[-1].group if found else ""
        for run_id in known[most:] if group else ():
            line = self._brief(root, run_id)
            if line.group != group:
                break
            found.append(line)
        return found

    def group(self, name: str) -> list[Brief]:
        """Its runs by their seeds."""
        with self._lock:
            found = [line for line in self._all(str(runs_root()), self._listing.ids()) if line.group == name]
        return sorted(found, key=lambda line: (line.seed or 0, line.id))

    def find(self, selector: str) -> RunDir:
        """RunDir.find for what a browser sent: folders elsewhere on the disk are not to be had that way."""
        selector = selector.strip()
        if not selector:
            raise UserError("which run? choose one, or type @last")
        with self._lock:
            known = selector in self._listing.ids()
        if known:
            return RunDir(runs_root() / selector)
        if "/" in selector.partition("@best:")[0] or "\\" in selector or "\0" in selector:
            raise UserError(f"{selector[:60]!r} is not a run id; runs are chosen by id here")
        run = RunDir.find(selector)
        if run.path.parent.resolve() != runs_root().resolve() or run.path.is_symlink():
            raise UserError(f"{run.id} is not under {runs_root()}")
        return run

    def look_into(self, selector: str) -> RunFacts:
        """As it stands on disk; a run without a row yet is a run. UserError where config.json tells nothing."""
        run = self.find(selector)
        with self._lock:
            brief, stamp = self._brief(str(runs_root()), run.id), self._entries[run.id].config
            before, room = self._rooms.get(run.id, (None, None))
            facts = room.facts if room and before == stamp else facts_of(run.path)
            room = RunFacts(run, brief, facts, room.curves if room else Curves(run.metrics_csv))
            self._rooms[run.id] = stamp, room
            self._rooms.move_to_end(run.id)
            while len(self._rooms) > LOOKED_INTO:
                self._rooms.popitem(last=False)
            room.curves.refresh()
            return room

    def _heading(self, root: str, run_id: str) -> tuple[Entry, Brief]:
        """What config.json says, read again only when it has changed since."""
        entry = self._entries.setdefault(run_id, Entry())
        folder = f"{root}/{run_id}"
        found = _stat(f"{folder}/config.json")
        if (stamp := _stamp(found)) != entry.config or stamp is None:
            entry.config, entry.head = stamp, head_of(Path(folder))
        if entry.head.status != "running":
            return entry, entry.head
        signs = (found, _stat(f"{folder}/metrics.csv"), _stat(f"{folder}/run.log"))
        heard = time.time() - max(each.st_mtime for each in signs if each)
        if heard < SILENT_AFTER:
            return entry, entry.head
        if owner(Path(folder)):
            return entry, entry.head._replace(status="silent")
        return entry, entry.head._replace(status="failed", reason=GONE)

    def _all(self, root: str, known: Iterable[str]) -> list[Brief]:
        """Runs that have ended are looked at again by turns: there are many, and only a resume changes one."""
        self._turn, found = self._turn + 1, []
        for place, run_id in enumerate(known, self._turn):
            entry = self._entries.get(run_id)
            if entry is None or not entry.line.id or entry.head.status == "running" or place % TURNS == 0:
                found.append(self._brief(root, run_id))
            else:
                found.append(entry.line)
        return found

    def _brief(self, root: str, run_id: str) -> Brief:
        """The whole line."""
        entry, head = self._heading(root, run_id)
        folder = f"{root}/{run_id}"
        if (stamp := _stamp(_stat(f"{folder}/metrics.csv"))) != entry.metrics:
            entry.metrics, entry.tail = stamp, read_tail(Path(folder, "metrics.csv")) if stamp else Tail()
        if (stamp := _stamp(_stat(f"{folder}/checkpoints"))) != entry.checkpoints:
            entry.checkpoints, entry.best = stamp, wrong_best(RunDir(Path(folder)))
        if fault := head.fault or entry.tail.fault or entry.best:
            head = head._replace(status="damaged", fault=fault.replace(f"{folder}/", ""))
        entry.line = head._replace(tail=entry.tail)
        return entry.line


def _cut(items: list[list[Brief]], most: int) -> list[list[Brief]]:
    """The first of them, until they hold as many runs."""
    kept, room = [], most
    for members in items:
        if room <= 0:
            break
        kept.append(members)
        room -= len(members)
    return kept


def _stat(path: str) -> os.stat_result | None:
    """Of what lies there itself, whatever it is; it is opened by run_files alone."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def _stamp(found: os.stat_result | None) -> Stamp:
    return (found.st_ino, found.st_size, found.st_ctime_ns) if found else None
