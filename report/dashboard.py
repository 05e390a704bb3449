"""The look of the console: pure functions from a History, a Header or an Outcome to rich Text.

Columns are set by hand: a table of twenty rows is drawn four times a second next to the training and must stay cheap.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple

from rich.text import Text

from config.metrics import Metric
from config.schema import Config
from runstore.alerts import Alert, counted
from runstore.dreams import words
from runstore.history import TAIL, History, Series
from runstore.outcome import Header, Outcome
from runstore.phases import told
from utils.typography import bar, duration, number, plain, score, sparkline

ABOVE = {"train/time/seconds"}  # like the clock: it stands above the table
ORDER = ("val", "test", "train")
AREAS = ("roll", "loss", "policy", "value", "time")
GROUP, VALUE, UNIT, CHANGE = 8, 11, 8, 10  # widths of columns
WIDE = 100  # from here on there is room for units and for everything about the clock in one line
INDENT = "  "
SHORTEST = 8  # of a bar
SPARK = 6  # cells of a sparkline that words beside it leave
MOST_ALERTS, MOST_TOLD = 3, 8  # alerts below the table; at the end


class Page(NamedTuple):
    """Where is drawn."""

    width: int
    height: int
    ascii_only: bool


def shown_metrics(metrics: Sequence[Metric]) -> list[Metric]:
    """Those of the table, grouped: what decides comes first, evaluation and test; then training's areas in order."""

    def place(metric: Metric) -> tuple[int, int, str]:
        group = _group(metric)
        return ORDER.index(metric.name.split("/")[0]), AREAS.index(group) if group in AREAS else len(AREAS), group

    return sorted((one for one in metrics if one.table and _group(one) != "clock" and one.name not in ABOVE), key=place)


def _group(metric: Metric) -> str:
    stage, area = metric.name.split("/")[:2]
    return area if stage == "train" else stage


def table(history: History, metrics: Sequence[Metric], page: Page) -> list[Text]:
    """A line per metric that has a value; as many as the page holds."""
    rows = [(metric, history.series[metric.name]) for metric in metrics if history.series[metric.name].values]
    title_width = min(28, max((len(metric.title) for metric, _ in rows), default=0))
    lines, group = [], ""
    for metric, series in rows:
        shown = "" if _group(metric) == group else _group(metric)
        lines.append(_row(metric, series, shown, title_width, page, history.alerts.values()))
        group = _group(metric)
    if len(lines) > page.height:
        hidden = len(lines) - page.height + 1
        lines = [*lines[: page.height - 1], Text(f"{INDENT}{hidden} more in metrics.csv", "dim")]
    return lines


def _row(metric: Metric, series: Series, group: str, title_width: int, page: Page, alerts: Iterable[Alert]) -> Text:
    """group, title, value, change, sparkline; the unit where the page is wide enough."""
    series.show()
    outside = _outside(metric, series.shown, alerts)
    line = Text(INDENT, no_wrap=True, overflow="crop")
    line.append(f"{group:<{GROUP}}", "dim")
    line.append(f"{metric.title[:title_width]:<{title_width}}", "bold" if metric.highlight else "")
    value = number(series.shown, metric.precision)
    line.append(f"{'! ' + value if outside else value:>{VALUE}}", "bold yellow" if outside else "bold")
    if page.width >= WIDE:
        line.append(f" {_unit(metric, page.ascii_only):<{UNIT}}"[: UNIT + 1], "dim")
    line.append_text(_change(metric, series, page.ascii_only))
    # in cells of the terminal: two blanks before the sparkline, and the last column stays free, or some terminals wrap
    room = page.width - line.cell_len - 3
    words = outside if room - len(outside) - 2 >= SPARK else ""  # what does not fit stands below the table
    cells = max(0, min(TAIL, room - len(words) - 2 if words else room))
    line.append(f"  {sparkline(series.values, cells, page.ascii_only):<{cells}}", "cyan")
    if words:
        line.append(f"  {words}", "yellow")
    line.truncate(page.width - 1)
    return line


def _unit(metric: Metric, ascii_only: bool) -> str:
    unit = "" if metric.unit == "none" else metric.unit
    return unit.encode("ascii", "replace").decode() if ascii_only else unit


def _change(metric: Metric, series: Series, ascii_only: bool) -> Text:
    """An arrow and the difference, green when it is for the better; blank when it rounds to nothing."""
    change = series.shown - series.before
    size = number(abs(change), metric.precision)
    if not math.isfinite(change) or abs(change) < 0.5 * 10.0**-metric.precision:
        return Text(" " * (CHANGE + 2))
    up, down = ("+", "-") if ascii_only else ("▲", "▼")
    style = "dim" if metric.better is None else "green" if (metric.better == "up") == (change > 0) else "red"
    return Text(f"  {up if change > 0 else down} {size:<{CHANGE - 2}}", style)


def _outside(metric: Metric, value: float, alerts: Iterable[Alert]) -> str:
    """What is alarming about it, in words."""
    if not math.isfinite(value):
        return "" if metric.nan else "not a number"
    return next((alert.bound for alert in alerts if alert.name == metric.name), "")


def open_alerts(history: History, page: Page) -> list[Text]:
    """Below the table a line for each alert that is open: what is outside, and what to try."""
    lines = []
    for alert in history.alerts.values():
        line = Text(f"{INDENT}! ", "bold yellow", no_wrap=True, overflow="crop")
        line.append(f"{alert.title} {alert.bound}", "yellow").append(f"  {alert.tip}", "dim")
        if len(line) > page.width - 1:
            line.truncate(page.width - 4)
            line.append("...", "dim")
        lines.append(line)
    return [
        *lines[:MOST_ALERTS],
        *([Text(f"{INDENT}! and {len(lines) - MOST_ALERTS} more", "yellow")] if len(lines) > MOST_ALERTS else []),
    ]


def recap(alerts: Sequence[Alert], report: str, width: int | None = None) -> list[Text]:
    """At the end: how many, then what each was and what to try; folded where there is a width."""
    lines = [(0, counted(alerts), "bold yellow")] if alerts else []
    for alert in alerts[:MOST_TOLD]:
        lines += [(1, alert.sentence(), "yellow"), (2, f"{alert.means} {alert.tip}", "dim")]
    if len(alerts) > MOST_TOLD:
        lines.append((1, f"and {len(alerts) - MOST_TOLD} more in {report}", ""))
    found = []
    for depth, line, style in lines:
        indent = INDENT * (depth + 1)
        folded = wrap(line, max(20, width - len(indent) - 1)) if width else [line]
        found += [Text(f"{indent}{part}", style) for part in folded]
    return found


def head(history: History, max_timesteps: int, goal: float | None, elapsed: float, page: Page) -> list[Text]:
    """The bar of the budget and, below it and as long, the bar of the goal; the clock where there is room."""
    done = min(1.0, history.env_steps / max(1, max_timesteps))
    budget = f"{100 * done:.0f}%  {history.env_steps:,} / {max_timesteps:,}"
    rate = "" if math.isnan(history.rate) else f"   {history.rate:,.0f} steps/s"
    clock = f"{duration(elapsed)}   left {duration(history.seconds_left(max_timesteps, elapsed))}{rate}"
    beside = f"   {clock}" if page.width >= WIDE else ""
    room = page.width - len(INDENT) - GROUP - 3
    standing = next(text for text in _standing(history, goal) if text.cell_len + SHORTEST <= room or not text.plain)
    length = max(SHORTEST, min(40, room - len(budget) - len(beside), room - standing.cell_len))
    steps = _bar_line("steps", done, length, "cyan", page).append(budget, "bold").append(beside, "dim")
    if goal is None or math.isnan(history.val.last):
        against = Text(f"{INDENT}{'goal':<{GROUP}}", "dim")
    else:
        reached = history.val.last >= goal
        against = _bar_line("goal", history.val.toward(goal), length, "green" if reached else "magenta", page)
    below = [] if beside else [Text(f"{INDENT}{'time':<{GROUP}}{clock}", "dim")]
    now = [Text(f"{INDENT}{'now':<{GROUP}}{history.now()}", "dim")] if history.now() else []
    return [steps, against.append_text(standing), *below, *now]


def _standing(history: History, goal: float | None) -> Iterator[Text]:
    """The last evaluation against the goal and the best one, in fewer and fewer words."""
    val = history.val
    words = "none" if goal is None else plain(goal)
    if math.isnan(val.last):
        yield Text(f"{words}, no evaluation yet", "dim")
        yield Text(words, "dim")
    else:
        reached = goal is not None and val.last >= goal
        text = Text(f"val {score(val.last)}", "bold green" if reached else "bold magenta")
        text.append("" if goal is None else f" / {words}")
        at = f" at {val.best_at:,}" if val.best_at else ""
        for more in (f"   best {score(val.best)}{at}", f"   best {score(val.best)}", ""):
            yield text.copy().append(more, "dim")
    yield Text()


def _bar_line(label: str, fraction: float, length: int, style: str, page: Page) -> Text:
    done, rest = bar(fraction, length, page.ascii_only)
    line = Text(f"{INDENT}{label:<{GROUP}}", no_wrap=True, overflow="crop")
    return line.append(done, style).append(rest, "dim").append("  ")


def header_block(header: Header, told: Collection[str] = ()) -> Text:
    """The lines above a training, but for those that stand there already: `told` are their labels."""
    facts = [fact for fact in header_facts(header, "budget" in told) if fact[0] not in told]
    return fact_lines(facts) if told else _block(Text(header.config_id, "bold"), facts)


def header_facts(header: Header, budget_told: bool = False) -> list[tuple[str, str]]:
    """What is known before it, each with its label."""
    why = f" ({header.engine_why})" if header.engine_why else ""
    return [
        ("goal", goal_words(header.goal, None if budget_told else header.max_timesteps)),
        ("agent", agent_words(header.algo_id, header.seed)),
        *([("general", header.settings)] if header.settings else []),
        ("engine", f"{header.engine}{why}, {header.device}, {header.parameters:,} parameters"),
        ("threads", f"{header.threads}{f' ({header.threads_why})' if header.threads_why else ''}"),
        ("worlds", f"{header.n_envs}, {header.env_backend} ({header.env_backend_why})"),
        *([("workers", f"{header.workers} ({header.workers_why})")] if header.workers_why else []),
        *([("plateau", header.plateau)] if header.plateau else []),
        ("run", header.run_path),
    ]


def opening_block(config: Config, seeds: Sequence[int]) -> tuple[Text, list[str]]:
    """The first lines of it, of what a config alone says, and their labels; whether its environment has a goal where
    the config names none is not known yet.
    """
    budget = ("goal", goal_words(config.spec.goal, config.max_timesteps))
    if config.spec.goal is None:
        budget = ("budget", f"{config.max_timesteps:,} env steps")
    facts = [budget, ("agent", agent_words(config.algo_id, *(seeds or (config.seed,))))]
    return _block(Text(f"{config.env_id}:{config.variant}", "bold"), facts), [label for label, _ in facts]


def goal_words(goal: float | None, max_timesteps: int | None) -> str:
    """The goal, within a budget where that was not said before."""
    words = "none" if goal is None else plain(goal)
    return words if max_timesteps is None else f"{words} within {max_timesteps:,} env steps"


def agent_words(algo_id: str, *seeds: int) -> str:
    return f"{algo_id}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def closing_block(outcome: Outcome, next_commands: Sequence[str], ascii_only: bool) -> Text:
    """The result, what it took, where it lies and what to type next."""
    style = {"solved": "bold green", "not solved": "bold yellow"}.get(outcome.verdict, "bold")
    speed = f", {outcome.env_steps / outcome.seconds:,.0f} steps/s" if outcome.seconds > 0 else ""
    against = "" if outcome.goal is None else f", goal {plain(outcome.goal)}"
    facts = [
        ("val", "" if outcome.val_best is None else f"best {score(outcome.val_best)}{against}"),
        ("test", outcome.test_words().replace("±", "+-" if ascii_only else "±")),
        ("goal", plain(outcome.goal) if outcome.goal is not None and outcome.val_best is None else ""),
        ("dreams", words(outcome.dreams)),
        ("spent", f"{outcome.env_steps:,} env steps in {duration(outcome.seconds)}{speed}"),
        ("time", told(outcome.phases)),
        ("run", outcome.run_path),
    ]
    title = Text.assemble((outcome.verdict_words, style), f": {outcome.why}" if outcome.why else "")
    block = _block(title, [fact for fact in facts if fact[1]])
    if next_commands:
        block.append("\n\n" + INDENT + "next", "dim")
    for command in next_commands:
        block.append(f"\n{INDENT}{INDENT}{command}", "cyan")
    return block


def _block(title: Text, facts: Sequence[tuple[str, str]]) -> Text:
    return Text(INDENT).append_text(title).append("\n").append_text(fact_lines(facts))


def fact_lines(facts: Sequence[tuple[str, str]]) -> Text:
    return Text("\n").join(Text(INDENT).append(f"{label:<{GROUP}}", "dim").append(words) for label, words in facts)


def plain_line(history: History, max_timesteps: int, goal: float | None, elapsed: float) -> str:
    """One line of plain ASCII for pipes and CI logs."""
    parts = [f"{history.env_steps:>{len(f'{max_timesteps:,}')},} steps"]
    parts.append(f"{100 * min(1.0, history.env_steps / max(1, max_timesteps)):3.0f}%")
    if not math.isnan(history.train.last):
        parts.append(f"ep_rew {score(history.train.last)} (best {score(history.train.best)})")
    if not math.isnan(history.val.last):
        against = "" if goal is None else f" / goal {plain(goal)}"
        parts.append(f"val {score(history.val.last)}{against}")
    if not math.isnan(history.rate):
        parts.append(f"{history.rate:,.0f} steps/s")
    parts.append(f"left {duration(history.seconds_left(max_timesteps, elapsed))}")
    parts += [history.now()] if history.now() else []
    return INDENT + "  ".join(parts)
