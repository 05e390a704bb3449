"""All runs on the monitor's screen: a line each, a group as one that opens."""

import math
from collections.abc import Collection, Sequence

from rich.text import Text

from stride.report.monitor.run_list import Line, RunRow, is_training, shown_return, shown_state
from stride.report.monitor.run_page import STYLES
from stride.report.terminal import Page, clean, line_of
from stride.runstore.run_brief import Brief
from stride.utils.places import TRAIN
from stride.utils.typography import bar, score

STATE, TITLE, SEED, RETURN, KIND, PERCENT, BAR = 12, 24, 5, 9, 6, 6, 12  # widths of columns
WIDE = 100  # columns from which there is space for bars


class RunLines:
    """The lines of a list; column widths depend on the screen and on the states that are listed."""

    def __init__(self, list_lines: Sequence[Line], open_groups: Collection[str], page: Page) -> None:
        states = [shown_state(run) for _, run in list_lines if run]
        self.state_width = max([STATE, *(len(state) + 1 for state in states)])
        self.bar_width = BAR if page.width >= WIDE else 0
        self.open_groups = open_groups
        self.ascii_only = page.ascii_only

    def head(self) -> Text:
        columns = f"   {'state':<{self.state_width}}{'what':<{TITLE}}{'seed':>{SEED}}{'return':>{RETURN + KIND}}  "
        return line_of(f"{columns}{'done':<{self.bar_width + PERCENT}}run", "dim")

    def run(self, run: Brief, is_inside: bool) -> Text:
        """A run by itself, or inside its group."""
        state = shown_state(run)
        kind, value = shown_return(run)
        screen_line = line_of("     " if is_inside else "   ")
        screen_line.append(f"{state:<{self.state_width}}", STYLES.get(state.partition(" (")[0], ""))
        seed = "" if run.seed is None else str(run.seed)
        title_width = TITLE - 2 if is_inside else TITLE
        screen_line.append(f"{clean(run.variant)[: TITLE - 3]:<{title_width}}{seed:>{SEED}}")
        value_text = score(value) if math.isfinite(value) else ""
        screen_line.append(f"{kind if value_text else '':>{KIND}}", "dim").append(f"{value_text:>{RETURN}}  ", "bold")
        fraction = min(1.0, run.tail.steps / run.budget) if run.budget else 0.0
        done, remaining = bar(fraction, self.bar_width, self.ascii_only)
        percent = f"{100 * fraction:.0f}%"
        screen_line.append(done, "cyan").append(remaining, "dim").append(f"{percent:>{PERCENT - 1}} ")
        screen_line.append(clean(run.id), "dim")
        rate = run.tail.rate
        if is_training(run) and rate is not None:
            screen_line.append(f"  {rate:,.0f} steps/s", "dim")
        return screen_line

    def group(self, group: RunRow) -> Text:
        """`▸ 2 live, 3 finished   CartPole-v1:ppo   5 seeds   480.1 ± 12.0   group NAME`"""
        marks = "+-" if self.ascii_only else "▸▾"
        count = len(group.members)
        screen_line = line_of(f" {marks[group.name in self.open_groups]} ")
        style = "bold cyan" if any(map(is_training, group.members)) else "bold"
        screen_line.append(f"{group.states:<{self.state_width - 1}} ", style)
        seeds = f"{count} seed{'s' * (count > 1)}"
        screen_line.append(f"{clean(group.members[0].variant)}, {seeds}".ljust(TITLE + SEED + KIND))
        value_text = score(group.mean) if group.returns else ""
        screen_line.append(f"{value_text:>{RETURN}}  ", "bold")
        spread = f"± {score(group.deviation)}" if value_text and count > 1 else ""
        return screen_line.append(f"{spread:<{self.bar_width + PERCENT}}group {group.name}", "dim")


def runs_page(list_lines: Sequence[Line], selected: int, open_groups: Collection[str], page: Page) -> list[Text]:
    """Heads of the columns, and as many lines around the selected one as there is space for."""
    if not list_lines:
        return [line_of(f" no run yet: {TRAIN} CartPole-v1:ppo begins one", "dim")]
    height = max(1, page.height - 1)
    first = max(0, min(selected - height // 2, len(list_lines) - height))
    renderer = RunLines(list_lines, open_groups, page)
    screen_lines = [renderer.head()]
    for index, (list_row, run) in enumerate(list_lines[first : first + height], first):
        screen_line = renderer.run(run, is_inside=list_row.is_group) if run else renderer.group(list_row)
        if index == selected:
            screen_line = line_of(screen_line.plain.ljust(page.width)[: page.width], "reverse")
        screen_lines.append(screen_line)
    return screen_lines
