"""What a live display of a training remembers: the last values of its metrics, scores, the clock, open alerts.

Its memory does not grow with the run. Nothing is drawn here.
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
PACE_ROWS, PACE_SECONDS = 3, 30.0  # before either, the remaining time cannot be estimated


@dataclass(frozen=True)
class Alert:
    """A rule of a metric that a run broke, and where."""

    name: str
    """the metric"""
    title: str
    bound: str
    """the broken rule in words: above 0.1"""
    first: int
    """env steps of the first row that broke it; `last`: of the last one"""
    last: int
    rows: int
    """number of rows that broke it"""
    times: int
    """how often it began"""
    worst: float | None
    """the metric's worst value, None if that is not finite"""
    worst_words: str
    means: str
    tip: str
    open: bool = True
    """whether the last row still broke it"""

    @property
    def key(self) -> tuple[str, str]:
        """What identifies an alert within a run."""
        return self.name, self.bound

    def sentence(self) -> str:
        rows_text = f"in {self.rows:,} rows" if self.rows > 1 else "in 1 row"
        return f"{self.title} {self.bound} {rows_text} from {self.first:,} steps (worst {self.worst_words})"


class Event(NamedTuple):
    """An alert that begins or ends at a row."""

    begins: bool
    alert: Alert
    env_steps: int
    value: str
    """the metric's value, in words"""

    def sentence(self) -> str:
        prefix = "!" if self.begins else "ended:"
        return f"{prefix} {self.alert.title} {self.value}, {'' if self.begins else 'no longer '}{self.alert.bound}"


def counted(alerts: Iterable[Alert]) -> str:
    """Return `2 alerts: KL, Entropy`."""
    titles = [*dict.fromkeys(alert.title for alert in alerts)]
    return f"{len(titles)} alert{'s' * (len(titles) > 1)}: {', '.join(titles)}" if titles else ""


@dataclass
class Score:
    """First, last and best mean return (higher is better), and the env steps of the best."""

    first: float = math.nan
    last: float = math.nan
    best: float = math.nan
    best_at: int = 0

    def add(self, value: float, env_steps: int, best: float = math.nan) -> None:
        """Add a mean return. `best`: the run's record; if it is from before a resume, its env steps are unknown (0)."""
        self.last = value
        if math.isnan(self.first):
            self.first = value
        if not value <= self.best:
            self.best, self.best_at = value, env_steps
        if best > self.best:
            self.best, self.best_at = best, 0

    def toward(self, goal: float) -> float:
        """Return the fraction of the way from the first score (or zero) to the goal, 0 to 1; goals may be negative."""
        start_score = min(self.first, 0.0) if goal > 0 else self.first
        if self.last >= goal:
            return 1.0
        return max(0.0, (self.last - start_score) / (goal - start_score)) if start_score < goal else 0.0


class History:
    """Takes rows one by one. A row costs only a few look-ups: thousands may come between two drawings."""

    def __init__(self, shown: Iterable[str], first_step: int = 0, own: str = "") -> None:
        """`shown`: the metrics to store. `own`: metrics whose names start with this are added when they first occur."""
        self.series = {name: deque[float](maxlen=TAIL) for name in shown}  # the last values of each metric
        self.own: list[str] = []
        self._prefix = own
        self.env_steps = self.first_step = first_step
        self.rate = math.nan
        self.ended = math.nan  # training episodes so far
        self.doing, self.more_seconds = "", 0.0  # current activity without env steps (a test), and how long it takes
        self.rows = 0
        self._row_steps = first_step  # env steps of the last row
        self.train, self.val = Score(), Score()
        self.alerts: dict[tuple[str, str], Alert] = {}  # the open ones, by metric and bound

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
        """Take the clock between two rows, `seconds` after the last row, and the current activity."""
        before, self.env_steps = self.env_steps, max(self.env_steps, clock["env_steps"])
        self.doing, self.more_seconds = doing, clock.get("more_seconds", 0)
        if self.env_steps > before and seconds > 0:
            self.rate = (self.env_steps - self._row_steps) / seconds

    def now(self) -> str:
        """Return in words what numbers do not show: testing 40 of 100 episodes; no episode has ended yet."""
        return self.doing or ("no episode has ended yet" if self.ended == 0 else "")

    def note(self, event: Event) -> None:
        """Take an alert that begins or ends."""
        self.alerts.pop(event.alert.key, None)
        if event.begins:
            self.alerts[event.alert.key] = event.alert

    def seconds_left(self, max_timesteps: int, elapsed: float) -> float:
        """Return the remaining seconds at the average speed of this process; NaN while they cannot be estimated."""
        steps_done = self.env_steps - self.first_step
        if steps_done <= 0 or not has_pace(self.rows, elapsed):
            return math.nan
        seconds = max(0, max_timesteps - self.env_steps) * elapsed / steps_done + self.more_seconds
        is_idle = self.env_steps >= max_timesteps and seconds < 1
        return math.nan if is_idle else seconds


def has_pace(rows: int, elapsed: float) -> bool:
    """Whether the speed so far allows an estimate: the first seconds of a training are slower than the rest."""
    return rows >= PACE_ROWS or elapsed >= PACE_SECONDS
