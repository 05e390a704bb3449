"""The sink that prints a training for a person: a live table on a terminal, plain lines in a pipe, one line if quiet.

terminal.py draws bars and tables, for the monitor, too.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from textwrap import wrap

from rich import console as rich_console
from rich.text import Text

from stride.config.metrics import OWN_PREFIX, console_metrics
from stride.config.schema import Config
from stride.report.in_place import InPlace
from stride.report.run_view import RunView, live_view
from stride.report.terminal import (
    INDENT,
    LABEL,
    WIDE,
    Page,
    alert_lines,
    labelled,
    line_of,
    metric_table,
    progress_lines,
)
from stride.runstore import dreams
from stride.runstore.history import VAL, Alert, Event, History, counted
from stride.runstore.outcome import FAILED, Header, Outcome, next_commands, phases_text
from stride.trainer_callbacks.sink import Sink
from stride.utils.typography import duration, optional, plain, score
from stride.utils.user_error import printable

DRAW_SECONDS = 0.25  # between two drawings of the table
BEAT_SECONDS = 1.0  # without a new row the table is drawn again after this time, so that its clock moves
LINE_SECONDS = 5.0  # between two plain lines without an evaluation
OTHER_LINES = 15  # lines that are not table: the header, which stays visible, bars, clock, one free line
MIN_PAGE_HEIGHT = 5  # lines of table and alerts
MIN_METRICS = 4  # lines of the table, however many alerts are below it
SILENT_SECONDS, SILENT_SHARE = 10.0, 0.02  # without rows, a plain line comes after 10 s or 2 % of the time so far
PIPE_WIDTH = 100  # columns of an alert in a pipe
MAX_PRINTED = 3  # times that one alert is printed; after that it is only counted
MAX_RECALLED = 8  # alerts that are described at the end
TEST_EPISODES = "test/roll/episodes"  # in the row of the closing test

Facts = list[tuple[str, str]]  # (label, text): [("agent", "ppo, seed 1"), ("run", "runs/x")]

# Labels of the header's lines that are on the terminal already, printed before the run is made (opening_block)
printed_labels: set[str] = set()


def in_notebook() -> bool:
    """Return whether this program runs in a notebook that can show HTML."""
    if "ipykernel" not in sys.modules:
        return False
    from ipykernel.zmqshell import ZMQInteractiveShell
    from IPython import get_ipython

    return isinstance(get_ipython(), ZMQInteractiveShell)


def standard_output() -> rich_console.Console:
    """Return a rich console for stdout that draws a live table only on a real terminal.

    Not in a pipe, even if FORCE_COLOR is set: CI logs would fill with redrawn tables. And not after `!` in a notebook
    cell, which looks like a terminal but cannot overwrite lines.
    """
    is_terminal = sys.stdout.isatty() and "JPY_PARENT_PID" not in os.environ  # which Jupyter gives to kernels
    return rich_console.Console(highlight=False, force_terminal=None if is_terminal else False)


class Console(Sink):
    """Prints header, progress, alerts and result of a training. It holds numbers only, never the agent."""

    def __init__(
        self,
        quiet: bool = False,
        first_step: int = 0,
        terminal: rich_console.Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`first_step`: env steps at which a resumed run continues, so that speed and time left are of this process."""
        self._metrics = console_metrics()
        self._history = History([metric.name for metric in self._metrics], first_step, OWN_PREFIX)
        self._quiet = quiet
        self._terminal = terminal or standard_output()
        is_drawn = self._terminal.is_interactive and not quiet
        self._in_place = InPlace(self._terminal, self._print_header) if is_drawn else None
        self._interval = DRAW_SECONDS if is_drawn else LINE_SECONDS
        self._header: Header | None = None
        self._alerts: dict[tuple[str, str], Alert] = {}
        self._clock = clock
        self._start_time = clock()
        self._row_time = clock()
        self._draw_time = -math.inf
        self._has_news = False  # rows that were not drawn yet

    def begin(self, header: Header, config: Config) -> None:
        """Print the header; the elapsed time counts from here."""
        self._header = header
        if not self._quiet:
            if not printed_labels:
                self._print()
            self._print(header_block(header, printed_labels))
            self._print()
            printed_labels.clear()
        self._start_time = self._clock()
        self._row_time = self._start_time

    def row(self, row: Mapping[str, float]) -> None:
        if TEST_EPISODES in row:  # the outcome reports the closing test
            return
        self._history.add(row)
        if self._quiet:
            return
        now = self._clock()
        self._has_news = True
        self._row_time = now
        if now - self._draw_time >= self._interval or (VAL in row and not self._in_place):
            self._draw(now)

    def beat(self, clock: Mapping[str, int], doing: str) -> None:
        """Draw the table again with the new clock; in a pipe print a line, the more rarely the longer the run takes."""
        now = self._clock()
        silence = BEAT_SECONDS
        if not self._in_place:
            silence = max(SILENT_SECONDS, SILENT_SHARE * (now - self._start_time))
        if not self._quiet and now - max(self._draw_time, self._start_time) >= silence:
            self._history.tick(clock, now - self._row_time, doing)
            self._draw(now)

    def alert(self, event: Event) -> None:
        """In a pipe, print that an alert begins (the first time with advice) or ends; a terminal's table marks it."""
        alert = event.alert
        self._history.note(event)
        self._alerts[alert.key] = alert
        if self._quiet or self._in_place or alert.times > MAX_PRINTED:
            return
        lines = [(INDENT, f"{event.sentence()} at {event.env_steps:,} steps", "")]
        if event.begins and alert.times == 1:
            lines.append((3 * INDENT, f"{alert.means} {alert.tip}", ""))
        for text in wrapped(lines, PIPE_WIDTH):
            self._print(text)

    def end(self, outcome: Outcome | None) -> None:
        """Draw the last state of the table, then print the result and what to type next; show the cursor again."""
        if self._has_news:
            self._draw(self._clock())
        if self._in_place:
            self._in_place.leave()
        header = self._header
        if header is None:
            return
        if self._quiet:
            if outcome is None:  # an error ended it
                seconds = self._clock() - self._start_time
                steps = self._history.env_steps
                alerts = tuple(self._alerts.values())
                results = (header.goal, None, None, None, 0, steps, seconds, header.run_path)
                outcome = Outcome(False, FAILED, *results, alerts=alerts)
            self._print(Text(printable(outcome.line())))
        elif outcome is not None:
            self._print()
            self._print(closing_block(outcome, not self._in_place or self._terminal.options.ascii_only))
            self._print()
            width = self._terminal.width if self._in_place else PIPE_WIDTH
            for line in recalled_alerts(outcome.alerts, f"{outcome.run_path}/report.md", width):
                self._print(line)
            if outcome.alerts:
                self._print()
            self._print(next_block(next_commands(outcome, header)))
            self._print()

    def _draw(self, now: float) -> None:
        self._draw_time = now
        self._has_news = False
        assert self._header is not None
        metrics = self._metrics if self._in_place else []
        header = self._header
        elapsed = now - self._start_time
        view = live_view(header.config_id, self._history, header.max_timesteps, header.goal, elapsed, metrics)
        if self._in_place:
            width, height = self._terminal.size
            page = Page(width - 1, max(MIN_PAGE_HEIGHT, height - OTHER_LINES), self._terminal.options.ascii_only)
            self._in_place.draw(live_page(view, page))
        else:
            self._print(Text(plain_line(view)))

    def _print_header(self) -> None:
        assert self._header is not None
        self._print(header_block(self._header))
        self._print()

    def _print(self, text: Text | str = "") -> None:
        self._terminal.print(text, soft_wrap=True, highlight=False)


def live_page(view: RunView, page: Page) -> list[Text]:
    """Draw progress, table and alerts; table and alerts together take at most `page.height` lines."""
    alerts = alert_lines(view.alerts, page)
    rows = view.rows
    height = max(MIN_METRICS, page.height - len(alerts))
    hidden = ""
    if len(rows) > height:
        hidden = f"{len(rows) - height + 1} more in metrics.csv"
        rows = rows[: height - 1]
    return [*live_head(view, page), line_of(), *metric_table(rows, page, hidden), *alerts]


def live_head(view: RunView, page: Page) -> list[Text]:
    """Draw the bars of budget and goal, and the clock: behind the first bar on wide pages, else in its own line."""
    steps = view.steps()
    clock = "   ".join(view.clock)
    if page.width >= WIDE:
        lines = progress_lines(steps._replace(more=[clock]), view.toward_goal(), page)
    else:
        lines = [*progress_lines(steps, view.toward_goal(), page), labelled("time", clock, "dim")]
    if view.doing:
        lines.append(labelled("now", view.doing, "dim"))
    return lines


def recalled_alerts(alerts: Sequence[Alert], report: str, width: int) -> list[Text]:
    """Return the lines for the end: the number of alerts, then each one with its advice.

    `report`: path of report.md, named if there are more than MAX_RECALLED.
    """
    if not alerts:
        return []
    lines = [(INDENT, counted(alerts), "bold yellow")]
    for alert in alerts[:MAX_RECALLED]:
        lines.append((2 * INDENT, alert.sentence(), "yellow"))
        lines.append((3 * INDENT, f"{alert.means} {alert.tip}", "dim"))
    if len(alerts) > MAX_RECALLED:
        lines.append((2 * INDENT, f"and {len(alerts) - MAX_RECALLED} more in {report}", ""))
    return wrapped(lines, width)


def wrapped(lines: Sequence[tuple[str, str, str]], width: int) -> list[Text]:
    """Fold lines, each given as (indent, text, style), to at most `width` columns."""
    texts = []
    for indent, line, style in lines:
        texts += [Text(f"{indent}{part}", style) for part in wrap(line, max(20, width - len(indent) - 1))]
    return texts


def header_block(header: Header, printed: Collection[str] = ()) -> Text:
    """Return the lines above a training, without those whose labels are in `printed`."""
    facts = header_facts(header, "budget" in printed)
    if printed:
        return fact_lines([fact for fact in facts if fact[0] not in printed])
    return _block(Text(header.config_id, "bold"), facts)


def header_facts(header: Header, is_budget_printed: bool = False) -> Facts:
    """Return what is known before a training as (label, text); empty texts are left out."""
    header_lines = [
        ("goal", goal_text(header.goal, None if is_budget_printed else header.max_timesteps)),
        ("agent", agent_text(header.algo_id, header.seed)),
        ("changed", header.changes),
        ("general", header.settings),
        ("engine", f"{header.engine}{_reason(header.engine_why)}, {header.device}, {header.parameters:,} parameters"),
        ("threads", f"{header.threads}{_reason(header.threads_why)}"),
        ("envs", f"{header.n_envs}, {header.env_backend} ({header.env_backend_why})"),
        ("workers", f"{header.workers} ({header.workers_why})" if header.workers_why else ""),
        ("plateau", header.plateau),
        ("run", header.run_path),
    ]
    return [fact for fact in header_lines if fact[1]]


def _reason(why: str) -> str:
    return f" ({why})" if why else ""


def opening_block(config: Config, seeds: Sequence[int]) -> tuple[Text, list[str]]:
    """Return the first lines of the header, which the config alone determines, and their labels.

    They are printed at once, while environments and agent are still being made. If the config has no goal, the
    environment may have one, which is not known yet: then only the budget is printed.
    """
    budget = ("goal", goal_text(config.spec.goal, config.max_timesteps))
    if config.spec.goal is None:
        budget = ("budget", f"{config.max_timesteps:,} env steps")
    facts = [budget, ("agent", agent_text(config.algo_id, *(seeds or (config.seed,))))]
    return _block(Text(f"{config.env_id}:{config.variant}", "bold"), facts), [label for label, _ in facts]


def goal_text(goal: float | None, max_timesteps: int | None) -> str:
    """Return `475 within 100,000 env steps`; without the budget if `max_timesteps` is None."""
    text = "none" if goal is None else plain(goal)
    return text if max_timesteps is None else f"{text} within {max_timesteps:,} env steps"


def agent_text(algo_id: str, *seeds: int) -> str:
    return f"{algo_id}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def closing_facts(outcome: Outcome) -> Facts:
    """Return the result, its cost and the run's folder as (label, text); empty texts are left out."""
    speed = f", {outcome.env_steps / outcome.seconds:,.0f} steps/s" if outcome.seconds > 0 else ""
    goal = optional(outcome.goal, plain)
    best = optional(outcome.val_best, score)
    result_facts = [
        ("best", f"evaluation {best}{goal and f', goal {goal}'}" if best else ""),
        ("test", outcome.test_words()),
        ("goal", "" if best else goal),
        ("dreams", dreams.words(outcome.dreams)),
        ("spent", f"{outcome.env_steps:,} env steps in {duration(outcome.seconds)}{speed}"),
        ("time", phases_text(outcome.phases)),
        ("run", outcome.run_path),
    ]
    return [fact for fact in result_facts if fact[1]]


def closing_block(outcome: Outcome, ascii_only: bool) -> Text:
    """Return the lines printed at the end: the verdict, then closing_facts."""
    style = {"solved": "bold green", "not solved": "bold yellow"}.get(outcome.verdict, "bold")
    result_facts = closing_facts(outcome)
    if ascii_only:
        result_facts = [(label, text.replace("±", "+-")) for label, text in result_facts]
    return _block(Text.assemble((outcome.verdict_words, style), outcome.why and f": {outcome.why}"), result_facts)


def next_block(commands: Sequence[str]) -> Text:
    """Return the lines with the commands to type next."""
    block = Text(INDENT + "next", "dim")
    for command in commands:
        block.append(f"\n{INDENT}{INDENT}{command}", "cyan")
    return block


def _block(title: Text, facts: Facts) -> Text:
    return Text(INDENT).append_text(title).append("\n").append_text(fact_lines(facts))


def fact_lines(facts: Facts) -> Text:
    return Text("\n").join(Text(INDENT).append(f"{label:<{LABEL}}", "dim").append(text) for label, text in facts)


def plain_line(view: RunView) -> str:
    """Return one line of ASCII for pipes and CI logs: `  5,000 steps   50%  return 21.3 (best 30.1)  left 1:02`."""
    parts = [f"{view.env_steps:>{len(f'{view.budget:,}')},} steps", f"{view.percent:>4}"]
    if math.isfinite(view.train.last):
        parts.append(f"return {score(view.train.last)} (best {score(view.train.best)})")
    if math.isfinite(view.val.last):
        goal = "" if view.goal is None else f" / goal {plain(view.goal)}"
        parts.append(f"evaluation {score(view.val.last)}{goal}")
    if math.isfinite(view.rate):
        parts.append(f"{view.rate:,.0f} steps/s")
    if math.isfinite(view.left):
        parts.append(f"left {duration(view.left)}")
    if view.doing:
        parts.append(view.doing)
    return INDENT + "  ".join(parts)
