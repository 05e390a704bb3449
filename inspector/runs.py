"""What is known of the runs: a line of each, kept until its files change, and all of the few that are looked into.

Read only, never locked. What is wrong with a run is told in its line, and harms no other.
"""

import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from inspector.curves import Curves
from inspector.listing import Listing
from inspector.tail import Tail, read_tail
from report.curve import Point
from utils import run_files
from utils.run_dir import RunDir, runs_root
from utils.run_facts import LARGEST, finite, read_facts
from utils.run_fate import failure
from utils.run_lock import owner
from utils.user_error import UserError

SILENT_AFTER = 300.0  # seconds without a sign of life: the process was probably killed
PAGE = 200  # runs that a table shows, until more are asked for
LOOKED_INTO = 12  # runs whose curves are kept
TURNS = 5  # looks at the table in which each run that a filter passes over is looked at once
MOST_CONFIG, DEEPEST = 1 << 18, 20  # bytes of config.json, lists and objects within one another
Stamp = tuple[int, int, int] | None


class Brief(NamedTuple):
    """A line of the table."""

    id: str
    status: str = "damaged"
    """finished, failed, interrupted or damaged; of one that is running by its own account live, or, where nothing was
    heard for minutes, silent, and died where no process here trains it"""
    variant: str = "?"
    tail: Tail = Tail()
    goal: float | None = None
    group: str = ""
    fault: str = ""
    failure: str = ""
    """why it failed, "" where it did not"""

    @property
    def words(self) -> str:
        """What a filter looks for words in."""
        return f"{self.id} {self.variant} {self.status} {self.group}".casefold()


UNREAD = Brief("")


@dataclass
class Entry:
    """What was read of a run, and when its files had last changed by then."""

    config: Stamp = None
    metrics: Stamp = None
    checkpoints: Stamp = None
    head: Brief = UNREAD
    words: str = ""
    tail: Tail = UNREAD.tail
    best: str = ""
    """what is wrong with best.json"""


class Page(NamedTuple):
    """The lines to show, of how many that match."""

    lines: list[Brief]
    matching: int

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
        self._lock = threading.Lock()

    def ids(self, most: int = PAGE) -> list[str]:
        """The newest."""
        with self._lock:
            return [*self._listing.ids()][:most]

    def page(self, words: str = "", most: int = PAGE) -> Page:
        """The newest of those in which every word of the filter occurs."""
        with self._lock:
            root, known, wanted = str(runs_root()), self._listing.ids(), words.casefold().split()
            if len(self._entries) > len(known):
                self._entries = {run_id: entry for run_id, entry in self._entries.items() if run_id in known}
            ids = self._matching(root, known, wanted) if wanted else [*known]
            return Page([self._brief(root, run_id) for run_id in ids[:most]], len(ids))

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
            facts = room.facts if room and before == stamp else _facts(run.path)
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
            entry.config, entry.head = stamp, _head(Path(folder))
            entry.words = entry.head.words
        if entry.head.status != "running":
            return entry, entry.head
        signs = (found, _stat(f"{folder}/metrics.csv"), _stat(f"{folder}/run.log"))
        heard = time.time() - max(each.st_mtime for each in signs if each)
        if heard < SILENT_AFTER:
            return entry, entry.head._replace(status="live")
        return entry, entry.head._replace(status="silent" if owner(Path(folder)) else "died")

    def _matching(self, root: str, known: Iterable[str], wanted: list[str]) -> list[str]:
        """Runs that have ended are looked at again by turns: there are many, and only a resume changes one."""
        self._turn, found = self._turn + 1, []
        for place, run_id in enumerate(known, self._turn):
            entry = self._entries.get(run_id)
            if entry is None or entry.head.status == "running" or place % TURNS == 0:
                entry, line = self._heading(root, run_id)
                text = entry.words if line is entry.head else line.words
            else:
                text = entry.words
            if all(word in text for word in wanted):
                found.append(run_id)
        return found

    def _brief(self, root: str, run_id: str) -> Brief:
        """The whole line."""
        entry, head = self._heading(root, run_id)
        folder = f"{root}/{run_id}"
        if (stamp := _stamp(_stat(f"{folder}/metrics.csv"))) != entry.metrics:
            entry.metrics, entry.tail = stamp, read_tail(Path(folder, "metrics.csv")) if stamp else Tail()
        if (stamp := _stamp(_stat(f"{folder}/checkpoints"))) != entry.checkpoints:
            entry.checkpoints, entry.best = stamp, _wrong_best(RunDir(Path(folder)))
        if fault := head.fault or entry.tail.fault or entry.best:
            head = head._replace(status="damaged", fault=fault.replace(f"{folder}/", ""))
        return head._replace(tail=entry.tail)


def _facts(folder: Path) -> dict[str, Any]:
    """What read_facts says of a file that has the size, the depth and the numbers of a config."""
    found = _stat(f"{folder}/config.json")
    if found and found.st_size > MOST_CONFIG:
        raise UserError(f"{folder}/config.json has {found.st_size:,} bytes, more than any config")
    facts = read_facts(folder)
    level: list[Any] = [facts]
    for _ in range(DEEPEST):
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
        if any(isinstance(each, int) and abs(each) > LARGEST for each in level):
            raise UserError(f"{folder}/config.json is damaged: a number in it is larger than any key takes")
        level = [each for each in level if isinstance(each, dict | list)]
    if level:
        raise UserError(f"{folder}/config.json is nested more than {DEEPEST} deep")
    return facts


def _head(folder: Path) -> Brief:
    try:
        facts = _facts(folder)
    except UserError as error:
        return Brief(folder.name, fault=str(error))
    variant = f"{facts.get('env_id', '?')}:{facts.get('variant', '?')}"
    goal, group = finite(facts.get("goal")), facts.get("group") or ""
    why = failure(facts)
    return Brief(folder.name, facts.get("status", "?"), variant, goal=goal, group=group, failure=why)


def _wrong_best(run: RunDir) -> str:
    """What is wrong with best.json, where there is one; "" otherwise."""
    path = run.checkpoints / "best.json"
    try:
        if not run_files.exists(path):
            return ""
        best = run_files.read_json(path)
    except UserError as error:
        return str(error)
    score = best.get("score") if isinstance(best, dict) else math.nan
    return "" if score is None or finite(score) is not None else "checkpoints/best.json is damaged: it has no score"


def _stat(path: str) -> os.stat_result | None:
    """Of what lies there itself, whatever it is; it is opened by run_files alone."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def _stamp(found: os.stat_result | None) -> Stamp:
    return (found.st_ino, found.st_size, found.st_ctime_ns) if found else None
