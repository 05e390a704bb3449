"""The sink that a person reads: a live table on a terminal, plain lines in a pipe, one closing line when quiet.

Bars and tables are drawn by terminal.py, which the monitor uses, too.
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
BEAT_SECONDS = 1.0  # until it is drawn without a row
LINE_SECONDS = 5.0  # between two plain lines without an evaluation
OTHER_LINES = 15  # beside the table: the header, which stays in sight, bars and clock above, one line free
LEAST_ROWS = 5
LEAST_METRICS = 4  # lines of the table, however many alerts stand below it
SILENT_SECONDS, SILENT_FRACTION = 10.0, 0.02  # a plain line without rows: after so long, and this fraction of the run
PIPE_WIDTH = 100  # columns of an alert in a pipe
MOST_PRINTED = 3  # times that one alert is printed; then it is only counted
MOST_RECALLED = 8  # alerts that the end describes
TEST_EPISODES = "test/roll/episodes"  # in the row of the closing test

Facts = list[tuple[str, str]]  # (label, text): [("agent", "ppo, seed 1"), ("run", "runs/x")]

printed_labels: set[str] = set()  # of the header that is on the terminal before the run is made


def in_notebook() -> bool:
    """Whether this program is the kernel of a notebook, whose front end shows HTML."""
    if "ipykernel" not in sys.modules:
        return False
    from ipykernel.zmqshell import ZMQInteractiveShell
    from IPython import get_ipython

    return isinstance(get_ipython(), ZMQInteractiveShell)


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
        """Print the header; the time shown counts from here."""
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
        """The clock of the table moves; in a pipe a line, less often the longer the run has taken."""
        now = self._clock()
        silence = BEAT_SECONDS
        if not self._in_place:
            silence = max(SILENT_SECONDS, SILENT_FRACTION * (now - self._start_time))
        if not self._quiet and now - max(self._draw_time, self._start_time) >= silence:
            self._history.tick(clock, now - self._row_time, doing)
            self._draw(now)

    def alert(self, event: Event) -> None:
        """In a pipe as it begins or ends, the advice with the first time; the table marks it while it is open."""
        alert = event.alert
        self._history.note(event)
        self._alerts[alert.key] = alert
        if self._quiet or self._in_place or alert.times > MOST_PRINTED:
            return
        lines = [(INDENT, f"{event.sentence()} at {event.env_steps:,} steps", "")]
        if event.begins and alert.times == 1:
            lines.append((3 * INDENT, f"{alert.means} {alert.tip}", ""))
        for text in wrapped(lines, PIPE_WIDTH):
            self._print(text)

    def end(self, outcome: Outcome | None) -> None:
        """The last state of the table, then the result and what to type next; the cursor is given back."""
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
            page = Page(width - 1, max(LEAST_ROWS, height - OTHER_LINES), self._terminal.options.ascii_only)
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
    """Everything that is drawn again and again; the table has at most `page.height` lines, including alerts."""
    alerts = alert_lines(view.alerts, page)
    rows = view.rows
    height = max(LEAST_METRICS, page.height - len(alerts))
    hidden = ""
    if len(rows) > height:
        hidden = f"{len(rows) - height + 1} more in metrics.csv"
        rows = rows[: height - 1]
    return [*live_head(view, page), line_of(), *metric_table(rows, page, hidden), *alerts]


def live_head(view: RunView, page: Page) -> list[Text]:
    """The bar of the budget and, below it and as long, the bar of the goal; the clock where there is space."""
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
    """At the end: how many there were, then each of them and what to try."""
    if not alerts:
        return []
    lines = [(INDENT, counted(alerts), "bold yellow")]
    for alert in alerts[:MOST_RECALLED]:
        lines.append((2 * INDENT, alert.sentence(), "yellow"))
        lines.append((3 * INDENT, f"{alert.means} {alert.tip}", "dim"))
    if len(alerts) > MOST_RECALLED:
        lines.append((2 * INDENT, f"and {len(alerts) - MOST_RECALLED} more in {report}", ""))
    return wrapped(lines, width)


def wrapped(lines: Sequence[tuple[str, str, str]], width: int) -> list[Text]:
    """Lines of at most `width` columns from (indent, text, style) each."""
    texts = []
    for indent, line, style in lines:
        texts += [Text(f"{indent}{part}", style) for part in wrap(line, max(20, width - len(indent) - 1))]
    return texts


def header_block(header: Header, printed: Collection[str] = ()) -> Text:
    """The lines above a training, except those whose labels are `printed` already."""
    facts = header_facts(header, "budget" in printed)
    if printed:
        return fact_lines([fact for fact in facts if fact[0] not in printed])
    return _block(Text(header.config_id, "bold"), facts)


def header_facts(header: Header, is_budget_printed: bool = False) -> Facts:
    """Everything that is known before a training."""
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
    """The first lines of a header, as far as a config alone determines them, and their labels.

    Where the config names no goal, the environment may have one: that is not known yet.
    """
    budget = ("goal", goal_text(config.spec.goal, config.max_timesteps))
    if config.spec.goal is None:
        budget = ("budget", f"{config.max_timesteps:,} env steps")
    facts = [budget, ("agent", agent_text(config.algo_id, *(seeds or (config.seed,))))]
    return _block(Text(f"{config.env_id}:{config.variant}", "bold"), facts), [label for label, _ in facts]


def goal_text(goal: float | None, max_timesteps: int | None) -> str:
    """The goal, and its budget where that was not printed before."""
    text = "none" if goal is None else plain(goal)
    return text if max_timesteps is None else f"{text} within {max_timesteps:,} env steps"


def agent_text(algo_id: str, *seeds: int) -> str:
    return f"{algo_id}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def closing_facts(outcome: Outcome) -> Facts:
    """The result, its cost and the run's folder."""
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
    """The result, its cost and the run's folder."""
    style = {"solved": "bold green", "not solved": "bold yellow"}.get(outcome.verdict, "bold")
    result_facts = closing_facts(outcome)
    if ascii_only:
        result_facts = [(label, text.replace("±", "+-")) for label, text in result_facts]
    return _block(Text.assemble((outcome.verdict_words, style), outcome.why and f": {outcome.why}"), result_facts)


def next_block(commands: Sequence[str]) -> Text:
    """What to type next."""
    block = Text(INDENT + "next", "dim")
    for command in commands:
        block.append(f"\n{INDENT}{INDENT}{command}", "cyan")
    return block


def _block(title: Text, facts: Facts) -> Text:
    return Text(INDENT).append_text(title).append("\n").append_text(fact_lines(facts))


def fact_lines(facts: Facts) -> Text:
    return Text("\n").join(Text(INDENT).append(f"{label:<{LABEL}}", "dim").append(text) for label, text in facts)


def plain_line(view: RunView) -> str:
    """One line of plain ASCII for pipes and CI logs."""
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
