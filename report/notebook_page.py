"""The look of a run in a notebook: pure functions from a RunView to HTML, for pages light and dark.

Styles stand in the tags: a stylesheet of ours would be the whole notebook's, and front ends take it out of what they
did not see made. For the same reason the curve is an image, whose colours stay inside.
"""

import math
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from stride.report.dashboard import closing_facts
from stride.report.run_view import MetricRow, Progress, RunView
from stride.runstore.outcome import Header, Outcome
from stride.utils.curve import Point, curve_svg
from stride.utils.typography import score, sparkline

PAGE = "max-width:1080px;margin:4px 0;font:13px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif"
SIDES = "display:flex;flex-wrap:wrap;gap:4px 24px;align-items:flex-start"
CURVE = "flex:1 1 380px;min-width:0;max-width:620px;height:auto;margin:6px 0"
SIDE = "flex:0 1 auto;min-width:0"
TABLE = "margin:6px 0;border-collapse:collapse;border:0;font:inherit;color:inherit;font-variant-numeric:tabular-nums"
CELL = "padding:1px 7px;border:0;background:transparent;white-space:nowrap"
TRACK = "display:inline-block;width:220px;height:7px;border-radius:4px;background:rgba(140,149,159,.3)"
FAINT, BLUE, PINK, GREEN, RED, AMBER = "opacity:.65", "#54aeff", "#d6409f", "#2da44e", "#e5484d", "#d4a72c"
# readable on white and on black alike; what a run ended as, by its verdict
VERDICTS = {"solved": GREEN, "not solved": AMBER, "failed": RED, "interrupted": AMBER}
CELLS = 16  # of a sparkline
MOST_ALERTS = 4


class Display(NamedTuple):
    """All that is shown of a run, at one moment."""

    header: Header
    run: RunView
    train: Sequence[Point]
    val: Sequence[Point]
    outcome: Outcome | None = None


def page(display: Display) -> str:
    """While it trains how far it is and its numbers; afterwards what came out, the numbers folded away."""
    end, side = _end(display.outcome), _metric_table(display.run.rows)
    if display.run.is_over and side:
        side = f'{end}<details style="margin:6px"><summary>last numbers</summary>{side}</details>'
    sides = f'<div style="{SIDES}">{_curve(display)}<div style="{SIDE}">{side or end}</div></div>'
    return f'<div style="{PAGE}">{_title(display)}{_progress(display.run)}{sides}{_alerts(display)}</div>'


def words(display: Display) -> str:
    """The same as a few lines of text, for front ends that show no HTML."""
    run, outcome = display.run, display.outcome
    if outcome is not None:
        return f"{run.title}: {outcome.sentence()}\nrun {outcome.run_path}"
    state = "failed" if run.is_over else f"{run.env_steps:,} of {run.budget:,} env steps"
    evaluated = "" if math.isnan(run.val.last) else f", val {score(run.val.last)}"
    return f"{run.title}: {state}{evaluated}"


def _title(display: Display) -> str:
    """The run in a line, how it ended behind it, and below what is known before it."""
    header, outcome, state = display.header, display.outcome, ""
    if display.run.is_over:
        verdict, verdict_words, why = "failed", "failed", ""
        if outcome is not None:
            verdict, verdict_words = outcome.verdict, outcome.verdict_words
            why = f": {outcome.why}" if outcome.why else ""
        state = f' &nbsp;<b style="color:{VERDICTS.get(verdict, BLUE)}">{escape(verdict_words)}</b>{escape(why)}'
    facts = [
        f"{header.algo_id}, seed {header.seed}",
        f"{header.engine}, {header.device}",
        f"{header.parameters:,} parameters",
        f"{header.n_envs} worlds, {header.env_backend}",
        *filter(None, [header.settings]),
    ]
    title = f'<b style="font-size:15px">{escape(display.run.title)}</b>{state}'
    return f"<div>{title}<br>{_faint(' · '.join(facts))}</div>"


def _progress(run: RunView) -> str:
    """Budget and, where something is known of it, the goal."""
    clock = ", ".join(run.clock)
    if run.doing and not run.is_over:
        clock += f" · {run.doing}"
    goal = run.toward_goal()
    lines = [_bar(run.steps(), clock, BLUE)]
    if goal:
        lines.append(_bar(goal, next(iter(goal.more), ""), GREEN if goal.reached else PINK))
    return _table(lines)


def _bar(progress: Progress, beside: str, colour: str) -> str:
    fill = f"display:block;height:7px;border-radius:4px;background:{colour};width:{100 * (progress.fraction or 0):.1f}%"
    bar = f'<span style="{TRACK}"><span style="{fill}"></span></span>'
    return _row(_faint(progress.label), bar, f"<b>{escape(progress.words)}</b>", _faint(beside))


def _curve(display: Display) -> str:
    """ "" until there is a line to draw."""
    if max(len(display.train), len(display.val)) < 2:
        return ""
    title = f"{display.run.title}, seed {display.header.seed}"
    svg = curve_svg(title, display.train, display.val, display.run.goal)
    image = f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"
    return f'<img style="{CURVE}" alt="episode reward over env steps" src="{image}">'


def _metric_table(rows: Sequence[MetricRow]) -> str:
    """A line per metric: last value, what changed since the drawing before, and its tail."""
    return _table(_metric_row(row) for row in rows) if rows else ""


def _metric_row(row: MetricRow) -> str:
    value = f"<b>{escape(row.value)}</b>"
    return _row(
        f'<span title="{escape(row.metric.meaning)}">{escape(row.metric.title)}</span>',
        f'<span style="color:{AMBER}" title="{escape(row.bound)}">! {value}</span>' if row.bound else value,
        _change(row),
        f'<span style="font-family:monospace;color:{BLUE}">{sparkline(row.tail, CELLS)}</span>',
        right=1,
    )


def _change(row: MetricRow) -> str:
    """An arrow and the difference, green where it is for the better."""
    if not row.change:
        return ""
    style = FAINT if row.good is None else f"color:{GREEN if row.good else RED}"
    return f'<span style="{style}">{"▲" if row.rises else "▼"} {row.change}</span>'


def _alerts(display: Display) -> str:
    """What is alarming now; afterwards all that was."""
    alerts = display.outcome.alerts if display.outcome else display.run.alerts
    lines = [
        f'<div><b style="color:{AMBER}">! {escape(alert.title)} {escape(alert.bound)}</b> {_faint(alert.tip)}</div>'
        for alert in alerts[:MOST_ALERTS]
    ]
    more = len(alerts) - MOST_ALERTS
    return "".join([*lines, *([f"<div>and {more} more in report.md</div>"] if more > 0 else [])])


def _end(outcome: Outcome | None) -> str:
    """The result, what it took, where it lies and how a program gets at it."""
    if outcome is None:
        return ""
    run = outcome.run_path.replace("\\", "/").rpartition("/")[2]
    lines = [_row(_faint(label), escape(fact)) for label, fact in closing_facts(outcome)]
    return _table([*lines, _row(_faint("again"), f'<code>stride.load("{escape(run)}")</code>')])


def _faint(text: str) -> str:
    return f'<span style="{FAINT}">{escape(text)}</span>'


def _table(rows: Iterable[str]) -> str:
    return f'<table style="{TABLE}">{"".join(rows)}</table>'


def _row(*cells: str, right: int = -1) -> str:
    """A row of cells of HTML; `right`: the column whose numbers stand at their right edge."""
    sides = ["right" if place == right else "left" for place in range(len(cells))]
    tags = [f'<td style="{CELL};text-align:{side}">{cell}</td>' for cell, side in zip(cells, sides, strict=True)]
    return f'<tr style="background:transparent">{"".join(tags)}</tr>'
