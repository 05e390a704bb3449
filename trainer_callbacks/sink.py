"""The base class of sinks. A sink receives the numbers of a training: console, metrics.csv, report.md, a tracker.

A new sink is one file with a class derived from Sink, and one row in report/sinks.py. It overrides the calls it needs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from stride.config.schema import Config
from stride.runstore.history import Event
from stride.runstore.outcome import Header, Outcome


class Doing(NamedTuple):
    """What a training does while its count of env steps does not change."""

    words: str = ""
    """learning 3 of 16 epochs, evaluating 2 of 10 episodes, testing 40 of 100 episodes; "" while it collects"""
    seconds: float = 0.0
    """estimate of the time that it still takes, 0 if unknown"""


NOTHING = Doing()


class Sink:
    """Receives the calls of ExportMetrics: `begin` once, then any number of the others, then `end` once.

    Calls never overlap. All but `beat` come between two iterations, in the thread that trains: work of more than a
    millisecond belongs into the sink's own thread or process. An error raised here ends the training, so a sink whose
    failure must not do that (a tracker that is offline) catches it itself.
    """

    def begin(self, header: Header, config: Config) -> None:
        """Receive the facts of the run before its first iteration; a resumed run calls this again."""

    def row(self, row: Mapping[str, float]) -> None:
        """Receive metrics, {"train/clock/env_steps": 5000.0, ...}, about 200 times a run; the last row has the test."""

    def beat(self, clock: Mapping[str, int], doing: str) -> None:
        """Receive the clock between two rows, at least every second, also during long iterations; in another thread.

        `clock`: env_steps, iterations and updates so far; more_seconds: estimated time for the present activity and
        the closing test. `doing`: the activity while env steps do not change, "testing 40 of 100 episodes", else "".
        """

    def alert(self, event: Event) -> None:
        """Receive an alert that began or ended with the last row."""

    def media(self, video: Path) -> None:
        """Receive the path of a video that was just completed."""

    def checkpoint(self, path: Path, facts: Mapping[str, object]) -> None:
        """Receive a checkpoint that is complete and linked, and facts of it (env_steps, epoch, score, best, ..)."""

    def end(self, outcome: Outcome | None) -> None:
        """Close what is open: this is the last call. None: an error ended the training, which others report."""
