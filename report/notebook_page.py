"""The look of a run in a notebook: pure functions from what its display remembers to HTML, for pages light and dark.

Styles stand in the tags: a stylesheet of ours would be the whole notebook's, and front ends take it out of what they
did not see made. For the same reason the curve is an image, whose colours stay inside.
"""

import math
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from config.metrics import Metric
from runstore.alerts import Alert
from runstore.history import History, Series
from runstore.outcome import Header, Outcome
from runstore.phases import told
from utils.curve import Point, curve_svg
from utils.typography import duration, number, plain, score, sparkline

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


class View(NamedTuple):
    """All that is shown of a run, at one moment."""

    header: Header
    history: History
    metrics: Sequence[Metric]
    train: Sequence[Point]
    val: Sequence[Point]
    seconds: float
    outcome: Outcome | None = None
    failed: bool = False

    @property
    def is_over(self) -> bool:
        return self.failed or self.outcome is not None


def page(view: View) -> str:
    """While it trains how far it is and its numbers; afterwards what came out, the numbers folded away."""
    side = _table(view.history, view.metrics)
    if view.is_over and side:
        side = f'{_end(view)}<details style="margin:6px"><summary>last numbers</summary>{side}</details>'
    sides = f'<div style="{SIDES}">{_curve(view)}<div style="{SIDE}">{side or _end(view)}</div></div>'
    return f'<div style="{PAGE}">{_title(view)}{_bars(view)}{sides}{_alerts(view)}</div>'


def words(view: View) -> str:
    """The same as a few lines of text, for front ends that show no HTML."""
    if view.outcome is not None:
        return f"{view.header.config_id}: {view.outcome.sentence()}\nrun {view.outcome.run_path}"
    state = "failed" if view.failed else f"{view.history.env_steps:,} of {view.header.max_timesteps:,} env steps"
    last = view.history.val.last
    return f"{view.header.config_id}: {state}" + ("" if math.isnan(last) else f", val {score(last)}")


def _title(view: View) -> str:
    """The run in a line, how it ended behind it, and below what is known before it."""
    header, state = view.header, ""
    if view.is_over:
        outcome = view.outcome
        verdict = "failed" if outcome is None else outcome.verdict
        shown = "failed" if outcome is None else outcome.verdict_words
        why = f": {outcome.why}" if outcome and outcome.why else ""
        state = f' &nbsp;<b style="color:{VERDICTS.get(verdict, BLUE)}">{escape(shown)}</b>{escape(why)}'
    facts = [
        f"{header.algo_id}, seed {header.seed}",
        f"{header.engine}, {header.device}",
        f"{header.parameters:,} parameters",
        f"{header.n_envs} worlds, {header.env_backend}",
        *filter(None, [header.settings]),
    ]
    title = f'<b style="font-size:15px">{escape(header.config_id)}</b>{state}'
    return f'<div>{title}<br><span style="{FAINT}">{escape(" · ".join(facts))}</span></div>'


def _bars(view: View) -> str:
    """Budget and, where something is known of it, the goal."""
    history, header = view.history, view.header
    done = min(1.0, history.env_steps / max(1, header.max_timesteps))
    clock = duration(view.seconds)
    if not view.is_over:
        left, rate = duration(history.seconds_left(header.max_timesteps, view.seconds)), history.rate
        clock += f", left {left}" + ("" if math.isnan(rate) else f", {rate:,.0f} steps/s")
    clock += f" · {history.now()}" if history.now() and not view.is_over else ""
    lines = [_bar("steps", done, BLUE, f"{history.env_steps:,} / {header.max_timesteps:,}", clock)]
    val, goal = history.val, header.goal
    if not math.isnan(val.last):
        against = "" if goal is None else f" / {plain(goal)}"
        best = f"best {score(val.best)}" + (f" at {val.best_at:,}" if val.best_at else "")
        reached = goal is not None and val.last >= goal
        part = 0.0 if goal is None else val.toward(goal)
        lines.append(_bar("val", part, GREEN if reached else PINK, f"{score(val.last)}{against}", best))
    elif goal is not None:
        lines.append(_bar("val", 0.0, PINK, f"goal {plain(goal)}", "" if view.is_over else "no evaluation yet"))
    return f'<table style="{TABLE}">{"".join(lines)}</table>'


def _bar(label: str, part: float, colour: str, first: str, second: str) -> str:
    fill = f"display:block;height:7px;border-radius:4px;background:{colour};width:{100 * part:.1f}%"
    bar = f'<span style="{TRACK}"><span style="{fill}"></span></span>'
    cells = (
        f'<span style="{FAINT}">{label}</span>', bar, f"<b>{escape(first)}</b>",
        f'<span style="{FAINT}">{escape(second)}</span>',
    )  # fmt: skip
    return _row([(cell, "left") for cell in cells])


def _row(cells: Sequence[tuple[str, str]]) -> str:
    shown = (f'<td style="{CELL};text-align:{side}">{cell}</td>' for cell, side in cells)
    return f'<tr style="background:transparent">{"".join(shown)}</tr>'


def _curve(view: View) -> str:
    """ "" until there is a line to draw."""
    if max(len(view.train), len(view.val)) < 2:
        return ""
    title = f"{view.header.config_id}, seed {view.header.seed}"
    svg = curve_svg(title, view.train, view.val, view.header.goal)
    image = f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"
    return f'<img style="{CURVE}" alt="episode reward over env steps" src="{image}">'


def _table(history: History, metrics: Sequence[Metric]) -> str:
    """A line per metric that has a value: last value, what changed since the drawing before, and its tail."""
    alarming = {alert.name: alert.bound for alert in history.alerts.values()}
    lines = []
    for metric in metrics:
        series = history.series[metric.name]
        if not series.values:
            continue
        series.show()
        outside = alarming.get(metric.name, "")
        value = f"<b>{escape(number(series.shown, metric.precision))}</b>"
        title, tail = escape(metric.title), sparkline(series.values, CELLS)
        lines.append(
            _row(
                [
                    (f'<span title="{escape(metric.meaning)}">{title}</span>', "left"),
                    (f'<span style="color:{AMBER}">! {value}</span>' if outside else value, "right"),
                    (_change(metric, series), "left"),
                    (f'<span style="font-family:monospace;color:{BLUE}">{tail}</span>', "left"),
                ]
            )
        )
    return f'<table style="{TABLE}">{"".join(lines)}</table>' if lines else ""


def _change(metric: Metric, series: Series) -> str:
    """An arrow and the difference, green where it is for the better; nothing where it rounds to nothing."""
    change = series.shown - series.before
    if not math.isfinite(change) or abs(change) < 0.5 * 10.0**-metric.precision:
        return ""
    style = FAINT if metric.better is None else f"color:{GREEN if (metric.better == 'up') == (change > 0) else RED}"
    return f'<span style="{style}">{"▲" if change > 0 else "▼"} {number(abs(change), metric.precision)}</span>'


def _alerts(view: View) -> str:
    """What is alarming now; afterwards all that was."""
    alerts: list[Alert] = [*(view.outcome.alerts if view.outcome else view.history.alerts.values())]
    lines = [
        f'<div><b style="color:{AMBER}">! {escape(alert.title)} {escape(alert.bound)}</b> '
        f'<span style="{FAINT}">{escape(alert.tip)}</span></div>'
        for alert in alerts[:MOST_ALERTS]
    ]
    more = len(alerts) - MOST_ALERTS
    return "".join([*lines, *([f"<div>and {more} more in report.md</div>"] if more > 0 else [])])


def _end(view: View) -> str:
    """The result, what it took, where it lies and how a program gets at it."""
    outcome = view.outcome
    if outcome is None:
        return ""
    speed = f", {outcome.env_steps / outcome.seconds:,.0f} steps/s" if outcome.seconds > 0 else ""
    run = outcome.run_path.replace("\\", "/").rpartition("/")[2]
    facts = [
        ("test", f"<b>{escape(outcome.test_words())}</b>" if outcome.test_words() else ""),
        ("spent", f"{outcome.env_steps:,} env steps in {duration(outcome.seconds)}{speed}"),
        ("time", escape(told(outcome.phases))),
        ("folder", escape(outcome.run_path.removesuffix(run))),
        ("again", f'<code>stride.load("{escape(run)}")</code>'),
    ]
    lines = [_row([(f'<span style="{FAINT}">{label}</span>', "left"), (fact, "left")]) for label, fact in facts if fact]
    return f'<table style="{TABLE}">{"".join(lines)}</table>'
