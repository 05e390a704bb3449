"""Draw a run in a notebook: pure functions from a RunView to HTML that fits light and dark pages.

Styles are in the tags and not in a stylesheet: that would apply to the whole notebook, and front ends remove it from
notebooks that they do not trust. For the same reason the curve is an image.
"""

import math
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from stride.report.console import closing_facts
from stride.report.run_view import MetricRow, Progress, RunView
from stride.runstore.outcome import Header, Outcome
from stride.utils.curve import Point, curve_svg
from stride.utils.typography import score, sparkline

PAGE = "max-width:1080px;margin:4px 0;font:13px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif"
COLUMNS = "display:flex;flex-wrap:wrap;gap:4px 24px;align-items:flex-start"
CURVE = "flex:1 1 380px;min-width:0;max-width:620px;height:auto;margin:6px 0"
NUMBERS = "flex:0 1 auto;min-width:0"
TABLE = "margin:6px 0;border-collapse:collapse;border:0;font:inherit;color:inherit;font-variant-numeric:tabular-nums"
CELL = "padding:1px 7px;border:0;background:transparent;white-space:nowrap"
TRACK = "display:inline-block;width:220px;height:7px;border-radius:4px;background:rgba(140,149,159,.3)"
# FAINT is a style for text on any background; the others are colours readable on white and on black
FAINT, BLUE, PINK, GREEN, RED, AMBER = "opacity:.65", "#54aeff", "#d6409f", "#2da44e", "#e5484d", "#d4a72c"
# colours by verdict
VERDICTS = {"solved": GREEN, "not solved": AMBER, "failed": RED, "interrupted": AMBER}
SPARKLINE_CELLS = 16
MAX_ALERTS = 4


class Display(NamedTuple):
    """Everything that is shown of a run at one moment."""

    header: Header
    run: RunView
    train: Sequence[Point]
    """training returns over env steps"""
    val: Sequence[Point]
    """evaluations over env steps"""
    outcome: Outcome | None = None
    """None while it trains, and after an error"""


def page(display: Display) -> str:
    """Return the HTML: progress and metrics during training; afterwards the result, with the metrics folded away."""
    result = _result(display.outcome)
    rows = display.run.rows
    numbers = _table(map(_metric_row, rows)) if rows else ""
    if display.run.is_over and numbers:
        numbers = f'{result}<details style="margin:6px"><summary>last numbers</summary>{numbers}</details>'
    columns = f'<div style="{COLUMNS}">{_curve(display)}<div style="{NUMBERS}">{numbers or result}</div></div>'
    return f'<div style="{PAGE}">{_title(display)}{_progress(display.run)}{columns}{_alerts(display)}</div>'


def plain_text(display: Display) -> str:
    """Return one or two lines of text, for front ends that cannot show HTML."""
    run = display.run
    outcome = display.outcome
    if outcome is not None:
        return f"{run.title}: {outcome.sentence()}\nrun {outcome.run_path}"
    state = "failed" if run.is_over else f"{run.env_steps:,} of {run.budget:,} env steps"
    evaluation = "" if math.isnan(run.val.last) else f", evaluation {score(run.val.last)}"
    return f"{run.title}: {state}{evaluation}"


def _title(display: Display) -> str:
    """Return a line with the run's name and result, and below it facts of the header."""
    header = display.header
    outcome = display.outcome
    title = f'<b style="font-size:15px">{escape(display.run.title)}</b>'
    if outcome is not None:
        title += f" &nbsp;{_bold(outcome.verdict_words, VERDICTS.get(outcome.verdict, BLUE))}"
        title += outcome.why and escape(f": {outcome.why}")
    elif display.run.is_over:
        title += f" &nbsp;{_bold('failed', RED)}"
    facts = [
        f"{header.algo_id}, seed {header.seed}",
        f"{header.engine}, {header.device}",
        f"{header.parameters:,} parameters",
        f"{header.n_envs} envs, {header.env_backend}",
        header.settings,
    ]
    return f"<div>{title}<br>{_faint(' · '.join(filter(None, facts)))}</div>"


def _progress(run: RunView) -> str:
    """Return the bars of the budget and, if there is one, of the goal."""
    clock = ", ".join(run.clock)
    if run.doing and not run.is_over:
        clock += f" · {run.doing}"
    rows = [_bar(run.steps(), clock, BLUE)]
    goal = run.toward_goal()
    if goal:
        rows.append(_bar(goal, goal.more[0] if goal.more else "", GREEN if goal.reached else PINK))
    return _table(rows)


def _bar(progress: Progress, addition: str, colour: str) -> str:
    """Return a row of a table: label, bar, text, and a faint addition."""
    fill = f"display:block;height:7px;border-radius:4px;background:{colour};width:{100 * (progress.fraction or 0):.1f}%"
    bar = f'<span style="{TRACK}"><span style="{fill}"></span></span>'
    return _row(_faint(progress.label), bar, f"<b>{escape(progress.words)}</b>", _faint(addition))


def _curve(display: Display) -> str:
    """Return an image of both curves; "" while they have fewer than two points."""
    if max(len(display.train), len(display.val)) < 2:
        return ""
    title = f"{display.run.title}, seed {display.header.seed}"
    svg = curve_svg(title, display.train, display.val, display.run.goal)
    image = f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"
    return f'<img style="{CURVE}" alt="return and evaluation over env steps" src="{image}">'


def _metric_row(metric_row: MetricRow) -> str:
    """Return a row of a table: title, last value, last change, sparkline."""
    value = f"<b>{escape(metric_row.value)}</b>"
    if metric_row.bound:
        value = f'<span style="color:{AMBER}" title="{escape(metric_row.bound)}">! {value}</span>'
    change = ""
    if metric_row.change:
        style = FAINT if metric_row.good is None else f"color:{GREEN if metric_row.good else RED}"
        change = f'<span style="{style}">{"▲" if metric_row.rises else "▼"} {metric_row.change}</span>'
    title = f'<span title="{escape(metric_row.metric.meaning)}">{escape(metric_row.metric.title)}</span>'
    spark = f'<span style="font-family:monospace;color:{BLUE}">{sparkline(metric_row.tail, SPARKLINE_CELLS)}</span>'
    return _row(title, value, change, spark, right_column=1)


def _alerts(display: Display) -> str:
    """Return the open alerts; at the end all alerts of the run."""
    alerts = display.outcome.alerts if display.outcome else display.run.alerts
    html = ""
    for alert in alerts[:MAX_ALERTS]:
        html += f"<div>{_bold(f'! {alert.title} {alert.bound}', AMBER)} {_faint(alert.tip)}</div>"
    if len(alerts) > MAX_ALERTS:
        html += f"<div>and {len(alerts) - MAX_ALERTS} more in report.md</div>"
    return html


def _result(outcome: Outcome | None) -> str:
    """Return a table of the result, its cost, and the Python call that loads the run."""
    if outcome is None:
        return ""
    run_id = outcome.run_path.replace("\\", "/").rpartition("/")[2]
    rows = [_row(_faint(label), escape(text)) for label, text in closing_facts(outcome)]
    rows.append(_row(_faint("again"), f'<code>stride.load("{escape(run_id)}")</code>'))
    return _table(rows)


def _bold(text: str, colour: str) -> str:
    return f'<b style="color:{colour}">{escape(text)}</b>'


def _faint(text: str) -> str:
    return f'<span style="{FAINT}">{escape(text)}</span>'


def _table(rows: Iterable[str]) -> str:
    return f'<table style="{TABLE}">{"".join(rows)}</table>'


def _row(*cells: str, right_column: int = -1) -> str:
    """Return a row of HTML cells; `right_column`: index of the column that is right-aligned."""
    html = ""
    for index, cell in enumerate(cells):
        html += f'<td style="{CELL};text-align:{"right" if index == right_column else "left"}">{cell}</td>'
    return f'<tr style="background:transparent">{html}</tr>'
