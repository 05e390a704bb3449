"""Draw the list of all runs on the monitor's screen: a line for each run, and for each group, which can be opened."""

import math
from collections.abc import Collection, Sequence

from rich.text import Text

from stride.report.monitor.run_list import Line, RunRow, is_training, shown_return, shown_state
from stride.report.monitor.run_page import STYLES
from stride.report.terminal import Page, clean, line_of
from stride.runstore.metrics_table import NAMES
from stride.runstore.run_brief import Brief
from stride.utils.places import TRAIN
from stride.utils.typography import bar, optional, score

STATE, TITLE, SEED, RETURN, KIND, PERCENT, BAR = 12, 24, 5, 9, 11, 6, 12  # widths of columns
MIN_WIDTH_FOR_BARS = 100  # columns of a page from which on there is space for progress bars


def _run_line(run: Brief, is_inside: bool, state_width: int, bar_width: int, ascii_only: bool) -> Text:
    """Draw a run; `is_inside`: it is below its open group and indented."""
    state = shown_state(run)
    kind, value = shown_return(run)
    value_text = score(value) if math.isfinite(value) else ""
    fraction = min(1.0, run.tail.steps / run.budget) if run.budget else 0.0
    done, remaining = bar(fraction, bar_width, ascii_only)
    seed = optional(run.seed, str)
    title_width = TITLE - 2 if is_inside else TITLE
    rate = f"  {run.tail.rate:,.0f} steps/s" if is_training(run) and run.tail.rate is not None else ""
    return line_of("     " if is_inside else "   ").append_tokens([
        (f"{state:<{state_width}}", STYLES.get(state.partition(" (")[0], "")),
        (f"{clean(run.variant)[: TITLE - 3]:<{title_width}}{seed:>{SEED}}", ""),
        (f"{NAMES[kind] if value_text else '':>{KIND}}", "dim"),
        (f"{value_text:>{RETURN}}  ", "bold"),
        (done, "cyan"),
        (remaining, "dim"),
        (f"{f'{100 * fraction:.0f}%':>{PERCENT - 1}} ", ""),
        (clean(run.id) + rate, "dim"),
    ])  # fmt: skip


def _group_line(group: RunRow, is_open: bool, state_width: int, rest_width: int, ascii_only: bool) -> Text:
    """Draw a group: `▸ 2 live, 3 finished   CartPole-v1:ppo, 5 seeds   480.1 ± 12.0   group NAME`."""
    marks = "+-" if ascii_only else "▸▾"
    count = len(group.members)
    seeds = f"{count} seed{'s' * (count > 1)}"
    value_text = score(group.mean) if group.returns else ""
    spread = f"± {score(group.deviation)}" if value_text and count > 1 else ""
    return line_of(f" {marks[is_open]} ").append_tokens([
        (f"{group.states:<{state_width - 1}} ", "bold cyan" if any(map(is_training, group.members)) else "bold"),
        (f"{clean(group.members[0].variant)}, {seeds}".ljust(TITLE + SEED + KIND), ""),
        (f"{value_text:>{RETURN}}  ", "bold"),
        (f"{spread:<{rest_width}}group {group.name}", "dim"),
    ])  # fmt: skip


def runs_page(list_lines: Sequence[Line], selected: int, open_groups: Collection[str], page: Page) -> list[Text]:
    """Draw the heads of the columns, and as many lines around the selected one as fit; `selected`: its index."""
    if not list_lines:
        return [line_of(f" no runs yet; start one: {TRAIN} CartPole-v1:ppo", "dim")]
    height = max(1, page.height - 1)
    first = max(0, min(selected - height // 2, len(list_lines) - height))
    state_width = max([STATE, *(len(shown_state(run)) + 1 for _, run in list_lines if run)])
    bar_width = BAR if page.width >= MIN_WIDTH_FOR_BARS else 0
    head = f"   {'state':<{state_width}}{'what':<{TITLE}}{'seed':>{SEED}}{'return':>{RETURN + KIND}}  "
    screen_lines = [line_of(f"{head}{'done':<{bar_width + PERCENT}}run", "dim")]
    for index, (list_row, run) in enumerate(list_lines[first : first + height], first):
        if run:
            screen_line = _run_line(run, list_row.is_group, state_width, bar_width, page.ascii_only)
        else:
            is_open = list_row.name in open_groups
            screen_line = _group_line(list_row, is_open, state_width, bar_width + PERCENT, page.ascii_only)
        if index == selected:
            screen_line = line_of(screen_line.plain.ljust(page.width)[: page.width], "reverse")
        screen_lines.append(screen_line)
    return screen_lines
