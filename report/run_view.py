"""The data that displays show of a run at one moment: progress, returns, and a table of its metrics.

terminal.py and notebook_page.py draw it; they only choose positions and colours. Import nothing heavy here: the monitor
has to show its first screen within 0.4 seconds.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stride.config.metrics import Metric, arranged
from stride.runstore.history import Alert, History, Score
from stride.runstore.metrics_table import NAMES
from stride.utils.typography import duration, number, plain, score

NOT_A_NUMBER = "not a number"


class MetricRow(NamedTuple):
    """A line of the table of metrics."""

    metric: Metric
    value: str
    change: str
    """size of the last change; "" if it rounds to 0"""
    rises: bool
    good: bool | None
    """whether the change is an improvement; None if neither direction is better"""
    bound: str
    """why the value is alarming, "above 0.1"; "" if it is not"""
    tail: Sequence[float]
    """the last values, oldest first"""


class Progress(NamedTuple):
    """A bar and the text behind it."""

    label: str
    fraction: float | None
    """filled part of the bar; None: no bar"""
    words: str
    more: Sequence[str] = ()
    """alternative additions to the text, the longest first: the first that fits is shown"""
    reached: bool = False
    """whether the goal is reached"""


@dataclass
class RunView:
    """A run at one moment."""

    title: str
    env_steps: int
    budget: int
    """env steps; 0 if unknown"""
    goal: float | None
    val: Score
    train: Score
    elapsed: float = math.nan
    """seconds"""
    left: float = math.nan
    """seconds until the budget is spent"""
    rate: float = math.nan
    """env steps per second, now"""
    mean_rate: float = math.nan
    """env steps per second, over the run"""
    doing: str = ""
    """the present activity, `evaluation under way`, where numbers do not show it"""
    is_over: bool = False
    alerts: Sequence[Alert] = ()
    """the open ones"""
    rows: Sequence[MetricRow] = ()

    @property
    def clock(self) -> list[str]:
        """Times and speeds, as far as they are known: `0:27`, `left 1:02`, `4,812 steps/s`, `4,790 on average`."""
        parts = []
        has_rate = math.isfinite(self.rate)
        if math.isfinite(self.elapsed):
            parts.append(duration(self.elapsed))
        if math.isfinite(self.left) and not self.is_over:
            parts.append(f"left {duration(self.left)}")
        if has_rate and not self.is_over:
            parts.append(f"{self.rate:,.0f} steps/s")
        if math.isfinite(self.mean_rate):
            parts.append(f"{self.mean_rate:,.0f}{'' if has_rate else ' steps/s'} on average")
        return parts

    @property
    def percent(self) -> str:
        return f"{100 * self.spent:.0f}%"

    @property
    def spent(self) -> float:
        """The fraction of the budget that is spent."""
        return min(1.0, self.env_steps / self.budget) if self.budget else 0.0

    def steps(self) -> Progress:
        """Return the progress bar of the budget."""
        if not self.budget:
            return Progress("steps", None, f"{self.env_steps:,}")
        return Progress("steps", self.spent, f"{self.percent}  {self.env_steps:,} / {self.budget:,}")

    def toward_goal(self) -> Progress | None:
        """Return the bar of the last evaluation (before the first one: training return) against the goal.

        None if there is neither a return nor a goal.
        """
        kind, result = newest_return(self.val, self.train)
        if not math.isfinite(result.last):
            if self.goal is None:
                return None
            return Progress("goal", None, plain(self.goal), [] if self.is_over else ["no evaluation yet"])
        more = [f"best {score(result.best)}"]
        if result.best_at:
            more.insert(0, f"{more[0]} at {result.best_at:,}")
        text = f"{kind} {score(result.last)}"
        if self.goal is None:
            return Progress("last", None, text, more)
        reached = result.last >= self.goal
        return Progress("goal", result.toward(self.goal), f"{text} / {plain(self.goal)}", more, reached)


def newest_return(val: Score, train: Score) -> tuple[str, Score]:
    """Return the name and the score of evaluations, or of training before the first evaluation.

    Its last value is NaN if no episode has ended.
    """
    return (NAMES["val"], val) if math.isfinite(val.last) else (NAMES["train"], train)


def metric_row(metric: Metric, value: float, tail: Sequence[float], alerts: Iterable[Alert]) -> MetricRow:
    """Make a line of the table. `tail`: last values, oldest first; the change is `value` minus the last but one."""
    bound = next((alert.bound for alert in alerts if alert.name == metric.name), "")
    if not math.isfinite(value):
        bound = "" if metric.nan else NOT_A_NUMBER
    change = value - tail[-2] if len(tail) > 1 else math.nan
    change_text = ""
    if math.inf > abs(change) >= 0.5 * 10.0**-metric.precision:
        change_text = number(abs(change), metric.precision)
    good = None if metric.better is None else (metric.better == "up") == (change > 0)
    return MetricRow(metric, number(value, metric.precision), change_text, change > 0, good, bound, tail)


def live_view(
    title: str,
    history: History,
    budget: int,
    goal: float | None,
    elapsed: float,
    metrics: Sequence[Metric] = (),
    is_over: bool = False,
) -> RunView:
    """Make the view of a training in its own process, with a row for each of `metrics` that has a value."""
    alerts = list(history.alerts.values())
    if metrics and history.own:
        metrics = arranged([*(metric.name for metric in metrics), *history.own])
    rows = []
    for metric in metrics:
        values = list(history.series[metric.name])
        if values:
            rows.append(metric_row(metric, values[-1], values, alerts))
    return RunView(
        title=title,
        env_steps=history.env_steps,
        budget=max(1, budget),
        goal=goal,
        val=history.val,
        train=history.train,
        elapsed=elapsed,
        left=history.seconds_left(budget, elapsed),
        rate=history.rate,
        doing=history.now(),
        is_over=is_over,
        alerts=alerts,
        rows=rows,
    )
