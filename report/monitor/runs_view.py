"""All runs on the screen: a line each, a group as one that opens."""

import math
from collections.abc import Sequence

from report.monitor.fleet import Brief, Row
from report.monitor.lines import Line, clean
from report.monitor.run_view import STYLES
from utils.typography import bar, score

STATE, TITLE, SEED, VALUE, KIND, DONE, BAR = 12, 24, 5, 9, 6, 6, 12
WIDE = 100  # columns from which there is room for bars


def page(
    rows: Sequence[tuple[Row, Brief | None]], chosen: int, opened: set[str], width: int, height: int, unicode: bool
) -> list[Line]:
    """Heads of the columns, and as many lines around the chosen one as there is room for."""
    if not rows:
        return [Line(" no run yet: python train.py CartPole-v1:ppo begins one", "dim")]
    room = max(1, height - 1)
    first = max(0, min(chosen - room // 2, len(rows) - room))
    length = BAR if width >= WIDE else 0
    state = max([STATE, *(len(each.state) + 1 for _, each in rows if each)])
    heads = f"   {'state':<{state}}{'what':<{TITLE}}{'seed':>{SEED}}{'return':>{VALUE + KIND}}  "
    lines = [Line(f"{heads}{'done':<{length + DONE}}run", "dim").cut(width)]
    for place, (row, each) in enumerate(rows[first : first + room], first):
        inside = each is not None and row.grouped
        line = (
            _run(each, inside, state, length, unicode)
            if each
            else _group(row, row.name in opened, state, length, unicode)
        )
        line = line.cut(width)
        lines.append(Line(line.plain.ljust(width)[:width], "reverse") if place == chosen else line)
    return lines


def _run(each: Brief, inside: bool, state: int, length: int, unicode: bool) -> Line:
    style = STYLES.get(each.state.partition(" (")[0], "")
    line = Line("     " if inside else "   ").add(f"{each.state:<{state}}", style)
    seed = "" if each.seed is None else str(each.seed)
    name = clean(each.title)[: TITLE - 3]
    line.add(f"{name:<{TITLE - (2 if inside else 0)}}{seed:>{SEED}}")
    value = score(each.value) if math.isfinite(each.value) else ""
    line.add(f"{each.kind if value else '':>{KIND}}", "dim").add(f"{value:>{VALUE}}  ", "bold")
    done, rest = bar(each.done, length, not unicode)
    line.add(done, "cyan").add(rest, "dim").add(f"{f'{100 * each.done:.0f}%':>{DONE - 1}} ")
    speed = f"  {each.rate:,.0f} steps/s" if math.isfinite(each.rate) else ""
    return line.add(clean(each.id), "dim").add(speed, "dim")


def _group(row: Row, is_open: bool, state: int, length: int, unicode: bool) -> Line:
    """`▸ 2 live, 3 finished   CartPole-v1:ppo   5 seeds   480.1 ± 12.0   group NAME`"""
    mark = ("▾" if is_open else "▸") if unicode else ("-" if is_open else "+")
    style = "bold cyan" if any(each.trains for each in row.members) else "bold"
    line = Line(f" {mark} ").add(f"{row.states:<{state - 1}} ", style)
    seeds = f"{len(row.members)} seed{'s' * (len(row.members) > 1)}"
    line.add(f"{clean(row.members[0].title)}, {seeds}".ljust(TITLE + SEED + KIND))
    value = score(row.value) if math.isfinite(row.value) else ""
    line.add(f"{value:>{VALUE}}  ", "bold")
    around = f"± {score(row.deviation)}" if value and len(row.members) > 1 else ""
    return line.add(f"{around:<{length + DONE}}", "dim").add(f"group {row.name}", "dim")
