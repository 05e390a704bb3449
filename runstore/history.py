"""A display's memory of the rows it was given: the tails of the metrics it shows, the scores, the clock.

Memory stays constant however long the run is; nothing is drawn here.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stride.runstore.metrics_table import RATE as RATE
from stride.runstore.metrics_table import STEPS as STEPS
from stride.runstore.metrics_table import TRAIN as TRAIN
from stride.runstore.metrics_table import TRAIN_BEST as TRAIN_BEST
from stride.runstore.metrics_table import VAL as VAL
from stride.runstore.metrics_table import VAL_BEST as VAL_BEST

ENDED = "train/roll/episodes"
TAIL = 40  # values in a sparkline
PACE_ROWS, PACE_SECONDS = 3, 30.0  # of the training's beginning, in which nobody can say how long it will take


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
        return f"{self.title} {self.bound} {rows_text} from {self.first:,} steps (worst {self.worst_words})"


class Event(NamedTuple):
    """An alert that begins or ends with a row."""

    begins: bool
    alert: Alert
    env_steps: int
    value: str
    """the metric's, in words"""

    def sentence(self) -> str:
        prefix = "!" if self.begins else "ended:"
        return f"{prefix} {self.alert.title} {self.value}, {'' if self.begins else 'no longer '}{self.alert.bound}"


def counted(alerts: Iterable[Alert]) -> str:
    """2 alerts: KL, Entropy."""
    titles = [*dict.fromkeys(alert.title for alert in alerts)]
    return f"{len(titles)} alert{'s' * (len(titles) > 1)}: {', '.join(titles)}" if titles else ""


@dataclass
class Score:
    """First, last and best of a mean return (higher is better), and where the best was."""

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

    def __init__(self, shown: Iterable[str], first_step: int = 0, own: str = "") -> None:
        """`own`: names that begin so are shown as well, once they occur."""
        self.series = {name: deque[float](maxlen=TAIL) for name in shown}  # the last values of each metric
        self.own: list[str] = []
        self._prefix = own
        self.env_steps = self.first_step = first_step
        self.rate = math.nan
        self.ended = math.nan  # training episodes so far
        self.doing, self.more_seconds = "", 0.0  # while env steps stand still, and what that takes beside them
        self.rows = 0
        self._row_steps = first_step  # env steps of the last row
        self.train, self.val = Score(), Score()
        self.alerts: dict[tuple[str, str], Alert] = {}  # by metric and bound; those that are open

    def add(self, row: Mapping[str, float]) -> None:
        self.env_steps = self._row_steps = int(row.get(STEPS, self.env_steps))
        self.ended = row.get(ENDED, self.ended)
        self.doing = ""
        self.rows += 1
        self.rate = row.get(RATE, self.rate)
        if TRAIN in row:
            self.train.add(row[TRAIN], self.env_steps, row.get(TRAIN_BEST, math.nan))
        if VAL in row:
            self.val.add(row[VAL], self.env_steps, row.get(VAL_BEST, math.nan))
        if self._prefix:
            for name in row:
                if name.startswith(self._prefix) and name not in self.series:
                    self.own.append(name)
                    self.series[name] = deque(maxlen=TAIL)
        for name, values in self.series.items():
            if name in row:
                values.append(row[name])

    def tick(self, clock: Mapping[str, int], seconds: float, doing: str) -> None:
        """How far it is without a row, so many seconds after the last one."""
        before, self.env_steps = self.env_steps, max(self.env_steps, clock["env_steps"])
        self.doing, self.more_seconds = doing, clock.get("more_seconds", 0)
        if self.env_steps > before and seconds > 0:
            self.rate = (self.env_steps - self._row_steps) / seconds

    def now(self) -> str:
        """The state in words, where numbers do not show it: testing 40 of 100 episodes; no episode has ended yet."""
        return self.doing or ("no episode has ended yet" if self.ended == 0 else "")

    def note(self, event: Event) -> None:
        """An alert that began, or ended."""
        self.alerts.pop(event.alert.key, None)
        if event.begins:
            self.alerts[event.alert.key] = event.alert

    def seconds_left(self, max_timesteps: int, elapsed: float) -> float:
        """At the average speed of this process so far; NaN as long as nobody can say."""
        steps_done = self.env_steps - self.first_step
        if steps_done <= 0 or not has_pace(self.rows, elapsed):
            return math.nan
        seconds = max(0, max_timesteps - self.env_steps) * elapsed / steps_done + self.more_seconds
        is_idle = self.env_steps >= max_timesteps and seconds < 1
        return math.nan if is_idle else seconds


def has_pace(rows: int, elapsed: float) -> bool:
    """Whether the speed so far says how long a training will take: its first seconds are slower than all others."""
    return rows >= PACE_ROWS or elapsed >= PACE_SECONDS
