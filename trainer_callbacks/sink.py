"""A sink is a place that numbers go to: seven calls, of which each sink overrides those it wants.

A sink of one's own is one file with a class derived from Sink, and one row in report/sinks.py.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from stride.config.schema import Config
from stride.runstore.history import Event
from stride.runstore.outcome import Header, Outcome


class Doing(NamedTuple):
    """What a training does while its env steps stand still."""

    words: str = ""
    """learning 3 of 16 epochs, evaluating 2 of 10 episodes, testing 40 of 100 episodes; "" while it collects"""
    seconds: float = 0.0
    """what it takes still, as far as that is known"""


NOTHING = Doing()


class Sink:
    """Called in this order: begin, then row, beat, media, alert and checkpoint in any number, then end; one at a time.
    ExportMetrics alone calls.

    Called between two iterations, in the thread that trains (but `beat`): what takes longer than a millisecond belongs
    into a thread or process of the sink's own. What a sink raises ends the training, so one whose failure must not (a
    tracker that is offline) catches that itself.
    """

    def begin(self, header: Header, config: Config) -> None:
        """The details of the run, before its first iteration; a resumed run begins again."""

    def row(self, row: Mapping[str, float]) -> None:
        """Metrics by the names of config/metrics.yaml, about 200 times a run; the last row holds the closing test."""

    def beat(self, clock: Mapping[str, int], doing: str) -> None:
        """Between two rows, at least every second, also inside an iteration that takes longer; in a thread of its own.

        `clock`: env_steps, iterations, updates so far; more_seconds, which what is done now and the closing test take
        beside env steps. `doing`: what it does while env steps stand still, "testing 40 of 100 episodes", else "".
        """

    def alert(self, event: Event) -> None:
        """An alert began or ended with the row before."""

    def media(self, video: Path) -> None:
        """A video was written, complete."""

    def checkpoint(self, path: Path, facts: Mapping[str, object]) -> None:
        """A checkpoint is complete and linked: its sidecar's facts (env_steps, epoch, score, best, ..)."""

    def end(self, outcome: Outcome | None) -> None:
        """Nothing comes after this; None: an error ended the training, reported elsewhere. Close what is open."""
