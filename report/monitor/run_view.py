"""A run on the screen: where it stands, a table of its metrics, and beside it the curve where there is room."""

import math
from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import NamedTuple

from report.monitor.faces import Face, arranged
from report.monitor.lines import Line, clean
from report.monitor.machine import Gpu, Use
from report.monitor.watched import Look, Points
from runstore.history import TRAIN, VAL
from runstore.phases import told
from utils.typography import area_chart, bar, duration, number, plain, score, sparkline

INDENT, LABEL = " ", 10
VALUE, CHANGE, UNIT, SPARK = 11, 11, 8, 40
WIDE, VERY_WIDE = 100, 140  # columns from which there is room for units; for a chart
MOST_BAR, SHORTEST = 40, 8
MOST_FOLDED = 3  # lines that one label takes
TABLE = 104  # columns of it beside a chart
STYLES = {"live": "bold cyan", "silent": "bold yellow", "halted": "bold yellow", "paused": "bold yellow",
          "interrupted": "bold yellow",
          "failed": "bold red", "dead": "bold red", "damaged": "bold red", "finished": "bold green",
          "solved": "bold green", "not solved": "bold yellow"}  # fmt: skip
SORTS = ("area", "name", "change")


class Shown(NamedTuple):
    """All that a screen of a run is made of."""

    look: Look
    points: Callable[[str], Points]
    alerts: Mapping[str, str] = {}
    """by metric: what is alarming, and what to try"""
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


def page(shown: Shown, width: int, height: int, unicode: bool = True) -> list[Line]:
    """All of it, but for the line of keys."""
    lines = [*head(shown, width, unicode), Line()]
    below = alert_lines(shown, width)[: max(1, height // 6)]
    room = max(0, height - len(lines) - len(below))
    beside = chart(shown, width - TABLE - 2, min(room, 34), unicode) if width >= VERY_WIDE else []
    table_width = TABLE if beside else width
    rows = table(shown, table_width, room, unicode)
    for place in range(max(len(rows), len(beside))):
        row = rows[place] if place < len(rows) else Line()
        row = row.cut(table_width)
        if place < len(beside):
            row.add(" " * (table_width + 2 - row.cells)).join(beside[place])
        lines.append(row)
    return [*lines[: height - len(below)], *below]


def head(shown: Shown, width: int, unicode: bool) -> list[Line]:
    """What the run is, how far it is and how well it does."""
    look = shown.look
    seed = f"  seed {look.seed}" if look.seed is not None else ""
    title = Line(INDENT + clean(look.title), "bold").add(f"  {clean(look.algorithm)}{seed}", "dim")
    state = Line(look.state + (", frozen display" if shown.frozen else ""), STYLES.get(look.state, "bold"))
    lines = [
        title.right(state.add(f"  {shown.place}" if shown.place else "", "dim"), width),
        Line(INDENT + clean(look.id), "dim"),
        *_bars(look, width, unicode),
    ]
    told_of = {
        "speed": _speed(look), "time": told(look.phases), "band": shown.band,
        "machine": machine_words(shown.use, shown.gpus),
        "now": f"{clean(look.doing)} under way" if look.doing else "", "says": clean(look.said, 300),
    }  # fmt: skip
    for label, words in told_of.items():
        folded = wrap(words, max(10, width - len(INDENT) - LABEL))[:MOST_FOLDED]
        lines += [_labelled(label if part is folded[0] else "", part) for part in folded]
        if label == "band" and folded and lines[-1].cells + len(shown.other) <= width:
            lines[-1].add(shown.other, "dim")
    return lines


def _labelled(label: str, words: str) -> Line:
    return Line(f"{INDENT}{label:<{LABEL}}", "dim").add(words)


def _bars(look: Look, width: int, unicode: bool) -> list[Line]:
    """How far it is, and how near its goal; both bars as long, and none where the words need the room."""
    steps, goal = _steps(look), _goal(look, width)
    found = [("steps", look.env_steps / look.budget if look.budget else None, steps, "cyan"), goal]
    length = min(MOST_BAR, *(width - len(INDENT) - LABEL - words.cells for _, _, words, _ in found if words.cells))
    lines = []
    for label, fraction, words, style in found:
        line = _labelled(label, "")
        if fraction is not None and length >= SHORTEST:
            done, rest = bar(fraction, length, not unicode)
            line.add(done, style).add(rest, "dim")
        if words.cells:
            lines.append(line.join(words))
    return lines


def _steps(look: Look) -> Line:
    if not look.budget:
        return Line(f"{look.env_steps:,}", "bold")
    fraction = min(1.0, look.env_steps / look.budget)
    return Line(f"  {100 * fraction:.0f}%  {look.env_steps:,} / {look.budget:,}", "bold")


def _goal(look: Look, width: int) -> tuple[str, float | None, Line, str]:
    """Label, the part of the way, words and style: the last evaluation (or training's return) against the goal."""
    kind, kept = ("val", look.val) if math.isfinite(look.val.last) else ("train", look.train)
    if not math.isfinite(kept.last):
        return "goal", None, Line("" if look.goal is None else f"  {plain(look.goal)}", "dim"), ""
    words = Line(f"  {kind} {score(kept.last)}", "bold magenta")
    words.add(f" / {plain(look.goal)}" if look.goal is not None else "")
    best = f"   best {score(kept.best)}{f' at {kept.best_at:,}' if kept.best_at else ''}"
    words.add(best if words.cells + len(best) + LABEL + 2 * SHORTEST <= width else "", "dim")
    if look.goal is None:
        return "return", None, words, ""
    return "goal", kept.toward(look.goal), words, "green" if kept.last >= look.goal else "magenta"


def _speed(look: Look) -> str:
    now = f"{look.rate:,.0f} steps/s now" if math.isfinite(look.rate) else ""
    mean = f"{look.mean_rate:,.0f} mean" if math.isfinite(look.mean_rate) else ""
    spent = f"in {duration(look.elapsed)}" if math.isfinite(look.elapsed) else ""
    left = f"{duration(look.left)} left" if math.isfinite(look.left) else ""
    return ", ".join(filter(None, (left, now, mean, spent)))


def machine_words(use: Use | None, gpus: Sequence[Gpu]) -> str:
    """`cpu 98 %, memory 0.4 of 7.7 GiB; gpu 45 %, 3.1 of 80.0 GiB`; cpu is of one core."""
    cpu = f"cpu {use.cpu:.0f} %, " if use and use.cpu is not None else ""
    own = [f"{cpu}memory {_gigabytes(use.memory, use.of)}"] if use else []
    return "; ".join([*own, *(f"gpu {each.busy} %, {_gigabytes(each.used, each.total)}" for each in gpus)])


def _gigabytes(used: int, of: int) -> str:
    own = f"{used / 2**30:.1f}" if used >= 2**30 else f"{used / 2**20:.0f} MiB"
    return f"{own} of {of / 2**30:.1f} GiB"


def table(shown: Shown, width: int, height: int, unicode: bool) -> list[Line]:
    """A line per metric that has a value, area by area; of more than there is room for a part, and how many."""
    faces = ordered(shown)
    if not faces:
        return [Line(INDENT + "no row yet", "dim")][:height]
    titles = min(26 if width >= 70 else 18, max(len(one.title) for one in faces))
    first = max(0, min(shown.first, len(faces) - height + 1)) if len(faces) > height else 0
    chosen = faces[first : first + height - (1 if len(faces) > height else 0)]
    lines, area = [], ""
    for one in chosen:
        lines.append(_row(one, one.area if one.area != area else "", titles, shown, width, unicode))
        area = one.area
    if len(chosen) < len(faces):
        after = len(faces) - first - len(chosen)
        words = [f"{count} more {where}" for count, where in ((first, "above"), (after, "below")) if count]
        lines.append(Line(f"{INDENT}{', '.join(words)}", "dim"))
    return lines[: max(0, height)]


def ordered(shown: Shown) -> list[Face]:
    """All metrics that have a value, as the person wants them sorted."""
    faces = arranged(list(shown.look.values))
    if shown.sort == "name":
        return sorted(faces, key=lambda one: one.title.casefold())
    if shown.sort == "change":
        return sorted(faces, key=lambda one: (one.name not in shown.alerts, -_moved(shown.points(one.name))))
    return faces


def _moved(points: Points) -> float:
    """How far the last value lies from the one before, beside all that there were."""
    values = [value for _, value in points if math.isfinite(value)]
    spread = max(values) - min(values) if values else 0.0
    return abs(values[-1] - values[-2]) / spread if len(values) > 1 and spread > 0 else 0.0


def _row(one: Face, area: str, titles: int, shown: Shown, width: int, unicode: bool) -> Line:
    """area, title, value, change, sparkline."""
    points = shown.points(one.name)
    value = shown.look.values[one.name]
    alarming = one.name in shown.alerts
    line = Line(f"{INDENT}{clean(area)[: LABEL - 1]:<{LABEL}}", "dim")
    title = clean(one.title)
    line.add(f"{title[:titles]:<{titles}}", "bold" if one.highlight else "")
    text = number(value, one.precision)
    line.add(f"{'! ' + text if alarming else text:>{VALUE}}", "bold yellow" if alarming else "bold")
    if width >= WIDE:
        unit = "" if one.unit == "none" else clean(one.unit)
        line.add(f" {unit:<{UNIT}}"[: UNIT + 1], "dim")
    before = points[-2][1] if len(points) > 1 else math.nan
    line.join(_change(one, value - before, unicode))
    room = min(SPARK, width - line.cells - 2)
    if room >= 4:
        line.add("  " + sparkline([each for _, each in points[-room:]], room, not unicode), "cyan")
    return line


def _change(one: Face, change: float, unicode: bool) -> Line:
    """An arrow and the difference, green where it is for the better; blank where it rounds to nothing."""
    if not math.isfinite(change) or abs(change) < 0.5 * 10.0**-one.precision:
        return Line(" " * (CHANGE + 1))
    up, down = ("▲", "▼") if unicode else ("+", "-")
    style = "dim" if one.better == "none" else "green" if (one.better == "up") == (change > 0) else "red"
    return Line(f"  {up if change > 0 else down} {number(abs(change), one.precision):<{CHANGE - 3}}", style)


def alert_lines(shown: Shown, width: int) -> list[Line]:
    """Below the table a line for each alert that is open."""
    return [Line(f"{INDENT}! ", "bold yellow").add(clean(words, 400), "yellow").cut(width)
            for words in shown.alerts.values()]  # fmt: skip


def chart(shown: Shown, width: int, height: int, unicode: bool) -> list[Line]:
    """The curve of evaluations, else of training's returns; [] where nothing can be drawn yet."""
    curves = {}
    for name, title in ((VAL, "evaluations"), (TRAIN, "returns of training")):
        points = [point for point in shown.points(name) if math.isfinite(point[1])]
        if len(points) > 1 and points[0][0] < points[-1][0] and unicode:
            curves[title] = points
    lines: list[Line] = []
    for title, points in curves.items():
        each = min(12, height // len(curves) - 4)  # beside it a title, an axis of two lines and one that is free
        if each >= 3:
            xs, ys = [point[0] for point in points], [point[1] for point in points]
            drawn = area_chart(xs, ys, max(20, width - 12), each).split("\n")
            lines += [Line(f"{title}", "bold"), *(Line(text, "cyan") for text in drawn), Line()]
    return lines[:height]
