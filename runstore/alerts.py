"""What is said of a run that alarms: an Alert for the whole run, an Event where one begins or ends, and their words.

When something is alarming is judged in watch.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


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
        count = f"in {self.rows:,} rows" if self.rows > 1 else "in 1 row"
        return f"{self.title} {self.bound} {count} from {self.first:,} steps on (worst {self.worst_words})"


class Event(NamedTuple):
    """An alert that begins or ends with a row."""

    begins: bool
    alert: Alert
    env_steps: int
    value: str
    """the metric's, in words"""

    def sentence(self) -> str:
        words = "!" if self.begins else "over:"
        return f"{words} {self.alert.title} {self.value}, {'' if self.begins else 'no longer '}{self.alert.bound}"


def counted(alerts: Iterable[Alert]) -> str:
    """2 alerts: KL, Entropy."""
    titles = [*dict.fromkeys(alert.title for alert in alerts)]
    return f"{len(titles)} alert{'s' * (len(titles) > 1)}: {', '.join(titles)}" if titles else ""
