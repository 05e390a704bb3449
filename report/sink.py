"""What a place that numbers go to may be told: six calls, of which each sink overrides those it wants.

A sink of one's own is one file with a class derived from Sink, and one row in report/sinks.py.
"""

from collections.abc import Mapping
from pathlib import Path

from config.schema import Config
from report.alerts import Event
from report.outcome import Header, Outcome


class Sink:
    """Told in this order: begin, then row, alert, beat and media in any number, then end. ExportMetrics alone calls.

    Called between two iterations, in the thread that trains: what takes longer than a millisecond belongs into a thread
    or process of the sink's own. What a sink raises ends the training, so one whose failure must not (a tracker that
    is offline) catches that itself.
    """

    def begin(self, header: Header, config: Config) -> None:
        """The facts of the run, before its first iteration; a resumed run begins again."""

    def row(self, row: Mapping[str, float]) -> None:
        """Metrics by the names of config/metrics.yaml, about 200 times a run; the last row holds the closing test."""

    def beat(self, clock: Mapping[str, int]) -> None:
        """An iteration that made no row: env_steps, iterations, updates so far. Often 10,000 times a second."""

    def alert(self, event: Event) -> None:
        """An alert began or ended with the row just told."""

    def media(self, video: Path) -> None:
        """A video was written, whole."""

    def end(self, outcome: Outcome | None) -> None:
        """Nothing comes after this; None: an error ended the training, and others tell it. Give back what is held."""
