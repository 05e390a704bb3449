"""The runs there are, as rows of a table: read off config.json and metrics.csv, never written, never locked."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from inspector.markup import Markup, note, safe, tag
from trainer_callbacks.csv_log import read_csv
from trainer_callbacks.history import STEPS, TRAIN, VAL
from trainer_callbacks.typography import plain, score
from utils.run_dir import RunDir, list_runs, read_json, runs_root
from utils.user_error import UserError

SILENT_AFTER = 300.0  # seconds without a sign of life: the process was probably killed
HEAD = ("", "run", "status", "variant", "steps", "best", "last", "goal")
Rows = Sequence[dict[str, float]]


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run at this instant."""

    run: RunDir
    facts: dict[str, Any]
    rows: Rows
    status: str
    """live, silent (running by its own account, but nothing was heard for minutes) or finished"""

    @property
    def variant(self) -> str:
        return f"{self.facts.get('env_id', '?')}:{self.facts.get('variant', '?')}"

    @property
    def goal(self) -> float | None:
        goal = self.facts.get("goal")
        return float(goal) if isinstance(goal, int | float) else None

    @property
    def env_steps(self) -> int:
        return int(max((row.get(STEPS, 0.0) for row in self.rows), default=0.0))

    @property
    def returns(self) -> list[float]:
        """Of the evaluations, or of training where nothing was evaluated."""
        scores = [row[VAL] for row in self.rows if VAL in row]
        return scores or [row[TRAIN] for row in self.rows if TRAIN in row]


def find_run(selector: str) -> RunDir:
    """RunDir.find for what a browser sent: folders elsewhere on the disk are not to be had that way."""
    selector = selector.strip()
    if not selector:
        raise UserError("which run? choose one, or type @last")
    if "/" in selector.partition("@best:")[0] or "\\" in selector or "\0" in selector:
        raise UserError(f"{selector!r} is not a run id; runs are chosen by id here")
    run = RunDir.find(selector)
    if run.path.parent.resolve() != runs_root().resolve() or run.path.is_symlink():
        raise UserError(f"{run.id} is not under {runs_root()}")
    return run


def read_run(run: RunDir) -> RunFacts:
    """As it stands on disk; a run without a row yet is a run."""
    facts = _facts(run.config_json, _stamp(run.config_json))
    heard = max(_stamp(path)[0] for path in (run.metrics_csv, run.run_log, run.config_json)) / 1e9
    status = str(facts.get("status", "?"))
    if status == "running":
        status = "live" if time.time() - heard < SILENT_AFTER else "silent"
    return RunFacts(run, facts, _rows(run.metrics_csv, _stamp(run.metrics_csv)), status)


def read_runs(words: str = "") -> list[RunFacts]:
    """Newest first; those in which every word of the filter occurs. Damaged ones are left out."""
    found = []
    for run in list_runs():
        try:
            found.append(read_run(run))
        except UserError:  # the table of all runs does not fail for one of them; choosing it says what is wrong
            continue
    wanted = words.casefold().split()
    return [each for each in found if all(word in _haystack(each) for word in wanted)]


def _haystack(each: RunFacts) -> str:
    return f"{each.run.id} {each.variant} {each.status} {each.facts.get('group', '')}".casefold()


def runs_table(found: Sequence[RunFacts]) -> Markup:
    """A row is a button; checked rows are compared (runs.js)."""
    if not found:
        return note(f"no run under {runs_root()} that matches; python train.py CartPole-v1:ppo makes one")
    head = tag("tr", *(tag("th", cell) for cell in HEAD))
    rows = [_row(each) for each in found]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="scroll runs")


def _row(each: RunFacts) -> Markup:
    returns, goal = each.returns, each.goal
    best = max(returns, default=None)
    reached = "met" if goal is not None and best is not None and best >= goal else ""
    box = Markup(f'<input type="checkbox" aria-label="compare {safe(each.run.id)}">')
    cells = [
        tag("td", box),
        tag("td", tag("button", each.run.id, class_="link", type="button")),
        tag("td", tag("span", each.status, class_=f"badge {each.status}")),
        tag("td", each.variant),
        tag("td", f"{each.env_steps:,}", class_="number"),
        tag("td", "" if best is None else score(best), class_=f"number {reached}"),
        tag("td", score(returns[-1]) if returns else "", class_="number"),
        tag("td", "" if goal is None else plain(goal), class_="number"),
    ]
    return tag("tr", *cells, data_run=each.run.id)


def _stamp(path: Path) -> tuple[int, int]:
    """When it was written and how long it is; (0, 0) where it is not there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=512)
def _rows(path: Path, stamp: tuple[int, int]) -> Rows:
    """Read again only when the file has changed since."""
    return tuple(read_csv(path)) if stamp[1] else ()


@lru_cache(maxsize=2048)
def _facts(path: Path, stamp: tuple[int, int]) -> dict[str, Any]:
    facts = read_json(path)
    if not isinstance(facts, dict):
        raise UserError(f"{path} does not hold a JSON object")
    return facts
