"""All runs on the monitor's screen: a line each, a group as one that opens."""

import math
from collections.abc import Collection, Sequence

from rich.text import Text

from stride.report.monitor.fleet import Brief, Row
from stride.report.monitor.run_page import STYLES
from stride.report.terminal import Page, clean, line_of
from stride.utils.places import TRAIN
from stride.utils.typography import bar, score

STATE, TITLE, SEED, VALUE, KIND, DONE, BAR = 12, 24, 5, 9, 6, 6, 12  # widths of columns
WIDE = 100  # columns from which there is room for bars


class Columns:
    """Widths that depend on the screen and on what stands there, and what groups are open."""

    def __init__(self, lines: Sequence[tuple[Row, Brief | None]], opened: Collection[str], page: Page) -> None:
        self.state = max([STATE, *(len(run.state) + 1 for _, run in lines if run)])
        self.bar = BAR if page.width >= WIDE else 0
        self.opened, self.ascii_only = opened, page.ascii_only

    def head(self) -> Text:
        words = f"   {'state':<{self.state}}{'what':<{TITLE}}{'seed':>{SEED}}{'return':>{VALUE + KIND}}  "
        return line_of(f"{words}{'done':<{self.bar + DONE}}run", "dim")

    def run(self, run: Brief, is_inside: bool) -> Text:
        """A run by itself, or inside its group."""
        style = STYLES.get(run.state.partition(" (")[0], "")
        line = line_of("     " if is_inside else "   ").append(f"{run.state:<{self.state}}", style)
        seed = "" if run.seed is None else str(run.seed)
        title = clean(run.title)[: TITLE - 3]
        line.append(f"{title:<{TITLE - (2 if is_inside else 0)}}{seed:>{SEED}}")
        value = score(run.value) if math.isfinite(run.value) else ""
        line.append(f"{run.kind if value else '':>{KIND}}", "dim").append(f"{value:>{VALUE}}  ", "bold")
        done, rest = bar(run.done, self.bar, self.ascii_only)
        percent = f"{100 * run.done:.0f}%"
        line.append(done, "cyan").append(rest, "dim").append(f"{percent:>{DONE - 1}} ")
        speed = f"  {run.rate:,.0f} steps/s" if math.isfinite(run.rate) else ""
        return line.append(f"{clean(run.id)}{speed}", "dim")

    def group(self, group: Row) -> Text:
        """`▸ 2 live, 3 finished   CartPole-v1:ppo   5 seeds   480.1 ± 12.0   group NAME`"""
        is_open = group.name in self.opened
        mark = ("-" if is_open else "+") if self.ascii_only else ("▾" if is_open else "▸")
        style = "bold cyan" if any(run.trains for run in group.members) else "bold"
        line = line_of(f" {mark} ").append(f"{group.states:<{self.state - 1}} ", style)
        count = len(group.members)
        seeds = f"{count} seed{'s' * (count > 1)}"
        line.append(f"{clean(group.members[0].title)}, {seeds}".ljust(TITLE + SEED + KIND))
        value = score(group.value) if math.isfinite(group.value) else ""
        line.append(f"{value:>{VALUE}}  ", "bold")
        around = f"± {score(group.deviation)}" if value and count > 1 else ""
        return line.append(f"{around:<{self.bar + DONE}}group {group.name}", "dim")


def runs_page(
    lines: Sequence[tuple[Row, Brief | None]], chosen: int, opened: Collection[str], page: Page
) -> list[Text]:
    """Heads of the columns, and as many lines around the chosen one as there is room for."""
    if not lines:
        return [line_of(f" no run yet: {TRAIN} CartPole-v1:ppo begins one", "dim")]
    room = max(1, page.height - 1)
    first = max(0, min(chosen - room // 2, len(lines) - room))
    columns = Columns(lines, opened, page)
    shown = [columns.head()]
    for place, (row, run) in enumerate(lines[first : first + room], first):
        line = columns.run(run, is_inside=row.grouped) if run else columns.group(row)
        if place == chosen:
            line = line_of(line.plain.ljust(page.width)[: page.width], "reverse")
        shown.append(line)
    return shown
