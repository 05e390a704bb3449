"""The runs there are, a line each: the newest, and every older one that a process still holds; groups together.

A folder's time says whether runs came or went, a file's whether it changed: a look at 200 runs costs their stats.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report.follow import Follower
from runstore.run_dir import ID, STAMP, RunDir, runs_root
from runstore.run_facts import episodes_of, finite, mapping, verdict, verdict_words
from runstore.run_lock import NAME
from runstore.run_state import FINISHED, IN_TRAINING, state_of
from utils.user_error import UserError

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
        self._names: list[str] = []
        self._stamp = 0
        self._turn = 0
        self._old: set[str] = set()  # older ones that somebody holds
        self._facts: dict[str, tuple[tuple[int, int, int], dict[str, Any]]] = {}
        self._followed: dict[str, Follower] = {}

    def look(self) -> None:
        root = runs_root()
        self._list(root)
        later = self._names[NEWEST:]
        turn = later[self._turn : self._turn + OLDER]
        self._turn = self._turn + OLDER if self._turn + OLDER < len(later) else 0
        self._old = {name for name in {*self._old, *turn} if os.path.lexists(root / name / NAME)} & {*later}
        names = [*self._names[:NEWEST], *sorted(self._old, reverse=True)]
        found = (self._brief(root / name) for name in names)
        self.briefs = [each for each in found if each and self.only in ("", each.group)]
        kept = {each.id for each in self.briefs}
        self._followed = {name: each for name, each in self._followed.items() if name in kept}

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

    def _list(self, root: Path) -> None:
        try:
            stamp = os.stat(root).st_mtime_ns
        except OSError:
            self._names, self._stamp = [], 0
            return
        if stamp != self._stamp:
            self._names = sorted(_runs_in(root), key=lambda name: (bool(STAMP.match(name)), name), reverse=True)
            self._stamp = stamp

    def _brief(self, folder: Path) -> Brief | None:
        """None of what is no run, or is still being made."""
        run = RunDir(folder)
        facts = self._read(run)
        if facts is None:
            return None
        if not facts:
            return Brief(run.id)
        state = state_of(folder, facts)
        config, outcome = mapping(facts.get("config")), mapping(facts.get("outcome"))
        brief = Brief(
            run.id, state, f"{facts.get('env_id', '?')}:{facts.get('variant', '?')}", facts.get("seed"),
            facts.get("group") or "", finite(facts.get("goal")), int(finite(config.get("max_timesteps")) or 0),
        )  # fmt: skip
        mean = finite(outcome.get("test_mean"))
        if state == FINISHED and mean is not None:
            brief.state = verdict_words(verdict(outcome), episodes_of(outcome))
            brief.kind, brief.value = "test", mean
            brief.env_steps = int(outcome.get("env_steps") or 0)
        else:
            self._follow(run, brief)
        return brief

    def _follow(self, run: RunDir, brief: Brief) -> None:
        follower = self._followed.setdefault(run.id, Follower(run.metrics_csv))
        follower.look()
        history = follower.history
        brief.env_steps, brief.rate = history.env_steps, history.rate if brief.trains else math.nan
        brief.kind, brief.value = ("train", history.train.last)
        if math.isfinite(history.val.last):
            brief.kind, brief.value = ("val", history.val.last)

    def _read(self, run: RunDir) -> dict[str, Any] | None:
        """config.json, {} where it is damaged; None where there is none."""
        try:
            found = os.lstat(run.config_json)
        except OSError:
            return None
        stamp = found.st_ino, found.st_size, found.st_mtime_ns
        known = self._facts.get(run.id)
        if known is None or known[0] != stamp:
            try:
                facts = run.facts()
            except UserError:
                facts = {}
            known = self._facts[run.id] = stamp, facts
        return known[1]


def _runs_in(root: Path) -> Iterator[str]:
    with os.scandir(root) as entries:
        yield from (each.name for each in entries if ID.fullmatch(each.name) and each.is_dir(follow_symlinks=False))


def opened(rows: Sequence[Row], open_groups: set[str]) -> list[tuple[Row, Brief | None]]:
    """As they stand below one another: a group, and below it its runs where it is open."""
    found: list[tuple[Row, Brief | None]] = []
    for row in rows:
        found.append((row, None if row.grouped else row.members[0]))
        if row.grouped and row.name in open_groups:
            found += [(row, each) for each in row.members]
    return found
