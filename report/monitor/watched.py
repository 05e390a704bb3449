"""A run as a monitor sees it: config.json, metrics.mmap and metrics.csv, looked at again and again, made into a Look.

Nothing is written and nobody waits. The files of a run that ended tell the same as those of one in training.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stride.runstore.history import RATE, TRAIN, VAL, VAL_BEST, History, Score
from stride.runstore.metrics_layout import NAME
from stride.runstore.metrics_reader import MetricsReader, Snapshot
from stride.runstore.metrics_table import MOST_COLUMNS, SECONDS, MetricsTable, Row
from stride.runstore.outcome import PHASES, PREFIX, shares
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import LARGEST, finite, mapping, whole
from stride.runstore.run_fate import conclusion, continuation, died, failure
from stride.runstore.run_files import status
from stride.runstore.run_lock import is_here, owner
from stride.runstore.run_state import DEAD, FAILED, FINISHED, IN_TRAINING, INTERRUPTED, PAUSED, state_of
from stride.utils.user_error import UserError

UNREAD = 1 << 12  # rows that wait for whoever judges them

Points = Sequence[tuple[float, float]]


@dataclass
class Look:
    """A run at one instant."""

    id: str
    state: str
    title: str = "?"
    algorithm: str = ""
    seed: int | None = None
    group: str = ""
    goal: float | None = None
    budget: int = 0
    """env steps; 0 while nobody knows"""
    env_steps: int = 0
    elapsed: float = math.nan
    rate: float = math.nan
    mean_rate: float = math.nan
    doing: str = ""
    said: str = ""
    """what its end, or its own last line, tells"""
    pid: int = 0
    values: Mapping[str, float] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    """the share of each in the time since its rows are read"""
    val: Score = field(default_factory=Score)
    train: Score = field(default_factory=Score)
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def trains(self) -> bool:
        return self.state in IN_TRAINING

    @property
    def left(self) -> float:
        """Seconds, at the mean speed; NaN where that is not known."""
        if not self.trains or not self.budget or not self.mean_rate > 0:
            return math.nan
        return max(0, self.budget - self.env_steps) / self.mean_rate


class Rows(MetricsTable):
    """metrics.csv: the tails of all columns, and rows that nobody has judged yet."""

    def begin(self) -> None:
        self.history = History(self.columns[:MOST_COLUMNS])
        self.values: dict[str, float] = {}
        self.spent = dict.fromkeys(PHASES, 0.0)
        self.unjudged: deque[Mapping[str, float]] = deque(maxlen=UNREAD)
        self.anew = True  # what was judged so far comes again

    def take(self, row: Row) -> None:
        self.history.add(row)
        since = row.get(SECONDS, math.nan) - self.values.get(SECONDS, 0.0)
        if since > 0:  # else a resumed process counts from zero again
            for name in PHASES:
                self.spent[name] += since * row.get(PREFIX + name, 0.0)
        self.values |= row
        self.unjudged.append(row)


class Watched:
    """One run; `look` costs a millisecond or two."""

    def __init__(self, folder: Path) -> None:
        self.run = RunDir(folder)
        self.rows = Rows(self.run.metrics_csv)
        self._facts: dict[str, Any] = {}
        self._stamp: tuple[int, int, int] | None = None
        self._reader: MetricsReader | None = None
        self._before: Snapshot | None = None
        self._rate = math.nan
        self._tails: dict[str, tuple[int, Points]] = {}

    def close(self) -> None:
        if self._reader:
            self._reader.close()

    def look(self) -> Look:
        facts = self._read_facts()
        snapshot = self._read_file()
        self.rows.refresh()
        state = state_of(self.run.path, facts)
        look = self._of_facts(facts, state)
        if snapshot is None:
            self._of_rows(look)
        else:
            self._of_file(look, snapshot)
        outcome = mapping(facts.get("outcome"))
        if not look.trains and finite(outcome.get("seconds")):
            look.elapsed = float(outcome["seconds"])
        if look.elapsed > 0:
            look.mean_rate = max(0, look.env_steps - self._first_step(look)) / look.elapsed
        look.rate = look.rate if state in IN_TRAINING else math.nan
        look.phases = shares(self.rows.spent)
        look.said = self._said(facts, state, snapshot)
        return look

    def points(self, name: str) -> Points:
        """(env steps, value), oldest first: of a return the whole curve, of others what is remembered."""
        if name in (TRAIN, VAL) and (curve := self.rows.points(name)):
            return curve
        if self._reader is not None and self._before is not None and name in self._before.values:
            count = self._before.values[name].times
            if self._tails.get(name, (0, ()))[0] != count:
                with suppress(UserError):  # cut short meanwhile: the next look says so
                    self._tails[name] = count, self._reader.history(name)
            return self._tails.get(name, (0, ()))[1]
        series = self.rows.history.series.get(name)
        return list(enumerate(series.values)) if series else ()

    def _read_facts(self) -> dict[str, Any]:
        """config.json, read again only when it has changed; {} of a loop that has none."""
        try:
            found = status(self.run.config_json)
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns) if found else None
            if stamp != self._stamp:
                self._facts = self.run.facts() if found else {}
                self._stamp = stamp
        except UserError:
            self._facts = {"status": "damaged"}
        return self._facts

    def _read_file(self) -> Snapshot | None:
        """What metrics.mmap says now; None where there is none."""
        try:
            if self._reader is None:
                self._reader = MetricsReader(self.run.path / NAME)
            now = self._reader.read()
        except UserError:
            self.close()
            self._reader = self._before = None
            return None
        before = self._before
        if before is None or now.written < before.written or now.env_steps < before.env_steps:
            self._rate = now.values[RATE].value if RATE in now.values else math.nan
            self._tails = {}
        elif now.written > before.written and now.env_steps > before.env_steps:
            self._rate = (now.env_steps - before.env_steps) / (now.written - before.written)
        self._before = now
        return now

    def _of_facts(self, facts: Mapping[str, Any], state: str) -> Look:
        config = mapping(facts.get("config"))
        look = Look(self.run.id, state, config=config, group=facts.get("group") or "", goal=finite(facts.get("goal")))
        if "env_id" in facts:
            look.title = f"{facts['env_id']}:{facts.get('variant', '?')}"
        look.algorithm = str(config.get("algo_id", ""))
        look.seed = facts.get("seed")
        look.budget = int(finite(config.get("max_timesteps")) or 0)
        holder = owner(self.run.path) if look.trains else None
        look.pid = holder["pid"] if holder and is_here(holder) else 0
        return look

    def _of_rows(self, look: Look) -> None:
        """By metrics.csv alone: between two rows the clock stands still."""
        history = self.rows.history
        look.env_steps, look.rate, look.values = history.env_steps, history.rate, self.rows.values
        look.elapsed = self.rows.values.get(SECONDS, math.nan)
        look.val, look.train = history.val, history.train

    def _of_file(self, look: Look, now: Snapshot) -> None:
        assert self._reader is not None
        origin = self._reader.origin
        if look.title == "?":
            look.title = str(origin.facts.get("config_id") or origin.run or self.run.id)
        look.goal = finite(origin.facts.get("goal")) if look.goal is None else look.goal
        look.env_steps, look.budget = now.env_steps, now.max_timesteps or look.budget
        look.doing, look.rate, look.pid = now.doing, self._rate, look.pid or (origin.pid if look.trains else 0)
        look.elapsed = max(0.0, (time.time() - origin.wall) if look.trains else now.written - origin.monotonic)
        look.values = {name: latest.value for name, latest in now.values.items()}
        history = self.rows.history
        look.val = history.val if history.val.best_at else self._score(VAL, VAL_BEST)
        look.train = history.train if history.train.best_at else self._score(TRAIN, "")

    def _score(self, name: str, best: str) -> Score:
        score = Score()
        for step, value in self.points(name):
            score.add(value, int(step))
        if self._before is not None and best in self._before.values:
            score.best = max(score.best, self._before.values[best].value)
        return score

    def _first_step(self, look: Look) -> int:
        """Env steps at which the process that trains it, or did last, began."""
        told = self._reader.origin.facts.get("first_step") if self._reader else None
        return min(told, look.env_steps) if whole(told) and told is not None and told < LARGEST else 0

    def _said(self, facts: Mapping[str, Any], state: str, snapshot: Snapshot | None) -> str:
        """What a person should know of how it ended, or what it says while it trains."""
        words: dict[str, Callable[[], str]] = {
            FAILED: lambda: failure(facts),
            DEAD: lambda: died(self.run, facts).partition("died: ")[2],
            INTERRUPTED: lambda: continuation(self.run),
            PAUSED: lambda: continuation(self.run),
            FINISHED: lambda: conclusion(mapping(facts.get("outcome"))) if facts.get("outcome") else "",
        }
        told = words[state]() if facts and state in words else ""  # a loop of one's own has but its line
        return told or (snapshot.line if snapshot else "")
