"""The list of runs in the monitor: the newest ones and older ones still in training, runs of a group together.

It also finds the run that `stride monitor RUN` means. Data comes from the index of all runs, so a refresh reads only
files that changed.
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
from stride.runstore.seed_group import find_group
from stride.runstore.select import names_group
from stride.utils.places import TRAIN
from stride.utils.user_error import UserError

MAX_LISTED = 200  # runs in the list, besides older ones whose lock a process may hold


def is_training(run_brief: Brief) -> bool:
    """Return whether a process trains the run now."""
    return run_brief.standing == "running" or run_brief.standing in IN_TRAINING


def shown_state(run_brief: Brief) -> str:
    """Return `live`, `failed`, ..; for a finished run that was tested its verdict: `solved`."""
    if run_brief.standing == FINISHED and run_brief.test is not None:
        return run_brief.verdict
    return LIVE if run_brief.standing == "running" else run_brief.standing


def shown_return(run_brief: Brief) -> tuple[str, float]:
    """Return the kind of a return and its value, ("val", 480.1): the test's if finished, else the last; NaN if none."""
    if run_brief.standing == FINISHED and run_brief.test is not None:
        return "test", run_brief.test
    last_return = math.nan if run_brief.tail.last is None else run_brief.tail.last
    return "val" if run_brief.tail.evaluated and math.isfinite(last_return) else "train", last_return


@dataclass
class RunRow:
    """A single run, or a group of runs."""

    name: str
    """the run's id, or the group's"""
    members: list[Brief]
    """the runs; just one unless it is a group"""
    is_group: bool = False

    @property
    def returns(self) -> list[float]:
        """The present returns of its runs, without unknown ones."""
        values = [shown_return(member)[1] for member in self.members]
        return [value for value in values if math.isfinite(value)]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.returns) if self.returns else math.nan

    @property
    def deviation(self) -> float:
        """Standard deviation of the returns, of a population (divided by n)."""
        return statistics.pstdev(self.returns) if self.returns else math.nan

    @property
    def states(self) -> str:
        """The state, `live`; for a group `2 live, 3 finished`."""
        states = [shown_state(member) for member in self.members]
        if not self.is_group:
            return states[0]
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


Line = tuple[RunRow, Brief | None]  # (a group or a run, the run that is shown; None for the group itself)

SORTS: dict[str, Callable[[RunRow], Any]] = {
    "newest": lambda list_row: 0,  # in the order of the list
    "return": lambda list_row: -list_row.mean if list_row.returns else math.inf,
    "state": lambda list_row: "" if any(map(is_training, list_row.members)) else shown_state(list_row.members[0]),
}


class RunList:
    """The runs in the folder of runs, as the monitor lists them; call `refresh` to read them."""

    def __init__(self, only: str = "") -> None:
        """`only`: name of the group to list, "" for all runs."""
        self.only = only
        self.briefs: list[Brief] = []
        self._index = RunIndex()

    def refresh(self) -> None:
        root = runs_root()
        names = [*self._index.ids()]
        # an older run is listed only if it has a lock file, so a process may still train it
        older = [run_name for run_name in names[MAX_LISTED:] if os.path.lexists(root / run_name / run_lock.NAME)]
        self.briefs = []
        for run_name in names[:MAX_LISTED] + older:
            if os.path.lexists(root / run_name / "config.json"):
                run_brief = self._index.brief(run_name)
                if self.only in ("", run_brief.group):
                    self.briefs.append(run_brief)

    def rows(self, sort: str) -> list[RunRow]:
        """Return the rows in the order `sort`, a key of SORTS; for "newest" a group has the place of its newest run."""
        rows: dict[str, RunRow] = {}
        for run_brief in self.briefs:
            run_name = run_brief.group or run_brief.id
            if run_name not in rows:
                rows[run_name] = RunRow(run_name, [], is_group=bool(run_brief.group))
            rows[run_name].members.append(run_brief)
        for list_row in rows.values():
            list_row.members.sort(key=lambda member: (member.seed or 0, member.id))
        return sorted(rows.values(), key=SORTS[sort])

    def training_ids(self) -> list[str]:
        """Return the ids of runs in training, newest first."""
        return [run_brief.id for run_brief in self.briefs if is_training(run_brief)]


def list_lines(rows: Sequence[RunRow], open_groups: set[str]) -> list[Line]:
    """Return the lines of the list: each row, and below an open group its runs."""
    lines: list[Line] = []
    for list_row in rows:
        lines.append((list_row, None if list_row.is_group else list_row.members[0]))
        if list_row.is_group and list_row.name in open_groups:
            lines += [(list_row, member) for member in list_row.members]
    return lines


def find_target(selector: str, latest: bool = False) -> tuple[Path | None, str]:
    """Return the folder of the run, or (None, name of the group), that a person means; UserError if it does not exist.

    `latest`: the newest run, in training or not. Without `selector` and `latest`: the newest run in training.
    """
    if names_group(selector):
        return None, find_group(selector)
    if os.sep in selector:  # the folder or the metrics.mmap of a foreign loop, which has no config.json
        path = Path(selector)
        folder = path.parent if path.name == NAME else path
        if os.path.lexists(folder / NAME):
            return folder.resolve(), ""
    if selector or latest:
        return RunDir.find(selector or LAST).path, ""
    return _newest(), ""


def _newest() -> Path:
    """Return the newest run in training, else the newest run. It tries the link to it first: a search takes longer."""
    last_run = None
    try:
        last_run = RunDir.find(LAST)
        if state_of(last_run.path, last_run.facts()) in IN_TRAINING:
            return last_run.path
    except UserError:  # no such link, or a damaged run; another run may be in training
        pass
    run_list = RunList()
    run_list.refresh()
    training = run_list.training_ids()
    if last_run is not None and not training:
        return last_run.path
    if not run_list.briefs:
        raise UserError(f"no runs yet in {runs_root()}; start one: {TRAIN} CartPole-v1:ppo")
    return runs_root() / (training[0] if training else run_list.briefs[0].id)
