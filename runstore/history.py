"""A display's memory of the rows it was given: the tails of the metrics it shows, the scores, the clock.

Memory stays constant however long the run is; nothing is drawn here.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stride.runstore.metrics_table import RATE as RATE
from stride.runstore.metrics_table import STEPS as STEPS
from stride.runstore.metrics_table import TRAIN as TRAIN
from stride.runstore.metrics_table import TRAIN_BEST as TRAIN_BEST
from stride.runstore.metrics_table import VAL as VAL
from stride.runstore.metrics_table import VAL_BEST as VAL_BEST

ENDED = "train/roll/episodes"
TAIL = 40  # values in a sparkline


@dataclass(frozen=True)
class Alert:
    """One rule of one metric, and where in the run it did not hold."""

    name: str
    """of the metric"""
    title: str
    bound: str
    """what was not kept, in words: above 0.1"""
    first: int
    """env steps of the first row outside"""
    last: int
    rows: int
    """how many were outside"""
    times: int
    """how often it began"""
    worst: float | None
    """the metric's value in the worst of them, None where that is no number"""
    worst_words: str
    means: str
    tip: str
    open: bool = True
    """whether it still is"""

    @property
    def key(self) -> tuple[str, str]:
        """Which of a run's alerts it is."""
        return self.name, self.bound

    def sentence(self) -> str:
        rows_text = f"in {self.rows:,} rows" if self.rows > 1 else "in 1 row"
        return f"{self.title} {self.bound} {rows_text} from {self.first:,} steps on (worst {self.worst_words})"


class Event(NamedTuple):
    """An alert that begins or ends with a row."""

    begins: bool
    alert: Alert
    env_steps: int
    value: str
    """the metric's, in words"""

    def sentence(self) -> str:
        prefix = "!" if self.begins else "over:"
        return f"{prefix} {self.alert.title} {self.value}, {'' if self.begins else 'no longer '}{self.alert.bound}"


def counted(alerts: Iterable[Alert]) -> str:
    """2 alerts: KL, Entropy."""
    titles = [*dict.fromkeys(alert.title for alert in alerts)]
    return f"{len(titles)} alert{'s' * (len(titles) > 1)}: {', '.join(titles)}" if titles else ""


@dataclass
class Series:
    """The last values of one metric."""

    values: deque[float] = field(default_factory=lambda: deque(maxlen=TAIL))


@dataclass
class Score:
    """First, last and best of a mean episode reward (higher is better), and where the best was."""

    first: float = math.nan
    last: float = math.nan
    best: float = math.nan
    best_at: int = 0

    def add(self, value: float, env_steps: int, best: float = math.nan) -> None:
        """`best` is the run's own record, which a resumed process did not see happen: it has no place then."""
        self.last = value
        if math.isnan(self.first):
            self.first = value
        if not value <= self.best:
            self.best, self.best_at = value, env_steps
        if best > self.best:
            self.best, self.best_at = best, 0

    def toward(self, goal: float) -> float:
        """The part of the way covered, from the first score (or zero) to the goal; goals may be negative."""
        start_score = min(self.first, 0.0) if goal > 0 else self.first
        if self.last >= goal:
            return 1.0
        return max(0.0, (self.last - start_score) / (goal - start_score)) if start_score < goal else 0.0


class History:
    """Folds rows; a row costs a few dictionary look-ups, because thousands may come between two drawings."""

    def __init__(self, shown: Iterable[str], first_step: int = 0) -> None:
        self.series = {name: Series() for name in shown}
        self.env_steps = self.first_step = first_step
        self.rate = math.nan
        self.ended, self.playing = math.nan, ""  # training episodes so far; evaluation or test, while it is under way
        self._told = first_step  # env steps of the last row
        self.train, self.val = Score(), Score()
        self.alerts: dict[tuple[str, str], Alert] = {}  # by metric and bound; those that are open

    def add(self, row: Mapping[str, float]) -> None:
        self.env_steps = self._told = int(row.get(STEPS, self.env_steps))
        self.ended, self.playing = row.get(ENDED, self.ended), ""
        self.rate = row.get(RATE, self.rate)
        if TRAIN in row:
            self.train.add(row[TRAIN], self.env_steps, row.get(TRAIN_BEST, math.nan))
        if VAL in row:
            self.val.add(row[VAL], self.env_steps, row.get(VAL_BEST, math.nan))
        for name, series in self.series.items():
            if name in row:
                series.values.append(row[name])

    def tick(self, env_steps: int, seconds: float, playing: str) -> None:
        """How far it is without a row, so many seconds after the last one."""
        self.env_steps, self.playing = max(self.env_steps, env_steps), playing
        if self.env_steps > self._told and seconds > 0:
            self.rate = (self.env_steps - self._told) / seconds

    def now(self) -> str:
        """The state in words, where numbers do not show it: no episode has ended yet; an evaluation is under way."""
        waiting = "no episode has ended yet" if self.ended == 0 else ""
        return ", ".join(filter(None, (waiting, f"{self.playing} under way" if self.playing else "")))

    def note(self, event: Event) -> None:
        """An alert that began, or ended."""
        self.alerts.pop(event.alert.key, None)
        if event.begins:
            self.alerts[event.alert.key] = event.alert

    def seconds_left(self, max_timesteps: int, elapsed: float) -> float:
        """At the average speed of this process so far; NaN before the first step."""
        steps_done = self.env_steps - self.first_step
        return max(0, max_timesteps - self.env_steps) * elapsed / steps_done if steps_done > 0 else math.nan
