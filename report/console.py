"""The sink a person looks at: a live table on a terminal, plain lines in a pipe, one closing line when quiet.

When to draw is decided here, what it looks like in dashboard and terminal.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from rich import console as rich_console
from rich.text import Text

from stride.config.metric_order import console_metrics
from stride.config.metrics import Metric
from stride.config.schema import Config
from stride.report.dashboard import closing_block, header_block, live_page, plain_line, recap
from stride.report.in_place import InPlace
from stride.report.run_view import RunView, live_view
from stride.report.terminal import Page
from stride.runstore.history import VAL, Alert, Event, History
from stride.runstore.outcome import FAILED, Header, Outcome, next_commands
from stride.trainer_callbacks.sink import Sink
from stride.utils.one_line import printable

DRAW_SECONDS = 0.25  # between two drawings of the table
BEAT_SECONDS = 1.0  # until it is drawn without a row
LINE_SECONDS = 5.0  # between two plain lines without an evaluation
AROUND = 15  # lines that are not the table's: the header, which stays in sight, bars and clock above, one line free
LEAST_ROWS = 5
SILENT_SECONDS, SILENT_SHARE = 10.0, 0.02  # a plain line between two rows: after so long, and such a part of the run
told: set[str] = set()  # labels of the header that stand on the terminal since before the run was made
SPOKEN = 3  # times that one alert is spoken of; then it is only counted
TESTED = "test/roll/episodes"  # in the row of the closing test


def standard_output() -> rich_console.Console:
    """Stdout; a pipe stays a pipe even where FORCE_COLOR is set, or CI logs would fill with redrawn tables.

    So does what `!` of a notebook takes for a terminal: the lines below its cell cannot be drawn over.
    """
    is_terminal = sys.stdout.isatty() and "JPY_PARENT_PID" not in os.environ  # which Jupyter gives to kernels
    return rich_console.Console(highlight=False, force_terminal=None if is_terminal else False)


class Console(Sink):
    """Holds numbers, never the agent.

    `first_step`: the env steps a resumed run starts at, so that speed and time left count this process alone.
    """

    def __init__(
        self,
        quiet: bool = False,
        first_step: int = 0,
        terminal: rich_console.Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = console_metrics()
        self._history = History([metric.name for metric in self._metrics], first_step)
        self._quiet = quiet
        self._terminal = terminal or standard_output()
        is_drawn = self._terminal.is_interactive and not quiet
        self._in_place = InPlace(self._terminal, self._print_header) if is_drawn else None
        self._interval = DRAW_SECONDS if is_drawn else LINE_SECONDS
        self._header: Header
        self._is_begun = False
        self._alerts: dict[tuple[str, str], Alert] = {}
        self._clock = clock
        self._begun = self._row_at = clock()
        self._drawn = -math.inf
        self._stale = False

    def begin(self, header: Header, config: Config) -> None:
        """Print the facts; the time shown counts from here."""
        self._header, self._is_begun = header, True
        if not self._quiet:
            if not told:
                self._print(Text())
            self._print(header_block(header, told))
            self._print(Text())
            told.clear()
        self._begun = self._row_at = self._clock()

    def row(self, row: Mapping[str, float]) -> None:
        if TESTED in row:  # the closing test is told by the outcome
            return
        now = self._clock()
        self._history.add(row)
        if self._quiet:
            return
        self._stale, self._row_at = True, now
        if now - self._drawn >= self._interval or (VAL in row and not self._in_place):
            self._draw(now)

    def beat(self, clock: Mapping[str, int], playing: str) -> None:
        """The clock of the table moves; in a pipe a line, the more seldom the longer it has been going on."""
        now = self._clock()
        silent = BEAT_SECONDS if self._in_place else max(SILENT_SECONDS, SILENT_SHARE * (now - self._begun))
        if not self._quiet and now - max(self._drawn, self._begun) >= silent:
            self._history.tick(clock["env_steps"], now - self._row_at, playing)
            self._draw(now)

    def alert(self, event: Event) -> None:
        """In a pipe as it begins or ends, the advice with the first time; the table marks it while it is open."""
        self._history.note(event)
        self._alerts[event.alert.key] = event.alert
        if self._quiet or self._in_place or event.alert.times > SPOKEN:
            return
        self._print(Text(f"  {event.sentence()} at {event.env_steps:,} steps"))
        if event.begins and event.alert.times == 1:
            self._print(Text(f"      {event.alert.means} {event.alert.tip}"))

    def end(self, outcome: Outcome | None) -> None:
        """The last state of the table, then the result and what to type next; the cursor is given back."""
        if self._stale:
            self._draw(self._clock())
        if self._in_place:
            self._in_place.leave()
        if self._quiet and (outcome := outcome or self._failed()):
            self._print(Text(printable(outcome.line())))
        if self._quiet or outcome is None:
            return
        self._print(Text())
        commands = next_commands(outcome, self._header.config_id)
        self._print(closing_block(outcome, commands, not self._in_place or self._terminal.options.ascii_only))
        lines = recap(outcome.alerts, f"{outcome.run_path}/report.md", self._terminal.width if self._in_place else None)
        for line in [Text(), *lines] if lines else []:
            self._print(line)
        self._print(Text())

    def _failed(self) -> Outcome | None:
        """What a line can say where an error ended it; nothing before the begin."""
        if not self._is_begun:
            return None
        goal, seconds = self._header.goal, self._clock() - self._begun
        steps, alerts = self._history.env_steps, tuple(self._alerts.values())
        return Outcome(False, FAILED, goal, None, None, None, 0, steps, seconds, self._header.run_path, alerts=alerts)

    def _draw(self, now: float) -> None:
        self._drawn, self._stale = now, False
        elapsed = now - self._begun
        if self._in_place:
            self._in_place.draw(self._page(elapsed))
        else:
            self._print(Text(plain_line(self._view(elapsed, []))))

    def _page(self, elapsed: float) -> list[Text]:
        width, height = self._terminal.size
        rows = max(LEAST_ROWS, height - AROUND)
        page = Page(width - 1, rows, self._terminal.options.ascii_only)
        return live_page(self._view(elapsed, self._metrics), page)

    def _view(self, elapsed: float, metrics: Sequence[Metric]) -> RunView:
        header = self._header
        return live_view(header.config_id, self._history, header.max_timesteps, header.goal, elapsed, metrics)

    def _print_header(self) -> None:
        self._print(header_block(self._header))
        self._print(Text())

    def _print(self, text: Text) -> None:
        self._terminal.print(text, soft_wrap=True, highlight=False)
