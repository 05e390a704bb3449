"""The sink that shows a training in a notebook, instead of the console: one output below the cell, updated in place.

notebook_page.py makes its HTML.
"""

import math
import time
from collections.abc import Callable, Mapping

from stride.config.metrics import OWN_PREFIX, console_metrics
from stride.config.schema import Config
from stride.report.console import BEAT_SECONDS, TEST_EPISODES
from stride.report.notebook_page import Display, page, plain_text
from stride.report.run_view import live_view
from stride.runstore.history import TRAIN, VAL, Event, History
from stride.runstore.metrics_table import points
from stride.runstore.outcome import Header, Outcome
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.sink import Sink
from stride.trainer_callbacks.watch import past_rows
from stride.utils.curve import Point

Show = Callable[[Mapping[str, str]], None]
DRAW_SECONDS = 0.5  # between two drawings, which send about 15 kB each


def displayed() -> Show:
    """Return a function that shows its argument (text by MIME type) below the running cell; later calls replace it."""
    from IPython.display import DisplayHandle

    handle = DisplayHandle()
    draw = handle.display

    def show(bundle: Mapping[str, str]) -> None:
        nonlocal draw
        draw(dict(bundle), raw=True)
        draw = handle.update

    return show


class Notebook(Sink):
    """Shows progress, curve, metrics and result of a training in a notebook."""

    def __init__(
        self, run: RunDir, first_step: int = 0, show: Show | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`first_step`: env steps at which a resumed run continues: the curve shows earlier rows, too, the clock does
        not count them. `show`: for tests."""
        self._run = run
        self._first_step = first_step
        self._metrics = console_metrics()
        self._history = History([metric.name for metric in self._metrics], first_step, OWN_PREFIX)
        self._train: list[Point] = []
        self._val: list[Point] = []
        self._header: Header | None = None
        self._show = show or displayed()
        self._clock = clock
        self._start_time = clock()
        self._row_time = clock()
        self._draw_time = -math.inf

    def begin(self, header: Header, config: Config) -> None:
        self._header = header
        old_rows = past_rows(self._run, self._first_step) if self._first_step else []
        self._train = points(old_rows, TRAIN)
        self._val = points(old_rows, VAL)
        self._start_time = self._clock()
        self._row_time = self._start_time
        self._draw()

    def row(self, row: Mapping[str, float]) -> None:
        if TEST_EPISODES in row:  # the outcome reports the closing test
            return
        self._history.add(row)
        self._row_time = self._clock()
        for metric_name, curve in ((TRAIN, self._train), (VAL, self._val)):
            if metric_name in row:
                curve.append(Point(float(self._history.env_steps), row[metric_name]))
        if self._row_time - self._draw_time >= DRAW_SECONDS:
            self._draw()

    def beat(self, clock: Mapping[str, int], doing: str) -> None:
        now = self._clock()
        if now - self._draw_time >= BEAT_SECONDS:
            self._history.tick(clock, now - self._row_time, doing)
            self._draw()

    def alert(self, event: Event) -> None:
        self._history.note(event)

    def end(self, outcome: Outcome | None) -> None:
        """Draw once more; this stays in the notebook. Below it Jupyter itself shows an error."""
        self._draw(outcome, is_over=True)

    def _draw(self, outcome: Outcome | None = None, is_over: bool = False) -> None:
        header = self._header
        if header is None:  # the training failed before `begin`
            return
        self._draw_time = self._clock()
        elapsed = self._draw_time - self._start_time
        budget, goal = header.max_timesteps, header.goal
        run = live_view(header.config_id, self._history, budget, goal, elapsed, self._metrics, is_over)
        display = Display(header, run, self._train, self._val, outcome)
        self._show({"text/html": page(display), "text/plain": plain_text(display)})
