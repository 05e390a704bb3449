"""The look of a group in training: a line per seed, the band of them all; pure functions to rich Text.

Columns are set by hand, as the console's are; what a narrow terminal has no room for is left out, never cut.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from stride.report.follow import Follower
from stride.report.run_view import newest_return
from stride.report.terminal import INDENT, Page, line_of
from stride.runstore.history import History
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import few, finite, mapping, verdict_words
from stride.utils.statistics import mean_and_deviation
from stride.utils.typography import bar, duration, score

SMOOTH = 0.3  # weight of the newest speed in the one that time left is told by
STATE, KIND, LEFT = 10, 5, 8  # widths of columns
AT_LEFT = ("state", "bar", "kind")  # columns whose text stands at the left, two blanks before it
SHORTEST_BAR, LONGEST_BAR = 4, 30
NARROWEST = 53  # columns of all but the first, with the shortest bar
UNENDED = ("starting", "training", "waiting")
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
    why: str = ""
    started: float = 0.0
    line: str = ""
    """what it said at its end"""
    run: RunDir | None = None
    """None until its folder is found"""
    follower: Follower | None = None
    speed: float = math.nan
    """env steps per second, smooth: time left is told by it"""

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
    def left(self) -> float:
        """Seconds until its budget is spent; NaN where nobody knows."""
        if self.ended:
            return 0.0
        return max(0, self.budget - self.history.env_steps) / self.speed if self.budget else math.nan

    def follow(self, run: RunDir, facts: Mapping[str, object]) -> None:
        """This is its folder, and that its config.json."""
        self.run, self.follower = run, Follower(run.metrics_csv)
        self.budget = int(finite(mapping(facts.get("config")).get("max_timesteps")) or 0)

    def refresh(self) -> None:
        """What its metrics.csv says by now."""
        if self.follower is None:
            return
        before = self.follower.history.env_steps
        self.follower.look()
        self.history = self.follower.history
        steps, rate = self.history.env_steps, self.history.rate
        if self.ended:
            return
        if steps:
            self.state = "training"
        if steps != before and rate > 0:
            self.speed = rate if math.isnan(self.speed) else self.speed + SMOOTH * (rate - self.speed)

    @property
    def value(self) -> tuple[str, float]:
        """Which return is told, and it: of the test, else of the last evaluation, else of training."""
        if self.test is not None:
            return "test", self.test
        kind, newest = newest_return(self.history.val, self.history.train)
        return kind, newest.last


def page_of(rows: Sequence[Row], workers: int, elapsed: float, page: Page) -> list[Text]:
    """All of it."""
    foot = [line_of(), all_line(rows, workers, elapsed), band_line(rows, page)]
    return [*table(rows, page._replace(height=page.height - len(foot))), *foot]


def table(rows: Sequence[Row], page: Page, reasons: bool = True) -> list[Text]:
    """Heads of the columns, and a line for each seed; of more than the page holds those that move, and a count.

    `reasons`: who failed says why in place of how far it came.
    """
    shown, hidden = _chosen(rows, max(2, page.height - 1))
    longest = max([4, *(len(row.name) for row in rows)])
    name = min(longest, max(4, page.width - NARROWEST))
    columns = _columns(name, max([STATE, *(len(row.words) for row in shown)]), page)
    heads = {"name": "run" if any(row.label for row in rows) else "seed", "state": "state", "bar": "budget",
             "steps": "env steps", "value": "return", "speed": "steps/s", "left": "left"}  # fmt: skip
    lines = [_line(columns, {column: (head, "dim") for column, head in heads.items()})]
    lines += [_row(row, columns, page, reasons) for row in shown]
    if hidden:
        counts = {state: sum(row.state == state for row in hidden) for state in (*UNENDED, *ENDED)}
        words = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        lines.append(line_of(f"{INDENT}{'':<{name}}  and {words}", "dim"))
    return lines


def _chosen(rows: Sequence[Row], most: int) -> tuple[list[Row], list[Row]]:
    """In the order of seeds: those in training first, then failed ones, then the last that ended, then the next."""
    if len(rows) <= most:
        return list(rows), []
    order = {"training": 0, "starting": 0, "failed": 1, "waiting": 3}
    ranked = sorted(rows, key=lambda row: order.get(row.state, 2))
    kept = {id(row) for row in ranked[: most - 1]}
    return [row for row in rows if id(row) in kept], [row for row in rows if id(row) not in kept]


def _columns(name: int, state: int, page: Page) -> dict[str, int]:
    """Their widths, blanks before them among these; what there is no room for is left out."""
    columns = {"name": len(INDENT) + name, "state": 2 + state, "bar": 2, "percent": 5, "steps": 13, "kind": 3 + KIND,
               "value": 8, "speed": 11, "left": 2 + LEFT}  # fmt: skip
    for optional, shortest_bar in (("steps", 12), ("speed", 10)):
        if page.width - sum(columns.values()) < shortest_bar:
            del columns[optional]
    columns["bar"] += max(SHORTEST_BAR, min(LONGEST_BAR, page.width - sum(columns.values())))
    return columns


def _line(columns: Mapping[str, int], cells: Mapping[str, tuple[str, str]]) -> Text:
    """`cells`: text and style by column; the others stay empty."""
    line = line_of()
    for column, width in columns.items():
        text, style = cells.get(column, ("", ""))
        line.append(f"  {text:<{width - 2}}" if column in AT_LEFT else f"{text:>{width}}", style)
    return line


def _row(row: Row, columns: Mapping[str, int], page: Page, reasons: bool) -> Text:
    cells = {"name": (_cut(row.name, columns["name"] - len(INDENT)), ""),
             "state": (row.words, STYLES.get(row.state, "dim"))}  # fmt: skip
    if row.why and reasons:
        line = _line({column: columns[column] for column in cells}, cells)
        room = page.width - line.cell_len - 2
        return line.append("  " + (row.why if len(row.why) <= room else f"{row.why[: room - 3]}..."), "dim")
    tone = "" if row.state == "training" else "dim"
    steps, rate, (kind, value) = row.history.env_steps, row.history.rate, row.value
    fraction = min(1.0, steps / row.budget) if row.budget else 0.0
    done, rest = bar(fraction, columns["bar"] - 2, page.ascii_only)
    cells |= {
        "bar": (done + rest, "dim"),
        "percent": (f"{100 * fraction:.0f}%" if row.budget else "", tone or "bold"),
        "steps": (f"{steps:,}" if steps else "", tone),
        "kind": ("" if math.isnan(value) else kind, "dim"),
        "value": ("" if math.isnan(value) else score(value), "bold"),
        "speed": ("" if row.ended or math.isnan(rate) else f"{rate:,.0f}", "dim"),
        "left": (f"in {duration(row.seconds)}" if row.ended and row.seconds else "", tone),
    }
    if row.state == "training":
        cells["left"] = duration(row.left), ""
    line = _line(columns, cells)
    start = columns["name"] + columns["state"] + 2
    line.stylize("not dim green" if row.state == "solved" else "not dim cyan", start, start + len(done))
    line.truncate(page.width)
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
