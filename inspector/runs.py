"""The runs that the inspector shows: a line of each from the index, and all files of the few that are opened.

Read only, never locked. A problem of a run is shown in its line, and harms no other.
"""

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stride.runstore.metrics_table import MetricsTable
from stride.runstore.run_brief import Brief, facts_of
from stride.runstore.run_dir import RunDir, runs_root
from stride.runstore.run_index import RunIndex
from stride.runstore.run_query import Query, Value, parse
from stride.utils.curve import Point
from stride.utils.statistics import iqm
from stride.utils.user_error import UserError

PAUSE = 5e-4  # seconds between two runs that are read ahead
PAGE = 200  # runs that a table shows, until more are asked for
MOST_OPEN = 12  # runs whose curves are kept in memory
TURNS = 5  # looks at the table in which each ended run is checked once
LARGEST = 1e100  # larger values are left out of a mean


class Page(NamedTuple):
    """The runs to show, and the number of those that match; runs of a group are together, any other is alone."""

    items: list[list[Brief]]
    matching: int
    query: Query = Query()

    @property
    def lines(self) -> list[Brief]:
        return [run_brief for members in self.items for run_brief in members]

    @property
    def goes_on(self) -> bool:
        return len(self.lines) < self.matching


@dataclass(frozen=True)
class RunFacts:
    """Everything that is shown of one run."""

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
        """Changes when a tab about the run would."""
        return self.brief, self.curves, self.curves.version, id(self.facts)


class Runs:
    """All runs under the root; every page of the browser asks the same one."""

    def __init__(self) -> None:
        self._index = RunIndex()
        self._open_runs: OrderedDict[str, tuple[str, RunFacts]] = OrderedDict()
        self._turn = 0
        self._lock = threading.Lock()

    def ids(self, most: int = PAGE) -> list[str]:
        """The newest."""
        with self._lock:
            return [*self._index.ids()][:most]

    def page(self, words: str = "", most: int = PAGE) -> Page:
        """The runs that the filter line asks for (run_query.py), the newest first unless it asks for another order."""
        query = parse(words)
        with self._lock:
            run_ids = self._index.ids()
            if query.newest:
                return Page(query.arrange(self._newest([*run_ids], most), middle), len(run_ids), query)
            self._check_by_turns(run_ids)
            briefs = self._index.select(*query.where)
            return Page(_cut(query.arrange(briefs, middle), most), len(briefs), query)

    def read_ahead(self) -> None:
        """Read every run once, between the questions of pages: the first question about all is answered quickly."""
        for run_id in self.ids(sys.maxsize):
            time.sleep(PAUSE)
            with self._lock:
                self._index.brief(run_id)
        with self._lock:
            self._index.save()

    def _newest(self, run_ids: list[str], most: int) -> list[Brief]:
        """So many, and the rest of the group that the last of them belongs to; no others are read."""
        briefs = [self._index.brief(run_id) for run_id in run_ids[:most]]
        group = briefs[-1].group if briefs else ""
        if group:
            for run_id in run_ids[most:]:
                run_brief = self._index.brief(run_id)
                if run_brief.group != group:
                    break
                briefs.append(run_brief)
        return briefs

    def group(self, name: str) -> list[Brief]:
        """Its runs by their seeds."""
        with self._lock:
            self._check_by_turns(self._index.ids())
            return self._index.select("[group] = ?", [name], "coalesce(seed, 0), id")

    def brief(self, run_id: str) -> Brief:
        with self._lock:
            self._index.ids()  # follows a change of the root
            return self._index.brief(run_id)

    def find(self, selector: str) -> RunDir:
        """RunDir.find for text that a browser sent: it cannot reach folders elsewhere on the disk."""
        selector = selector.strip()
        if not selector:
            raise UserError("choose a run, or type @last")
        with self._lock:
            is_id = selector in self._index.ids()
        if is_id:
            return RunDir(runs_root() / selector)
        if "/" in selector.partition("@best:")[0] or "\\" in selector or "\0" in selector:
            raise UserError(f"{selector[:60]!r} is not a run id; choose a run by its id")
        run = RunDir.find(selector)
        if run.path.parent.resolve() != runs_root().resolve() or run.path.is_symlink():
            raise UserError(f"{run.id} is not in {runs_root()}")
        return run

    def look_into(self, selector: str) -> RunFacts:
        """A run as its files are now, even without a row; UserError where config.json cannot be read."""
        run = self.find(selector)
        with self._lock:
            self._index.ids()  # follows a change of the root
            run_brief = self._index.brief(run.id)
            stamp = self._index.entry(run.id).config
            old_stamp, old = self._open_runs.get(run.id, ("", None))
            facts = old.facts if old and old_stamp == stamp else facts_of(run.path)
            curves = old.curves if old else MetricsTable(run.metrics_csv, spread=True)
            run_facts = RunFacts(run, run_brief, facts, curves)
            remember(self._open_runs, run.id, (stamp, run_facts), MOST_OPEN)
            curves.refresh()
            return run_facts

    def _check_by_turns(self, run_ids: Iterable[str]) -> None:
        """Check every run, but those that have ended by turns: there are many, and only a resume changes one."""
        self._turn += 1
        ended = self._index.ended()
        for index, run_id in enumerate(run_ids, self._turn):
            if run_id not in ended or index % TURNS == 0:
                self._index.brief(run_id)


def remember(cache: OrderedDict[str, Any], key: str, value: object, most: int) -> None:
    """Put it at the end; where the cache holds more than `most` the oldest goes."""
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > most:
        cache.popitem(last=False)


def _cut(items: list[list[Brief]], most: int) -> list[list[Brief]]:
    """The first groups, until they hold so many runs."""
    count = 0
    first_items = []
    for members in items:
        if count < most:
            first_items.append(members)
        count += len(members)
    return first_items


def middle(values: Sequence[Value]) -> Value:
    """The interquartile mean of numbers, the first of texts; None where there is nothing."""
    numbers = [float(value) for value in values if isinstance(value, int | float) and abs(value) < LARGEST]
    if numbers:
        return iqm(numbers)
    return min((str(value) for value in values if value not in (None, "")), default=None)
