"""Reads the runs that the inspector shows: a short record of each from the index, and all files of a few opened runs.

Runs are only read, and never locked. A problem of one run is shown in its row and does not affect the others.
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

PAUSE_SECONDS = 5e-4  # between two runs that are read ahead
PAGE_RUNS = 200  # runs that the table shows at first, and more per click
MAX_OPEN_RUNS = 12  # runs whose curves are kept in memory
CHECK_TURNS = 5  # an ended run is checked for changes at every 5th look at the table
MAX_VALUE = 1e100  # larger values are left out of a mean


class Page(NamedTuple):
    """The part of the table of runs that is shown."""

    items: list[list[Brief]]  # rows of the table: the runs of a group, or one run alone
    matching: int  # number of all runs that match the query
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
    brief: Brief  # its row in the table of runs
    facts: dict[str, Any]  # of config.json: config, versions, command, ...
    curves: MetricsTable = field(compare=False)  # of metrics.csv

    @property
    def fault(self) -> str:
        return self.brief.fault or self.curves.fault

    def points(self, name: str) -> list[Point]:
        return self.curves.points(name)

    @property
    def state(self) -> tuple[object, ...]:
        """A value that differs as soon as a tab about the run would look different."""
        return self.brief, self.curves, self.curves.version, id(self.facts)


class Runs:
    """All runs under the root folder. All browser pages share this object; a lock guards it, as Gradio uses threads."""

    def __init__(self) -> None:
        self._index = RunIndex()
        self._open_runs: OrderedDict[str, tuple[str, RunFacts]] = OrderedDict()
        self._turn = 0
        self._lock = threading.Lock()

    def ids(self, most: int = PAGE_RUNS) -> list[str]:
        """Return the ids of the newest runs, `most` at most."""
        with self._lock:
            return [*self._index.ids()][:most]

    def page(self, words: str = "", most: int = PAGE_RUNS) -> Page:
        """Return the runs that the filter line `words` asks for (run_query.py), the newest first unless it sorts.

        At most about `most` runs: a group is shown completely."""
        query = parse(words)
        with self._lock:
            run_ids = self._index.ids()
            if query.newest:
                return Page(query.arrange(self._newest([*run_ids], most), middle), len(run_ids), query)
            self._check_by_turns(run_ids)
            briefs = self._index.select(*query.where)
            return Page(_cut(query.arrange(briefs, middle), most), len(briefs), query)

    def read_ahead(self) -> None:
        """Read every run once in the background, so that the first search over all runs is fast."""
        for run_id in self.ids(sys.maxsize):
            time.sleep(PAUSE_SECONDS)
            with self._lock:
                self._index.brief(run_id)
        with self._lock:
            self._index.save()

    def _newest(self, run_ids: list[str], most: int) -> list[Brief]:
        """Return the first `most` runs, and the rest of the group of the last one; no other runs are read."""
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
        """Return the runs of a group, sorted by seed."""
        with self._lock:
            self._check_by_turns(self._index.ids())
            return self._index.select("[group] = ?", [name], "coalesce(seed, 0), id")

    def brief(self, run_id: str) -> Brief:
        """Return the short record of a run, as its files are now."""
        with self._lock:
            self._index.ids()  # notices a change of the root folder
            return self._index.brief(run_id)

    def find(self, selector: str) -> RunDir:
        """Return the run that a selector from a browser names; UserError for a folder outside the root of runs."""
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
        """Return all facts and curves of a run, as its files are now; UserError if config.json cannot be read."""
        run = self.find(selector)
        with self._lock:
            self._index.ids()  # notices a change of the root folder
            run_brief = self._index.brief(run.id)
            stamp = self._index.entry(run.id).config  # changes with config.json; the facts are read again only then
            old_stamp, old = self._open_runs.get(run.id, ("", None))
            facts = old.facts if old and old_stamp == stamp else facts_of(run.path)
            curves = old.curves if old else MetricsTable(run.metrics_csv, spread=True)
            run_facts = RunFacts(run, run_brief, facts, curves)
            remember(self._open_runs, run.id, (stamp, run_facts), MAX_OPEN_RUNS)
            curves.refresh()
            return run_facts

    def _check_by_turns(self, run_ids: Iterable[str]) -> None:
        """Update the index: every open run, and one in CHECK_TURNS of the ended runs, which only a resume changes."""
        self._turn += 1
        ended = self._index.ended()
        for index, run_id in enumerate(run_ids, self._turn):
            if run_id not in ended or index % CHECK_TURNS == 0:
                self._index.brief(run_id)


def remember(cache: OrderedDict[str, Any], key: str, value: object, most: int) -> None:
    """Put a value at the end of the cache; if it has more than `most` values, the oldest one is dropped."""
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > most:
        cache.popitem(last=False)


def _cut(items: list[list[Brief]], most: int) -> list[list[Brief]]:
    """Return the first groups until they have `most` runs or more; no group is cut."""
    count = 0
    first_items = []
    for members in items:
        if count < most:
            first_items.append(members)
        count += len(members)
    return first_items


def middle(values: Sequence[Value]) -> Value:
    """Return one value for a group: the interquartile mean of numbers, else the first text by alphabet, else None."""
    numbers = [float(value) for value in values if isinstance(value, int | float) and abs(value) < MAX_VALUE]
    if numbers:
        return iqm(numbers)
    return min((str(value) for value in values if value not in (None, "")), default=None)
