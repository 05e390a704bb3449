"""The runs that a monitor lists: the newest, and every older one that a process still holds; groups together.

Each line is read from the index of all runs: a look at 200 of them costs their stats.
"""

import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stride.runstore import run_lock
from stride.runstore.metrics_layout import NAME
from stride.runstore.run_brief import Brief
from stride.runstore.run_dir import LAST, RunDir, runs_root
from stride.runstore.run_index import RunIndex
from stride.runstore.run_state import FINISHED, IN_TRAINING, LIVE, state_of
from stride.runstore.seed_group import find_group, names_group, spelled_out
from stride.utils.places import TRAIN
from stride.utils.user_error import UserError

NEWEST = 200  # runs that are listed
OLDER = 300  # folders behind them that one look searches for a run in training, by turns


def is_training(brief: Brief) -> bool:
    return brief.standing == "running" or brief.standing in IN_TRAINING


def shown_state(brief: Brief) -> str:
    """`live`, `failed`, ..; the verdict of a run that was tested."""
    if brief.standing == FINISHED and brief.test is not None:
        return brief.verdict
    return LIVE if brief.standing == "running" else brief.standing


def shown_return(brief: Brief) -> tuple[str, float]:
    """(test, val or train, the return): the test of a run that finished, else its last return, NaN for none."""
    if brief.standing == FINISHED and brief.test is not None:
        return "test", brief.test
    last_return = math.nan if brief.tail.last is None else brief.tail.last
    return "val" if brief.tail.evaluated and math.isfinite(last_return) else "train", last_return


@dataclass
class RunRow:
    """A run by itself, or a group."""

    name: str
    """the run's id, or the group's"""
    members: list[Brief]
    is_group: bool = False

    @property
    def returns(self) -> list[float]:
        """Those of its runs, where they are known."""
        values = [shown_return(member)[1] for member in self.members]
        return [value for value in values if math.isfinite(value)]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.returns) if self.returns else math.nan

    @property
    def deviation(self) -> float:
        """As of a population."""
        return statistics.pstdev(self.returns) if self.returns else math.nan

    @property
    def states(self) -> str:
        """`live`; for a group `2 live, 3 finished`."""
        states = [shown_state(member) for member in self.members]
        if not self.is_group:
            return states[0]
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


Line = tuple[RunRow, Brief | None]  # (a group or a run, the run that is shown; None for the group itself)

SORTS: dict[str, Callable[[RunRow], Any]] = {
    "newest": lambda row: 0,  # in the order of the list
    "return": lambda row: -row.mean if row.returns else math.inf,
    "state": lambda row: "" if any(map(is_training, row.members)) else shown_state(row.members[0]),
}


class RunList:
    """All runs under the root; `only`: those of one group."""

    def __init__(self, only: str = "") -> None:
        self.only = only
        self.briefs: list[Brief] = []
        self._index = RunIndex()
        self._turn = 0  # where the search among older runs goes on
        self._old_live: set[str] = set()  # older runs that a process holds

    def refresh(self) -> None:
        root = runs_root()
        names = [*self._index.ids()]
        older = names[NEWEST:]
        candidates = self._old_live.union(older[self._turn : self._turn + OLDER])
        self._turn += OLDER
        if self._turn >= len(older):
            self._turn = 0
        self._old_live = {
            name for name in candidates.intersection(older) if os.path.lexists(root / name / run_lock.NAME)
        }
        self.briefs = []
        for name in [*names[:NEWEST], *sorted(self._old_live, reverse=True)]:
            if os.path.lexists(root / name / "config.json"):
                brief = self._index.brief(name)
                if self.only in ("", brief.group):
                    self.briefs.append(brief)

    def rows(self, sort: str) -> list[RunRow]:
        """Each group at the position of its newest run."""
        rows: dict[str, RunRow] = {}
        for brief in self.briefs:
            name = brief.group or brief.id
            if name not in rows:
                rows[name] = RunRow(name, [], is_group=bool(brief.group))
            rows[name].members.append(brief)
        for row in rows.values():
            row.members.sort(key=lambda member: (member.seed or 0, member.id))
        return sorted(rows.values(), key=SORTS[sort])

    def training_ids(self) -> list[str]:
        """The runs in training, the newest first."""
        return [brief.id for brief in self.briefs if is_training(brief)]


def list_lines(rows: Sequence[RunRow], open_groups: set[str]) -> list[Line]:
    """The lines one below the other: a group, and below it its runs where it is open."""
    lines: list[Line] = []
    for row in rows:
        lines.append((row, None if row.is_group else row.members[0]))
        if row.is_group and row.name in open_groups:
            lines += [(row, member) for member in row.members]
    return lines


def find_target(selector: str, latest: bool = False) -> tuple[Path | None, str]:
    """The folder of the run, or the name of the group, that a person means; UserError where there is neither."""
    if names_group(selector):
        return None, find_group(spelled_out(selector))
    if os.sep in selector:  # the folder or the metrics.mmap of a foreign loop, which has no config.json
        path = Path(selector)
        folder = path.parent if path.name == NAME else path
        if os.path.lexists(folder / NAME):
            return folder.resolve(), ""
    if selector or latest:
        return RunDir.find(selector or LAST).path, ""
    return _newest(), ""


def _newest() -> Path:
    """The newest in training, else the newest: the link to it is tried first, as a search takes a while."""
    last_run = None
    try:
        last_run = RunDir.find(LAST)
        if state_of(last_run.path, last_run.facts()) in IN_TRAINING:
            return last_run.path
    except UserError:  # a damaged one; another may be in training
        pass
    run_list = RunList()
    run_list.refresh()
    training = run_list.training_ids()
    if last_run is not None and not training:
        return last_run.path
    if not run_list.briefs:
        raise UserError(f"no run yet under {runs_root()}; `{TRAIN} CartPole-v1:ppo` begins one")
    return runs_root() / (training[0] if training else run_list.briefs[0].id)
