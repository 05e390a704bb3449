"""What the console says around the table of a training, as rich Text: header, progress, alerts at the end, result.

A piped console gets `plain_line`. How the table and the bars look is in terminal.py, which the monitor has in common.
"""

import math
from collections.abc import Collection, Sequence
from textwrap import wrap

from rich.text import Text

from stride.config.schema import Config
from stride.report.run_view import RunView
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
from stride.runstore.dreams import words
from stride.runstore.history import Alert, counted
from stride.runstore.outcome import Header, Outcome, phases_text
from stride.utils.typography import duration, plain, score

MOST_TOLD = 8  # alerts at the end
LEAST_ROWS = 4  # of the table, however many alerts stand below it


def live_page(view: RunView, page: Page) -> list[Text]:
    """All that is drawn again and again; the table has at most `page.height` lines, alerts among them."""
    alerts = alert_lines(view.alerts, page)
    rows, room = view.rows, max(LEAST_ROWS, page.height - len(alerts))
    hidden = ""
    if len(rows) > room:
        hidden = f"{len(rows) - room + 1} more in metrics.csv"
        rows = rows[: room - 1]
    return [*live_head(view, page), line_of(), *metric_table(rows, page, hidden), *alerts]


def live_head(view: RunView, page: Page) -> list[Text]:
    """The bar of the budget and, below it and as long, the bar of the goal; the clock where there is room."""
    steps, clock = view.steps(), "   ".join(view.clock)
    if page.width >= WIDE:
        steps = steps._replace(more=[clock])
    lines = progress_lines(steps, view.toward_goal(), page)
    if page.width < WIDE:
        lines.append(labelled("time", clock, "dim"))
    if view.doing:
        lines.append(labelled("now", view.doing, "dim"))
    return lines


def recap(alerts: Sequence[Alert], report: str, width: int | None = None) -> list[Text]:
    """At the end: how many, then what each was and what to try; folded where there is a width."""
    lines = [(0, counted(alerts), "bold yellow")] if alerts else []
    for alert in alerts[:MOST_TOLD]:
        lines += [(1, alert.sentence(), "yellow"), (2, f"{alert.means} {alert.tip}", "dim")]
    if len(alerts) > MOST_TOLD:
        lines.append((1, f"and {len(alerts) - MOST_TOLD} more in {report}", ""))
    texts = []
    for depth, line, style in lines:
        indent = INDENT * (depth + 1)
        parts = wrap(line, max(20, width - len(indent) - 1)) if width else [line]
        texts += [Text(f"{indent}{part}", style) for part in parts]
    return texts


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


def closing_facts(outcome: Outcome) -> list[tuple[str, str]]:
    """What came out, what it took and where it lies, each with its label."""
    speed = f", {outcome.env_steps / outcome.seconds:,.0f} steps/s" if outcome.seconds > 0 else ""
    against = "" if outcome.goal is None else f", goal {plain(outcome.goal)}"
    facts = [
        ("val", "" if outcome.val_best is None else f"best {score(outcome.val_best)}{against}"),
        ("test", outcome.test_words()),
        ("goal", plain(outcome.goal) if outcome.goal is not None and outcome.val_best is None else ""),
        ("dreams", words(outcome.dreams)),
        ("spent", f"{outcome.env_steps:,} env steps in {duration(outcome.seconds)}{speed}"),
        ("time", phases_text(outcome.phases)),
        ("run", outcome.run_path),
    ]
    return [fact for fact in facts if fact[1]]


def closing_block(outcome: Outcome, next_commands: Sequence[str], ascii_only: bool) -> Text:
    """The result, what it took, where it lies and what to type next."""
    style = {"solved": "bold green", "not solved": "bold yellow"}.get(outcome.verdict, "bold")
    facts = [(label, fact.replace("±", "+-") if ascii_only else fact) for label, fact in closing_facts(outcome)]
    title = Text.assemble((outcome.verdict_words, style), f": {outcome.why}" if outcome.why else "")
    block = _block(title, facts)
    if next_commands:
        block.append("\n\n" + INDENT + "next", "dim")
    for command in next_commands:
        block.append(f"\n{INDENT}{INDENT}{command}", "cyan")
    return block


def _block(title: Text, facts: Sequence[tuple[str, str]]) -> Text:
    return Text(INDENT).append_text(title).append("\n").append_text(fact_lines(facts))


def fact_lines(facts: Sequence[tuple[str, str]]) -> Text:
    return Text("\n").join(Text(INDENT).append(f"{label:<{LABEL}}", "dim").append(words) for label, words in facts)


def plain_line(view: RunView) -> str:
    """One line of plain ASCII for pipes and CI logs."""
    parts = [f"{view.env_steps:>{len(f'{view.budget:,}')},} steps"]
    parts.append(f"{view.percent:>4}")
    if math.isfinite(view.train.last):
        parts.append(f"ep_rew {score(view.train.last)} (best {score(view.train.best)})")
    if math.isfinite(view.val.last):
        against = "" if view.goal is None else f" / goal {plain(view.goal)}"
        parts.append(f"val {score(view.val.last)}{against}")
    if math.isfinite(view.rate):
        parts.append(f"{view.rate:,.0f} steps/s")
    parts.append(f"left {duration(view.left)}")
    parts += [view.doing] if view.doing else []
    return INDENT + "  ".join(parts)
