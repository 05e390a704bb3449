"""What is known of the runs: a line of each, kept until its files change, and all of the few that are looked into.

Read only, never locked. What is wrong with a run is told in its line, and harms no other.
"""

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stride.inspector.middle import middle
from stride.runstore.metrics_table import MetricsTable
from stride.runstore.run_brief import Brief, facts_of
from stride.runstore.run_dir import RunDir, runs_root
from stride.runstore.run_index import RunIndex
from stride.runstore.run_query import Query, parse
from stride.utils.curve import Point
from stride.utils.user_error import UserError

BREATH = 5e-4  # seconds between two runs that nobody waits for
PAGE = 200  # runs that a table shows, until more are asked for
LOOKED_INTO = 12  # runs whose curves are kept
TURNS = 5  # looks at the table in which each run that a filter passes over is looked at once


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
    curves: MetricsTable = field(compare=False)

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
        self._index = RunIndex()
        self._rooms: OrderedDict[str, tuple[str, RunFacts]] = OrderedDict()
        self._turn = 0
        self._arranged: tuple[str, int, list[Brief], Page] = "", 0, [], Page([], 0)
        """the last answer, and what it was made of: pages ask again every two seconds"""
        self._lock = threading.Lock()

    def ids(self, most: int = PAGE) -> list[str]:
        """The newest."""
        with self._lock:
            return [*self._index.ids()][:most]

    def page(self, words: str = "", most: int = PAGE) -> Page:
        """What the line of words asks for (query.py), the newest first where it asks for no other order."""
        query = parse(words)
        with self._lock:
            known = self._index.ids()
            if query.newest:
                return Page(query.arrange(self._newest([*known], most), middle), len(known), query)
            self._look_by_turns(known)
            found = self._index.select(*query.where)
            if self._arranged[:3] != (words, most, found):
                page = Page(_cut(query.arrange(found, middle), most), len(found), query)
                self._arranged = words, most, found, page
            return self._arranged[3]

    def read_ahead(self) -> None:
        """Every run once, one at a time between what pages ask for: the first question about all finds them read."""
        for run_id in self.ids(sys.maxsize):
            time.sleep(BREATH)
            with self._lock:
                self._index.brief(run_id)
        with self._lock:
            self._index.save()

    def _newest(self, known: list[str], most: int) -> list[Brief]:
        """As many, and the rest of the group that the last of them belongs to; no others are looked at."""
        found = [self._index.brief(run_id) for run_id in known[:most]]
        group = found[-1].group if found else ""
        for run_id in known[most:] if group else ():
            line = self._index.brief(run_id)
            if line.group != group:
                break
            found.append(line)
        return found

    def group(self, name: str) -> list[Brief]:
        """Its runs by their seeds."""
        with self._lock:
            self._look_by_turns(self._index.ids())
            return self._index.select("[group] = ?", [name], "coalesce(seed, 0), id")

    def find(self, selector: str) -> RunDir:
        """RunDir.find for what a browser sent: folders elsewhere on the disk are not to be had that way."""
        selector = selector.strip()
        if not selector:
            raise UserError("which run? choose one, or type @last")
        with self._lock:
            known = selector in self._index.ids()
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
            self._index.ids()  # of this root
            brief, stamp = self._index.brief(run.id), self._index.entry(run.id).config
            before, room = self._rooms.get(run.id, ("", None))
            facts = room.facts if room and before == stamp else facts_of(run.path)
            room = RunFacts(run, brief, facts, room.curves if room else MetricsTable(run.metrics_csv, spread=True))
            self._rooms[run.id] = stamp, room
            self._rooms.move_to_end(run.id)
            while len(self._rooms) > LOOKED_INTO:
                self._rooms.popitem(last=False)
            room.curves.refresh()
            return room

    def _look_by_turns(self, known: Iterable[str]) -> None:
        """At every run, but at those that have ended by turns: there are many, and only a resume changes one."""
        self._turn, ended = self._turn + 1, self._index.ended()
        for place, run_id in enumerate(known, self._turn):
            if run_id not in ended or not place % TURNS:
                self._index.brief(run_id)


def _cut(items: list[list[Brief]], most: int) -> list[list[Brief]]:
    """The first of them, until they hold as many runs."""
    kept, room = [], most
    for members in items:
        if room <= 0:
            break
        kept.append(members)
        room -= len(members)
    return kept
