"""Draw a group in training: a line per seed, then all together. Pure functions that return lines of rich Text.

group_console.py prints them. Widths of columns are constants, as in terminal.py. Columns that do not fit into a narrow
terminal are left out, never cut.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from stride.report.terminal import INDENT, Page, line_of
from stride.runstore.metrics_table import NAMES
from stride.runstore.run_brief import Brief
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import few, verdict_words
from stride.utils.statistics import mean_and_deviation
from stride.utils.typography import bar, duration, score

SMOOTHING = 0.3  # weight of the newest speed in the moving average that gives the time left
STATE, KIND, LEFT = 10, 10, 8  # widths of columns
LEFT_ALIGNED = ("state", "bar", "kind")  # left-aligned columns, which begin with two blanks
HEADS = {"state": "state", "bar": "budget", "steps": "env steps", "value": "return", "speed": "steps/s", "left": "left"}
MIN_BAR, MAX_BAR = 4, 30  # width of a bar
OTHER_COLUMNS = 53  # width of all columns but the first, with the shortest bar
MAX_NAMED_RUNS = 4  # runs in training that a plain line describes; it counts the others
RUNNING = ("starting", "training")
ENDED = ("solved", "not solved", "not tested", "trained", "failed", "stopped", "paused")
STYLES = {"solved": "bold green", "not solved": "bold yellow", "failed": "bold red", "training": "bold cyan"}

Widths = dict[str, int]  # by column: {"name": 6, "state": 12, "bar": 32, ..}, blanks before it included
Cells = dict[str, tuple[str, str]]  # by column: (text, style)


@dataclass
class SeedRow:
    """What is shown of one seed of a group."""

    seed: int
    label: str = ""
    """in a group whose runs differ in more than the seed, what is special here"""
    state: str = "waiting"
    """waiting, starting, training; then one of ENDED"""
    run: RunDir | None = None
    """None until its folder is found"""
    brief: Brief | None = None
    """summary of its files, from the index of runs"""
    speed: float = math.nan
    """env steps per second, moving average"""
    started: float = 0.0
    """time of its start, by the console's clock"""
    seconds: float = 0.0
    """duration of the run; 0 until it has ended"""
    line: str = ""
    """the last line that it printed"""
    why: str = ""
    """why it failed"""
    test: float | None = None
    """mean return of its test"""
    episodes: int = 0
    """number of episodes of its test"""

    @property
    def name(self) -> str:
        return f"{self.label} {self.seed}".lstrip()

    @property
    def state_text(self) -> str:
        """The state as it is shown: `solved (5 episodes)` if its test had fewer than 100 episodes."""
        return verdict_words(self.state, self.episodes)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def budget(self) -> int:
        """Env steps of the whole run; 0 if unknown."""
        return self.brief.budget if self.brief else 0

    @property
    def env_steps(self) -> int:
        return self.brief.tail.steps if self.brief else 0

    @property
    def rate(self) -> float:
        """Env steps per second in its last row; 0 if unknown."""
        return self.brief.tail.rate or 0.0 if self.brief else 0.0

    @property
    def fraction(self) -> float:
        return min(1.0, self.env_steps / self.budget) if self.budget else 0.0

    @property
    def left(self) -> float:
        """Seconds until its budget is spent; NaN if unknown."""
        return max(0, self.budget - self.env_steps) / self.speed if self.budget else math.nan

    @property
    def value(self) -> tuple[str, float]:
        """The return and its kind, ("val", 480.1): of the test, else of the last evaluation, else of training."""
        if self.test is not None:
            return "test", self.test
        if self.brief is None or self.brief.tail.last is None:
            return "train", math.nan
        return "val" if self.brief.tail.evaluated else "train", self.brief.tail.last

    def update(self, brief: Brief) -> None:
        """Take over a new summary of the run's files."""
        old_steps = self.env_steps
        self.brief = brief
        if self.ended:
            return
        if self.env_steps:
            self.state = "training"
        if self.env_steps != old_steps and self.rate > 0:
            self.speed = self.rate if math.isnan(self.speed) else self.speed + SMOOTHING * (self.rate - self.speed)


Rows = Sequence[SeedRow]


def group_page(rows: Rows, workers: int, elapsed: float, page: Page) -> list[Text]:
    """Draw the table of seeds, then two lines about all of them."""
    foot = [line_of(), progress_line(rows, workers, elapsed), mean_line(rows, page)]
    return [*table(rows, page._replace(height=page.height - len(foot))), *foot]


def table(rows: Rows, page: Page, reasons: bool = True) -> list[Text]:
    """Draw the heads of the columns and a line for each seed.

    A page that is too low shows the most important seeds and counts the others. `reasons`: the line of a failed seed
    shows why it failed in place of its progress.
    """
    shown_rows, hidden_rows = _most_important(rows, max(2, page.height - 1))
    longest_name = max([4, *(len(seed_row.name) for seed_row in rows)])
    name_width = min(longest_name, max(4, page.width - OTHER_COLUMNS))
    longest_state = max([STATE, *(len(seed_row.state_text) for seed_row in shown_rows)])
    widths = _widths(name_width, longest_state, page)
    heads = {"name": "run" if any(seed_row.label for seed_row in rows) else "seed", **HEADS}
    text_lines = [_line(widths, {column: (head, "dim") for column, head in heads.items()})]
    text_lines += [_seed_line(seed_row, widths, page, reasons) for seed_row in shown_rows]
    if hidden_rows:
        counts = Counter(seed_row.state for seed_row in hidden_rows)
        text = ", ".join(f"{counts[state]} {state}" for state in (*RUNNING, "waiting", *ENDED) if counts[state])
        text_lines.append(line_of(f"{INDENT}{'':<{name_width}}  and {text}", "dim"))
    return text_lines


def _most_important(rows: Rows, height: int) -> tuple[Rows, Rows]:
    """Split rows into (shown, hidden), each in the order of seeds. Training rows are the most important, then failed,
    ended and waiting ones."""
    if len(rows) <= height:
        return rows, []
    order = {"training": 0, "starting": 0, "failed": 1, "waiting": 3}
    ranked = sorted(range(len(rows)), key=lambda index: order.get(rows[index].state, 2))
    shown, hidden = sorted(ranked[: height - 1]), sorted(ranked[height - 1 :])
    return [rows[index] for index in shown], [rows[index] for index in hidden]


def _widths(name_width: int, state_width: int, page: Page) -> Widths:
    """Return the width of each column; columns without space are left out."""
    widths = {"name": len(INDENT) + name_width, "state": 2 + state_width, "bar": 2, "percent": 5, "steps": 13,
              "kind": 3 + KIND, "value": 8, "speed": 11, "left": 2 + LEFT}  # fmt: skip
    for optional, shortest_bar in (("steps", 12), ("speed", 10), ("kind", MIN_BAR)):
        if page.width - sum(widths.values()) < shortest_bar:
            del widths[optional]
    widths["bar"] += max(MIN_BAR, min(MAX_BAR, page.width - sum(widths.values())))
    return widths


def _line(widths: Widths, cells: Cells) -> Text:
    """Draw one line; columns without a cell stay empty."""
    line = line_of()
    for column, width in widths.items():
        text, style = cells.get(column, ("", ""))
        line.append(f"  {text:<{width - 2}}" if column in LEFT_ALIGNED else f"{text:>{width}}", style)
    return line


def _seed_line(seed_row: SeedRow, widths: Widths, page: Page, reasons: bool) -> Text:
    name = seed_row.name
    width = widths["name"] - len(INDENT)
    if len(name) > width:  # cut its beginning, because the seed is at its end
        name = f"..{name[2 - width :]}"
    cells: Cells = {
        "name": (name, ""),
        "state": (seed_row.state_text, STYLES.get(seed_row.state, "dim")),
    }
    if seed_row.why and reasons:
        line = _line({column: widths[column] for column in cells}, cells)
        available = page.width - line.cell_len - 2
        why = seed_row.why
        if len(why) > available:
            why = f"{why[: available - 3]}..."
        return line.append(f"  {why}", "dim")
    is_training = seed_row.state == "training"
    style = "" if is_training else "dim"
    kind, value = seed_row.value
    done, remaining = bar(seed_row.fraction, widths["bar"] - 2, page.ascii_only)
    cells["bar"] = done + remaining, "dim"
    if seed_row.budget:
        cells["percent"] = f"{100 * seed_row.fraction:.0f}%", style or "bold"
    if seed_row.env_steps:
        cells["steps"] = f"{seed_row.env_steps:,}", style
    if math.isfinite(value):
        cells["kind"] = NAMES[kind], "dim"
        cells["value"] = score(value), "bold"
    if seed_row.rate and not seed_row.ended:
        cells["speed"] = f"{seed_row.rate:,.0f}", "dim"
    if is_training:
        cells["left"] = duration(seed_row.left), ""
    elif seed_row.ended and seed_row.seconds:
        cells["left"] = f"in {duration(seed_row.seconds)}", "dim"
    line = _line(widths, cells)
    start = widths["name"] + widths["state"] + 2
    line.stylize("not dim green" if seed_row.state == "solved" else "not dim cyan", start, start + len(done))
    line.truncate(page.width)
    return line


def progress_line(rows: Rows, workers: int, elapsed: float) -> Text:
    """Draw how many seeds have ended, and how, with the time so far and the time left."""
    states = [seed_row.state for seed_row in rows]
    solved = states.count("solved")
    failed = states.count("failed")
    line = line_of().append(f"{INDENT}{'all':<6}", "dim").append(_done(rows), "bold")
    if solved:
        episodes = few([seed_row.episodes for seed_row in rows if seed_row.state == "solved"])
        line.append(f", {solved} solved{episodes}", "green")
    if failed:
        line.append(f", {failed} failed", "red")
    return line.append(f"   {duration(elapsed)}   left {duration(seconds_left(rows, workers))}", "dim")


def _done(rows: Rows) -> str:
    return f"{sum(seed_row.ended for seed_row in rows)} of {len(rows)} done"


def seconds_left(rows: Rows, workers: int) -> float:
    """Estimate the seconds until all budgets are spent at the present speeds; NaN if unknown.

    Runs that solve their task before their budget is spent make it shorter.
    """
    running = [seed_row for seed_row in rows if seed_row.state in RUNNING]
    waiting = sum(seed_row.state == "waiting" for seed_row in rows)
    if not running and not waiting:
        return 0.0
    remaining = [seed_row.left for seed_row in running if not math.isnan(seed_row.left)]
    complete = [seed_row.seconds for seed_row in rows if seed_row.ended and seed_row.seconds]
    complete += [seed_row.budget / seed_row.rate for seed_row in running if seed_row.budget and seed_row.rate]
    if not remaining or (waiting and not complete):
        return math.nan
    # waiting runs take as long as a complete one; all processes share the rest of the work
    later = waiting * sum(complete) / len(complete) if waiting else 0.0
    if len(remaining) == 1:
        return remaining[0] + later / max(1, workers)
    return max(*remaining, (sum(remaining) + later) / max(1, workers))


def mean_line(rows: Rows, page: Page) -> Text:
    """Draw mean and deviation of the seeds' present returns, without the failed ones."""
    values = [seed_row.value[1] for seed_row in rows if seed_row.state != "failed"]
    values = [value for value in values if not math.isnan(value)]
    count = len(values)
    line = line_of().append(f"{INDENT}{'mean':<6}", "dim")
    if not values:
        return line.append("no return yet", "dim")
    mean, deviation = mean_and_deviation(values)
    line.append(score(mean), "bold magenta")
    if count == 1:
        line.append(" over 1 seed", "dim")
    else:
        line.append(f" {'+-' if page.ascii_only else '±'} {score(deviation)}", "bold magenta")
        line.append(f" over {count} seeds, {score(min(values))} .. {score(max(values))}", "dim")
    line.truncate(page.width - 1)
    return line


def plain_progress(rows: Rows, workers: int, elapsed: float) -> str:
    """Return a line for pipes and logs: `0:30  1 of 3 done; seed 2 at 35 %, evaluation 120.3; left 5:00`."""
    running = [seed_row for seed_row in rows if seed_row.state in RUNNING]
    parts = [_done(rows)]
    for seed_row in running[:MAX_NAMED_RUNS]:
        kind, value = seed_row.value
        progress = f"at {100 * seed_row.fraction:.0f} %" if seed_row.budget else seed_row.state
        result = "" if math.isnan(value) else f", {NAMES[kind]} {score(value)}"
        parts.append(f"{seed_row.label or 'seed'} {seed_row.seed} {progress}{result}")
    if len(running) > MAX_NAMED_RUNS:
        parts.append(f"{len(running) - MAX_NAMED_RUNS} more")
    parts.append(f"left {duration(seconds_left(rows, workers))}")
    return f"{INDENT}{duration(elapsed)}  {'; '.join(parts)}"
