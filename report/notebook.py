"""The sink of a notebook, in the console's place: one output below the cell, drawn anew where it stands.

When to draw is decided here, what it looks like in notebook_page. IPython is asked only where it is loaded already.
"""

import math
import sys
import time
from collections.abc import Callable, Mapping

from stride.config.metric_order import console_metrics
from stride.config.schema import Config
from stride.report.notebook_page import Display, page, words
from stride.report.run_view import live_view
from stride.runstore.history import TRAIN, VAL, Event, History
from stride.runstore.metrics_table import points
from stride.runstore.outcome import Header, Outcome
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.sink import Sink
from stride.trainer_callbacks.watch import past_rows
from stride.utils.curve import Point

Show = Callable[[Mapping[str, str]], None]
DRAW_SECONDS = 0.5  # between two drawings; each is sent whole, some 15 kB
BEAT_SECONDS = 1.0  # until it is drawn without a row
TESTED = "test/roll/episodes"  # in the row of the closing test


def in_notebook() -> bool:
    """Whether this program is the kernel of a notebook, whose front end shows HTML."""
    if "ipykernel" not in sys.modules:
        return False
    from ipykernel.zmqshell import ZMQInteractiveShell
    from IPython import get_ipython

    return isinstance(get_ipython(), ZMQInteractiveShell)


def displayed() -> Show:
    """Shows what it is given below the cell that runs, and from then on in its place."""
    from IPython.display import DisplayHandle

    handle = DisplayHandle()
    shown: list[bool] = []

    def show(bundle: Mapping[str, str]) -> None:
        (handle.update if shown else handle.display)(dict(bundle), raw=True)
        shown.append(True)

    return show


class Notebook(Sink):
    """`first_step`: the env steps a resumed run starts at; its curve begins where the run did, its clock here."""

    def __init__(
        self,
        run: RunDir,
        first_step: int = 0,
        show: Show | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._first_step = run, first_step
        self._metrics = console_metrics()
        self._history = History([metric.name for metric in self._metrics], first_step)
        self._train: list[Point] = []
        self._val: list[Point] = []
        self._header: Header | None = None
        self._show, self._clock = show or displayed(), clock
        self._begun = self._row_at = clock()
        self._drawn = -math.inf

    def begin(self, header: Header, config: Config) -> None:
        self._header = header
        past = past_rows(self._run, self._first_step) if self._first_step else []
        self._train, self._val = points(past, TRAIN), points(past, VAL)
        self._begun = self._row_at = self._clock()
        self._draw()

    def row(self, row: Mapping[str, float]) -> None:
        if TESTED in row:  # the closing test is told by the outcome
            return
        self._history.add(row)
        at, self._row_at = float(self._history.env_steps), self._clock()
        for name, line in ((TRAIN, self._train), (VAL, self._val)):
            if name in row:
                line.append(Point(at, row[name]))
        if self._row_at - self._drawn >= DRAW_SECONDS:
            self._draw()

    def beat(self, clock: Mapping[str, int], playing: str) -> None:
        now = self._clock()
        if now - self._drawn >= BEAT_SECONDS:
            self._history.tick(clock["env_steps"], now - self._row_at, playing)
            self._draw()

    def alert(self, event: Event) -> None:
        self._history.note(event)

    def end(self, outcome: Outcome | None) -> None:
        """The last drawing stays in the notebook; of an error the cell itself tells below it."""
        self._draw(outcome, failed=outcome is None)

    def _draw(self, outcome: Outcome | None = None, failed: bool = False) -> None:
        header = self._header
        if header is None:  # failed before there was anything to show
            return
        self._drawn = self._clock()
        seconds, is_over = self._drawn - self._begun, failed or outcome is not None
        run = live_view(
            header.config_id, self._history, header.max_timesteps, header.goal, seconds, self._metrics, is_over
        )
        display = Display(header, run, self._train, self._val, outcome)
        self._show({"text/html": page(display), "text/plain": words(display)})
