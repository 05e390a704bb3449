"""The runs there are, a line each: the newest, and every older one that a process still holds; groups together.

What a line tells is asked of the index of all runs: a look at 200 of them costs their stats.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stride.runstore import run_brief
from stride.runstore.run_dir import runs_root
from stride.runstore.run_index import RunIndex
from stride.runstore.run_lock import NAME
from stride.runstore.run_state import FINISHED, IN_TRAINING, LIVE

NEWEST = 200  # runs that are listed
OLDER = 300  # folders behind them that a look searches for one in training, by turns


@dataclass
class Brief:
    """A run in a line."""

    id: str
    state: str = "damaged"
    title: str = "?"
    seed: int | None = None
    group: str = ""
    goal: float | None = None
    budget: int = 0
    env_steps: int = 0
    kind: str = ""
    """which return it is: test, val, train"""
    value: float = math.nan
    rate: float = math.nan

    @property
    def trains(self) -> bool:
        return self.state in IN_TRAINING

    @property
    def done(self) -> float:
        return min(1.0, self.env_steps / self.budget) if self.budget else 0.0


@dataclass
class Row:
    """A run by itself, or a group."""

    name: str
    """the run's id, or the group's"""
    members: list[Brief]
    grouped: bool = False

    @property
    def value(self) -> float:
        """The return, of a group the mean of those that tell one."""
        values = [each.value for each in self.members if math.isfinite(each.value)]
        return math.fsum(values) / len(values) if values else math.nan

    @property
    def states(self) -> str:
        """`live`; of a group `2 live, 3 finished`."""
        words = list(dict.fromkeys(each.state for each in self.members))
        if not self.grouped:
            return words[0]
        return ", ".join(f"{sum(each.state == word for each in self.members)} {word}" for word in words)

    @property
    def deviation(self) -> float:
        """Of the returns from their mean, as of a population; by hand, because NumPy takes 100 ms to load."""
        apart = [(each.value - self.value) ** 2 for each in self.members if math.isfinite(each.value)]
        return math.sqrt(sum(apart) / len(apart)) if apart else math.nan


SORTS: dict[str, Callable[[Row], Any]] = {
    "newest": lambda row: 0,  # as they stand
    "return": lambda row: -row.value if math.isfinite(row.value) else math.inf,
    "state": lambda row: row.members[0].state if not any(each.trains for each in row.members) else "",
}


class Fleet:
    """Of the root of all runs; `only`: of one group."""

    def __init__(self, only: str = "") -> None:
        self.only = only
        self.briefs: list[Brief] = []
        self._index = RunIndex()
        self._turn = 0
        self._old: set[str] = set()  # older ones that somebody holds

    def look(self) -> None:
        root, names = runs_root(), [*self._index.ids()]
        later = names[NEWEST:]
        turn = later[self._turn : self._turn + OLDER]
        self._turn = self._turn + OLDER if self._turn + OLDER < len(later) else 0
        self._old = {name for name in {*self._old, *turn} if os.path.lexists(root / name / NAME)} & {*later}
        listed = [*names[:NEWEST], *sorted(self._old, reverse=True)]
        lines = [self._index.brief(name) for name in listed if os.path.lexists(root / name / "config.json")]
        self.briefs = [brief_of(line) for line in lines if self.only in ("", line.group)]

    def rows(self, sort: str) -> list[Row]:
        """Each group where its newest run would stand."""
        groups: dict[str, Row] = {}
        rows: list[Row] = []
        for each in self.briefs:
            if not each.group:
                rows.append(Row(each.id, [each]))
            elif each.group in groups:
                groups[each.group].members.append(each)
            else:
                groups[each.group] = Row(each.group, [each], grouped=True)
                rows.append(groups[each.group])
        for row in groups.values():
            row.members.sort(key=lambda each: (each.seed or 0, each.id))
        return sorted(rows, key=SORTS[sort])

    def live(self) -> list[str]:
        """The ids of those in training, the newest first."""
        return [each.id for each in self.briefs if each.trains]


def brief_of(line: run_brief.Brief) -> Brief:
    """What the index tells of a run; a test decides, else the last return."""
    state = LIVE if line.standing == "running" else line.standing
    brief = Brief(line.id, state, line.variant, line.seed, line.group, line.goal, line.budget, line.tail.steps)
    last = math.nan if line.tail.last is None else line.tail.last
    if state == FINISHED and line.test is not None:
        brief.state, brief.kind, brief.value = line.verdict, "test", line.test
    else:
        brief.kind, brief.value = "val" if line.tail.evaluated and math.isfinite(last) else "train", last
        brief.rate = line.tail.rate if brief.trains and line.tail.rate is not None else math.nan
    return brief


def opened(rows: Sequence[Row], open_groups: set[str]) -> list[tuple[Row, Brief | None]]:
    """As they stand below one another: a group, and below it its runs where it is open."""
    found: list[tuple[Row, Brief | None]] = []
    for row in rows:
        found.append((row, None if row.grouped else row.members[0]))
        if row.grouped and row.name in open_groups:
            found += [(row, each) for each in row.members]
    return found
