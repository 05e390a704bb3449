"""A run on the monitor's screen: where it stands, a table of its metrics, and beside it curves where there is room."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.text import Text

from stride.config.metric_order import arranged
from stride.config.metrics import Metric
from stride.report.monitor.machine import Gpu, Use
from stride.report.monitor.watched import Look, Points
from stride.report.run_view import MetricRow, RunView, metric_row
from stride.report.terminal import (
    INDENT,
    Page,
    alert_lines,
    at_right,
    clean,
    curve_lines,
    drawable,
    folded,
    line_of,
    metric_table,
    progress_lines,
)
from stride.runstore.history import TAIL, TRAIN, VAL, Alert
from stride.runstore.outcome import phases_text

VERY_WIDE = 140  # columns from which there is room for curves
BESIDE = 104  # columns of the table beside them
TALLEST = 34  # lines of all curves
STYLES = {"live": "bold cyan", "silent": "bold yellow", "halted": "bold yellow", "paused": "bold yellow",
          "interrupted": "bold yellow",
          "failed": "bold red", "dead": "bold red", "damaged": "bold red", "finished": "bold green",
          "solved": "bold green", "not solved": "bold yellow"}  # fmt: skip
SORTS = ("area", "name", "change")


class Shown(NamedTuple):
    """All that a screen of a run is made of."""

    look: Look
    points: Callable[[str], Points]
    alerts: Sequence[Alert] = ()
    """those that are open"""
    band: str = ""
    other: str = ""
    """settings in which this run is not as the seeds of the band"""
    use: Use | None = None
    gpus: Sequence[Gpu] = ()
    sort: str = "area"
    first: int = 0
    """of the table's lines that is shown"""
    place: str = ""
    """which of the live runs: 2 of 3"""
    frozen: bool = False


def run_page(shown: Shown, page: Page) -> list[Text]:
    """All of it, but for the line of keys."""
    view = view_of(shown)
    lines = [*head(shown, view, page), line_of()]
    below = alert_lines(view.alerts, page, max(1, page.height // 6))[: max(1, page.height // 6)]
    room = max(0, page.height - len(lines) - len(below))
    curves = beside(shown, page._replace(width=page.width - BESIDE - 2, height=min(room, TALLEST)))
    width = BESIDE if curves else page.width
    rows = table(shown, page._replace(width=width, height=room))
    for place in range(max(len(rows), len(curves))):
        row = rows[place] if place < len(rows) else line_of()
        if place < len(curves):
            row.append(" " * (width + 2 - row.cell_len)).append_text(curves[place])
        lines.append(row)
    return [*lines[: page.height - len(below)], *below]


def view_of(shown: Shown) -> RunView:
    """The run as all renderers know it, without the rows of its table: only those on the screen are read."""
    look = shown.look
    return RunView(
        title=look.title,
        env_steps=look.env_steps,
        budget=look.budget,
        goal=look.goal,
        val=look.val,
        train=look.train,
        elapsed=look.elapsed,
        left=look.left,
        rate=look.rate,
        mean_rate=look.mean_rate,
        doing=f"{look.doing} under way" if look.doing else "",
        is_over=not look.trains,
        alerts=shown.alerts,
    )


def head(shown: Shown, view: RunView, page: Page) -> list[Text]:
    """What the run is, how far it is and how well it does."""
    look = shown.look
    seed = f"  seed {look.seed}" if look.seed is not None else ""
    title = line_of().append(INDENT + clean(view.title), "bold").append(f"  {clean(look.algorithm)}{seed}", "dim")
    state = Text(look.state + (", frozen display" if shown.frozen else ""), STYLES.get(look.state, "bold"))
    state = Text().append_text(state).append(f"  {shown.place}" if shown.place else "", "dim")
    lines = [
        at_right(title, state, page),
        line_of(INDENT + clean(look.id), "dim"),
        *progress_lines(view.steps(), view.toward_goal(), page),
        *folded("speed", ", ".join(view.clock), page),
        *folded("time", phases_text(look.phases), page),
    ]
    band = folded("band", shown.band, page)
    if band and band[-1].cell_len + len(shown.other) <= page.width:
        band[-1].append(shown.other, "dim")
    return [
        *lines,
        *band,
        *folded("machine", machine_words(shown.use, shown.gpus), page),
        *folded("now", clean(view.doing), page),
        *folded("says", clean(look.said, 300), page),
    ]


def machine_words(use: Use | None, gpus: Sequence[Gpu]) -> str:
    """`cpu 98 %, memory 0.4 of 7.7 GiB; gpu 45 %, 3.1 of 80.0 GiB`; cpu is of one core."""
    cpu = f"cpu {use.cpu:.0f} %, " if use and use.cpu is not None else ""
    own = [f"{cpu}memory {_gigabytes(use.memory, use.of)}"] if use else []
    return "; ".join([*own, *(f"gpu {gpu.busy} %, {_gigabytes(gpu.used, gpu.total)}" for gpu in gpus)])


def _gigabytes(used: int, of: int) -> str:
    own = f"{used / 2**30:.1f}" if used >= 2**30 else f"{used / 2**20:.0f} MiB"
    return f"{own} of {of / 2**30:.1f} GiB"


def table(shown: Shown, page: Page) -> list[Text]:
    """The metrics that have a value; of more than there is room for a part, and how many others."""
    metrics = ordered(shown)
    if not metrics:
        return [line_of(f"{INDENT}no row yet", "dim")][: page.height]
    first, last = 0, len(metrics)
    if len(metrics) > page.height:
        first = max(0, min(shown.first, len(metrics) - page.height + 1))
        last = max(first, first + page.height - 1)
    counts = {"above": first, "below": len(metrics) - last}
    hidden = ", ".join(f"{count} more {where}" for where, count in counts.items() if count)
    rows = [_row(shown, metric) for metric in metrics[first:last]]
    return metric_table(rows, page, hidden)[: max(0, page.height)]


def _row(shown: Shown, metric: Metric) -> MetricRow:
    tail = [value for _, value in shown.points(metric.name)[-TAIL:]]
    return metric_row(metric, shown.look.values[metric.name], tail, shown.alerts)


def ordered(shown: Shown) -> list[Metric]:
    """All metrics that have a value, as the person wants them sorted."""
    metrics = arranged(shown.look.values)
    if shown.sort == "name":
        return sorted(metrics, key=lambda metric: metric.title.casefold())
    if shown.sort == "change":
        alarming = {alert.name for alert in shown.alerts}
        return sorted(metrics, key=lambda metric: (metric.name not in alarming, -_moved(shown.points(metric.name))))
    return metrics


def _moved(points: Points) -> float:
    """How far the last value lies from the one before, beside all that there were."""
    values = [value for _, value in points if math.isfinite(value)]
    spread = max(values) - min(values) if values else 0.0
    return abs(values[-1] - values[-2]) / spread if len(values) > 1 and spread > 0 else 0.0


def beside(shown: Shown, page: Page) -> list[Text]:
    """The curves of both returns, where there is room and something to draw."""
    if page.width < VERY_WIDE - BESIDE - 2 or page.ascii_only:
        return []
    curves = {"evaluations": drawable(shown.points(VAL)), "returns of training": drawable(shown.points(TRAIN))}
    return curve_lines({title: points for title, points in curves.items() if points}, page)
