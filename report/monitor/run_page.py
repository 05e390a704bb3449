"""Draw one run on the monitor's screen: progress, a table of metrics, and beside it curves if the screen is wide."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.text import Text

from stride.config.metrics import Metric, arranged
from stride.report.monitor.machine import Gpu, Use
from stride.report.monitor.watched_run import Points, WatchedView
from stride.report.run_view import metric_row
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
from stride.runstore.history import TAIL, TRAIN, VAL
from stride.runstore.metrics_table import NAMES
from stride.runstore.outcome import phases_text

VERY_WIDE = 140  # columns from which on there is space for curves
TABLE_WIDTH = 104  # columns of the table beside curves
MAX_CURVES = 34  # lines of both curves together
CYAN, YELLOW, RED, GREEN = "bold cyan", "bold yellow", "bold red", "bold green"
STYLES = {"live": CYAN, "silent": YELLOW, "halted": YELLOW, "paused": YELLOW, "interrupted": YELLOW, "failed": RED,
          "dead": RED, "damaged": RED, "finished": GREEN, "solved": GREEN, "not solved": YELLOW}  # fmt: skip
SORTS = ("area", "name", "change")


class RunScreen(NamedTuple):
    """Everything that the screen of a run shows."""

    view: WatchedView
    points: Callable[[str], Points]
    """returns the curve of a metric by its name"""
    band: tuple[str, str] = ("", "")
    """the rank among shipped seeds, and the settings in which the run differs from them"""
    use: Use | None = None
    """memory and CPU of the process; None if it has ended, or before it was measured"""
    gpus: Sequence[Gpu] = ()
    sort: str = "area"
    """one of SORTS"""
    first: int = 0
    """index of the first line of the table that is shown, after scrolling"""
    position: str = ""
    """position among the runs in training: 2 of 3"""
    frozen: bool = False


def run_page(screen: RunScreen, page: Page) -> list[Text]:
    """Draw all lines but the line of keys."""
    screen_lines = [*head(screen, page), line_of()]
    most_alerts = max(1, page.height // 6)
    alerts = alert_lines(screen.view.alerts, page, most_alerts)[:most_alerts]
    height = max(0, page.height - len(screen_lines) - len(alerts))
    curves = curves_beside(screen, page._replace(width=page.width - TABLE_WIDTH - 2, height=min(height, MAX_CURVES)))
    width = TABLE_WIDTH if curves else page.width
    rows = table(screen, page._replace(width=width, height=height))
    rows += [line_of() for _ in range(len(curves) - len(rows))]
    for metric_line, curve in zip(rows, curves, strict=False):
        metric_line.append(" " * (width + 2 - metric_line.cell_len)).append_text(curve)
    screen_lines += rows
    return [*screen_lines[: page.height - len(alerts)], *alerts]


def head(screen: RunScreen, page: Page) -> list[Text]:
    """Draw the lines above the table: the run's name and state, progress, speed, machine, messages."""
    view = screen.view
    seed = f"  seed {view.seed}" if view.seed is not None else ""
    title = line_of().append(INDENT + clean(view.title), "bold").append(f"  {clean(view.algorithm)}{seed}", "dim")
    state_text = f"{view.state}, frozen display" if screen.frozen else view.state
    state = Text().append(state_text, STYLES.get(view.state, "bold"))
    if screen.position:
        state.append(f"  {screen.position}", "dim")
    rank, other_settings = screen.band
    band = folded("band", rank, page)
    if band and band[-1].cell_len + len(other_settings) <= page.width:
        band[-1].append(other_settings, "dim")
    return [
        at_right(title, state, page),
        line_of(INDENT + clean(view.id), "dim"),
        *progress_lines(view.steps(), view.toward_goal(), page),
        *folded("speed", ", ".join(view.clock), page),
        *folded("time", phases_text(view.phases), page),
        *band,
        *folded("machine", machine_text(screen.use, screen.gpus), page),
        *folded("now", clean(view.doing), page),
        *folded("says", clean(view.message, 300), page),
    ]


def machine_text(use: Use | None, gpus: Sequence[Gpu]) -> str:
    """Return `cpu 98 %, memory 0.4 of 7.7 GiB; gpu 45 %, 3.1 of 80.0 GiB`; 100 % of cpu are one core."""
    parts = [f"gpu {gpu.busy} %, {_gigabytes(gpu.used, gpu.total)}" for gpu in gpus]
    if use:
        cpu = f"cpu {use.cpu:.0f} %, " if use.cpu is not None else ""
        parts.insert(0, f"{cpu}memory {_gigabytes(use.memory, use.available)}")
    return "; ".join(parts)


def _gigabytes(used: int, total: int) -> str:
    used_text = f"{used / 2**30:.1f}" if used >= 2**30 else f"{used / 2**20:.0f} MiB"
    return f"{used_text} of {total / 2**30:.1f} GiB"


def table(screen: RunScreen, page: Page) -> list[Text]:
    """Draw the metrics that have a value; on a page that is too low a part of them, and the number of the others."""
    metrics = ordered_metrics(screen)
    if not metrics:
        return [line_of(f"{INDENT}no row yet", "dim")][: page.height]
    count = len(metrics)
    first = 0
    last = count
    hidden = []
    if count > page.height:
        first = max(0, min(screen.first, count - page.height + 1))
        last = max(first, first + page.height - 1)
    if first:
        hidden.append(f"{first} more above")
    if last < count:
        hidden.append(f"{count - last} more below")
    rows = []
    for metric in metrics[first:last]:  # only those on the screen are read
        tail = [value for _, value in screen.points(metric.name)[-TAIL:]]
        rows.append(metric_row(metric, screen.view.values[metric.name], tail, screen.view.alerts))
    return metric_table(rows, page, ", ".join(hidden))[: page.height]


def ordered_metrics(screen: RunScreen) -> list[Metric]:
    """Return all metrics that have a value, in the order `screen.sort`.

    "change": alarming metrics first, then those that changed most.
    """
    metrics = arranged(screen.view.values)
    if screen.sort == "name":
        metrics.sort(key=lambda metric: metric.title.casefold())
    if screen.sort == "change":
        alarming = {alert.name for alert in screen.view.alerts}
        metrics.sort(key=lambda metric: (metric.name not in alarming, -_relative_change(screen.points(metric.name))))
    return metrics


def _relative_change(points: Points) -> float:
    """Return the size of the last change as a fraction of the range of all values."""
    values = [value for _, value in points if math.isfinite(value)]
    spread = max(values) - min(values) if values else 0.0
    return abs(values[-1] - values[-2]) / spread if len(values) > 1 and spread > 0 else 0.0


def curves_beside(screen: RunScreen, page: Page) -> list[Text]:
    """Draw the curves of evaluations and training returns; [] without space, or without points."""
    if page.width < VERY_WIDE - TABLE_WIDTH - 2 or page.ascii_only:
        return []
    curves = {NAMES["val"]: drawable(screen.points(VAL)), NAMES["train"]: drawable(screen.points(TRAIN))}
    return curve_lines({title: points for title, points in curves.items() if points}, page)
