"""The look of a group in training: a line per seed, the band of them all; pure functions to rich Text.

Columns are set by hand, as the console's are; what a narrow terminal has no room for is left out, never cut.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.text import Text

from runstore.history import History
from runstore.run_facts import few, verdict_words
from utils.statistics import mean_and_deviation
from utils.typography import bar, duration, score

INDENT = "  "
STATE, KIND, LEFT = 10, 5, 8  # widths of columns
NARROWEST = 54  # of all columns but the first, with a bar of 4
ENDED = ("solved", "not solved", "not tested", "trained", "failed", "stopped", "paused")
STYLES = {"solved": "bold green", "not solved": "bold yellow", "failed": "bold red", "training": "bold cyan"}


@dataclass
class Row:
    """What is known of one seed."""

    seed: int
    label: str = ""
    """what tells it from rows that differ in more than their seed"""
    state: str = "waiting"
    """waiting, starting, training; then one of ENDED"""
    history: History = field(default_factory=lambda: History(()))
    budget: int = 0
    """env steps; 0 while nobody knows"""
    test: float | None = None
    episodes: int = 0
    """of the test that ended"""
    seconds: float = 0.0
    """it took, once it has ended"""
    left: float = math.nan
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.label} {self.seed}".lstrip()

    @property
    def words(self) -> str:
        """Its state as people see it: `solved (5 episodes)` where its test had fewer than 100."""
        return verdict_words(self.state, self.episodes)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def value(self) -> tuple[str, float]:
        """Which return is told, and it: of the test, else of the last evaluation, else of training."""
        if self.test is not None:
            return "test", self.test
        if not math.isnan(self.history.val.last):
            return "val", self.history.val.last
        return "train", self.history.train.last


class Page(NamedTuple):
    """Where is drawn."""

    width: int
    height: int
    ascii_only: bool = False
    state: int = STATE
    """columns of a state"""


def page_of(rows: Sequence[Row], workers: int, elapsed: float, page: Page) -> list[Text]:
    """All of it."""
    foot = [Text(), all_line(rows, workers, elapsed), band_line(rows, page)]
    return [*table(rows, page._replace(height=page.height - len(foot))), *foot]


def table(rows: Sequence[Row], page: Page, reasons: bool = True) -> list[Text]:
    """Heads of the columns, and a line for each seed; of more than the page holds those that move, and a count.

    `reasons`: who failed says why in place of how far it came.
    """
    most = max(4, page.width - NARROWEST)
    seed = min(most, max(4, *(len(row.name) for row in rows))) if rows else 4
    chosen, hidden = _chosen(rows, max(2, page.height - 1))
    page = page._replace(state=max([STATE, *(len(row.words) for row in chosen)]))
    head = "run" if any(row.label for row in rows) else "seed"
    lines = [_heads(head, seed, page), *(_row(row, seed, page, reasons) for row in chosen)]
    if hidden:
        counts = [
            (name, sum(row.state == name for row in hidden)) for name in ("starting", "training", "waiting", *ENDED)
        ]
        words = ", ".join(f"{count} {name}" for name, count in counts if count)
        lines.append(Text(f"{INDENT}{'':<{seed}}  and {words}", "dim", no_wrap=True))
    return lines


def _chosen(rows: Sequence[Row], most: int) -> tuple[list[Row], list[Row]]:
    """In the order of seeds: those in training first, then failed ones, then the last that ended, then the next."""
    if len(rows) <= most:
        return list(rows), []
    order = {"training": 0, "starting": 0, "failed": 1, "waiting": 3}
    ranked = sorted(rows, key=lambda row: order.get(row.state, 2))
    kept = {id(row) for row in ranked[: most - 1]}
    return [row for row in rows if id(row) in kept], [row for row in rows if id(row) not in kept]


class Columns(NamedTuple):
    """Which columns there is room for, and how long the bar is."""

    bar: int
    steps: bool
    speed: bool


def _columns(seed: int, page: Page) -> Columns:
    room = page.width - 1 - len(INDENT) - seed - 2 - page.state - 2 - 5 - 2 - KIND - 1 - 8 - 2 - LEFT
    speed = room >= 10 + 11
    room -= 11 if speed else 0
    steps = room >= 12 + 13
    room -= 13 if steps else 0
    return Columns(max(4, min(30, room)), steps, speed)


def _heads(head: str, seed: int, page: Page) -> Text:
    columns = _columns(seed, page)
    words = f"{INDENT}{head:>{seed}}  {'state':<{page.state}}  {'budget':<{columns.bar + 5}}"
    words += f"{'env steps':>13}" if columns.steps else ""
    words += f"  {'return':>{KIND + 1 + 8}}"
    words += f"{'steps/s':>11}" if columns.speed else ""
    return Text(f"{words}  {'left':>{LEFT}}", "dim", no_wrap=True)


def _row(row: Row, seed: int, page: Page, reasons: bool) -> Text:
    columns = _columns(seed, page)
    line = Text(f"{INDENT}{_cut(row.name, seed):>{seed}}  ", no_wrap=True, overflow="crop")
    line.append(f"{row.words:<{page.state}}  ", STYLES.get(row.state, "dim"))
    if row.why and reasons:
        room = page.width - 1 - line.cell_len
        return line.append(row.why if len(row.why) <= room else f"{row.why[: room - 3]}...", "dim")
    steps = row.history.env_steps
    fraction = min(1.0, steps / row.budget) if row.budget else 0.0
    done, rest = bar(fraction, columns.bar, page.ascii_only)
    line.append(done, "green" if row.state == "solved" else "cyan").append(rest, "dim")
    line.append(f"{f'{100 * fraction:.0f}%' if row.budget else '':>5}", "bold" if row.state == "training" else "dim")
    if columns.steps:
        line.append(f"{f'{steps:,}' if steps else '':>13}", "" if row.state == "training" else "dim")
    kind, value = row.value
    shown = "" if math.isnan(value) else score(value)
    line.append(f"  {kind if shown else '':<{KIND}} ", "dim").append(f"{shown:>8}", "bold")
    if columns.speed:
        rate = row.history.rate
        line.append(f"{'' if row.ended or math.isnan(rate) else f'{rate:,.0f}':>11}", "dim")
    last = f"in {duration(row.seconds)}" if row.ended and row.seconds else ""
    last = duration(row.left) if row.state == "training" else last
    line.append(f"  {last:>{LEFT}}", "" if row.state == "training" else "dim")
    line.truncate(page.width - 1)
    return line


def _cut(name: str, most: int) -> str:
    """The seed at its end always stands there."""
    return name if len(name) <= most else f"..{name[len(name) - most + 2 :]}"


def all_line(rows: Sequence[Row], workers: int, elapsed: float) -> Text:
    """How far the group is."""
    ended = sum(row.ended for row in rows)
    solved, failed = (sum(row.state == name for row in rows) for name in ("solved", "failed"))
    line = Text(f"{INDENT}{'all':<6}", "dim", no_wrap=True).append(f"{ended} of {len(rows)} done", "bold")
    tests = few([row.episodes for row in rows if row.state == "solved"])
    line.append(f", {solved} solved{tests}" if solved else "", "green").append(
        f", {failed} failed" if failed else "", "red"
    )
    return line.append(f"   {duration(elapsed)}   left {duration(seconds_left(rows, workers))}", "dim")


def seconds_left(rows: Sequence[Row], workers: int) -> float:
    """Until all have spent their budgets at the speeds of now; runs that solve their task early shorten it."""
    running = [row for row in rows if row.state in ("starting", "training")]
    waiting = sum(row.state == "waiting" for row in rows)
    if not running and not waiting:
        return 0.0
    left = [row.left for row in running if not math.isnan(row.left)]
    whole = [row.seconds for row in rows if row.ended and row.seconds]
    whole += [row.budget / row.history.rate for row in running if row.budget and row.history.rate > 0]
    if not left or (waiting and not whole):
        return math.nan
    more = waiting * sum(whole) / len(whole) if waiting else 0.0
    return max(*left, (sum(left) + more) / max(1, workers)) if len(left) > 1 else left[0] + more / max(1, workers)


def band_line(rows: Sequence[Row], page: Page) -> Text:
    """Mean and spread over the seeds so far, the failed ones left out."""
    values = [value for row in rows if row.state != "failed" and not math.isnan(value := row.value[1])]
    line = Text(f"{INDENT}{'mean':<6}", "dim", no_wrap=True, overflow="crop")
    if not values:
        return line.append("no return yet", "dim")
    mean, deviation = mean_and_deviation(values)
    around = f" {'+-' if page.ascii_only else '±'} {score(deviation)}" if len(values) > 1 else ""
    line.append(f"{score(mean)}{around}", "bold magenta")
    seeds = f"{len(values)} seed{'s' if len(values) > 1 else ''}"
    line.append(f" over {seeds}", "dim")
    if len(values) > 1:
        line.append(f", {score(min(values))} .. {score(max(values))}", "dim")
    line.truncate(page.width - 1)
    return line


def plain_progress(rows: Sequence[Row], workers: int, elapsed: float, most: int = 4) -> str:
    """The same in a line for pipes and logs: `0:30  1 of 3 done; seed 2 at 35 %, val 120.3; left 5:00`."""
    running = [row for row in rows if row.state in ("starting", "training")]
    parts = [f"{sum(row.ended for row in rows)} of {len(rows)} done"]
    for row in running[:most]:
        kind, value = row.value
        told = "" if math.isnan(value) else f", {kind} {score(value)}"
        at = f"at {100 * min(1.0, row.history.env_steps / row.budget):.0f} %" if row.budget else row.state
        parts.append(f"{row.label or 'seed'} {row.seed} {at}{told}")
    parts += [f"{len(running) - most} more"] if len(running) > most else []
    return f"{INDENT}{duration(elapsed)}  " + "; ".join([*parts, f"left {duration(seconds_left(rows, workers))}"])
