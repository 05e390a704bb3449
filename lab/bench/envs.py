"""How fast the compiled environments are beside their peers, in one run: millions of env steps per second.

    python -m lab.bench.envs --all --json FILE --plot FILE
    python -m lab.bench.envs --families             each backend that can run each family (families.py)

All contenders of a size are timed in turns, by the processor's time; a figure is the median of its turns. Everything
runs on one thread. On a machine that others use too, the ratios are worth more than the figures.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

import envs_fast
from lab.bench.contenders import MAKERS, OURS, PEERS, STEPS, copying
from lab.bench.families import families
from lab.bench.measure import machine
from lab.bench.plot import bars_svg, dots_svg, millions
from scripts.usage import parser_of
from utils import entry
from utils.durable_file import write_json
from utils.user_error import UserError, nearest

SIZES, ALL_SIZES = (16, 256, 4096), (16, 256, 4096, 65536)
LIMIT, FRACTION = "memory limit", "fraction of limit"


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--env", default="CartPole-v1", metavar="ID[,ID...]", help="fast environments")
    parser.add_argument("--all", action="store_true", help="every fast environment, and 65536 worlds as well")
    parser.add_argument("--seconds", type=float, default=0.2, metavar="S", help="length of one timing")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="timings per figure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the figures as SVG")
    parser.add_argument("--families", nargs="?", const="", metavar="NAME,..", help="every backend of these; none: all")
    parser.add_argument("--worlds", type=int, default=8, metavar="N", help="stepped by each backend of a family")
    asked = parser.parse_args(argv)
    if asked.repeats < 1 or not asked.seconds > 0:
        parser.error("--repeats takes a number from 1, --seconds one above 0")
    if asked.worlds < 1:
        parser.error("--worlds takes a number from 1")
    if asked.families is not None:
        return families(asked.families, asked.worlds, asked.seconds, asked.repeats, asked.json)
    ids = list(envs_fast.WORLDS) if asked.all else asked.env.split(",")
    for env_id in ids:
        if env_id not in envs_fast.WORLDS:
            raise UserError(f"no fast environment {env_id!r}{nearest(env_id, envs_fast.WORLDS)}")

    torch.set_num_threads(1)
    console = Console()
    console.print(
        f"{machine(1, 'envpool')}\n"
        f"million env steps per second, median of {asked.repeats} x {asked.seconds:g} s in turns\n"
    )
    sizes = ALL_SIZES if asked.all else SIZES
    figures: dict[str, dict[int, dict[str, float]]] = {}
    with progress(console, len(ids) * len(sizes)) as bar:
        for env_id in ids:
            figures[env_id] = {}
            for size in sizes:
                bar.update(bar.task_ids[0], description=f"{env_id}, {size:,} worlds")
                figures[env_id][size] = measure(env_id, size, asked.repeats, asked.seconds)
                bar.advance(bar.task_ids[0])
            console.print(table(env_id, figures[env_id]))
            if not console.is_terminal:  # where no bar is shown
                console.print(f"{_spent(bar)}\n")
            if asked.json:  # after each, so that a run cut short has not been in vain
                write_json(asked.json, {"machine": machine(1, "envpool"), "steps_per_second": figures})
    if asked.plot:
        asked.plot.write_text(picture(figures), encoding="utf-8")
    return 0


def progress(console: Console, count: int) -> Progress:
    """A bar with the time that has passed and the time that is left; gone when all is measured."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    left = (TextColumn("about"), TimeRemainingColumn(), TextColumn("left"))
    bar = Progress(*columns, *left, console=console, transient=True, speed_estimate_period=600)
    bar.add_task("", total=count)
    return bar


def _spent(bar: Progress) -> str:
    """The same in words."""
    task = bar.tasks[0]
    passed = task.elapsed or 0.0
    left = passed / max(task.completed, 1) * task.remaining if task.remaining else 0.0
    return f"{task.completed:g} of {task.total:g} measured in {passed:.0f} s, about {left:.0f} s left"


def picture(figures: dict[str, dict[int, dict[str, float]]]) -> str:
    """Bars for each size of the only environment; of many a line each, at the most worlds the slow peer was given."""
    if len(figures) == 1:
        ((env_id, rows),) = figures.items()
        groups = {f"{size} worlds": _rates(row) for size, row in rows.items()}
        return bars_svg(f"{env_id}: env steps per second, one thread", groups, set(OURS))
    slow = PEERS[-1]
    rows_of = {env_id: [(size, row) for size, row in rows.items() if slow in row] for env_id, rows in figures.items()}
    lines = {f"{env_id}, {rows[-1][0]:,}": _rates(rows[-1][1]) for env_id, rows in rows_of.items() if rows}
    return dots_svg("Env steps per second on one thread, and of how many worlds", lines, (OURS[0], OURS[-1]), slow)


def measure(env_id: str, size: int, repeats: int, seconds: float) -> dict[str, float]:
    """Env steps per second of every contender, the bandwidth limit, and what fraction of it the kernel reaches."""
    contenders = {name: contender for name, make in MAKERS.items() if (contender := make(env_id, size)) is not None}
    for contender in contenders.values():
        contender.run()  # compiles, and touches every page
    copy = copying(env_id, size)
    rates: dict[str, list[float]] = {name: [] for name in (*contenders, LIMIT)}
    for _ in range(repeats):
        for name, contender in contenders.items():
            rates[name].append(size * contender.steps * calls_per_second(contender.run, seconds))
        rates[LIMIT].append(size * STEPS * calls_per_second(copy, seconds))
    for contender in contenders.values():
        contender.close()
    medians = {name: statistics.median(all_) for name, all_ in rates.items()}
    return {**medians, FRACTION: medians[OURS[0]] / medians[LIMIT]}


def calls_per_second(run: Callable[[], object], seconds: float) -> float:
    """Of as many calls as fit, in seconds of this process: what others are given of a shared machine does not count."""
    count, calls, began = 0, 1, time.process_time()
    while (elapsed := time.process_time() - began) < seconds:
        for _ in range(calls):
            run()
        count, calls = count + calls, 2 * calls  # the clock is a system call: it is read seldom
    return count / elapsed


def table(env_id: str, figures: dict[int, dict[str, float]]) -> Table:
    """A row for each contender, a column for each number of worlds."""
    title = Table(title=env_id, title_justify="left", title_style="bold")
    title.add_column("worlds", no_wrap=True)
    for size in figures:
        title.add_column(f"{size:,}", justify="right", no_wrap=True)
    for name in (*MAKERS, LIMIT):
        if any(name in row for row in figures.values()):
            cells = [millions(row[name]) if name in row else "-" for row in figures.values()]
            title.add_row(
                name, *cells, style="bold" if name in OURS else None, end_section=name in (OURS[-1], PEERS[-1])
            )
    title.add_row(FRACTION, *[f"{row[FRACTION]:.0%}" for row in figures.values()])
    for peer in PEERS:
        if any(peer in row for row in figures.values()):
            ratios = [f"{row[OURS[-1]] / row[peer]:,.1f}x" if peer in row else "-" for row in figures.values()]
            title.add_row(f"face / {peer}", *ratios)
    return title


def _rates(row: dict[str, float]) -> dict[str, float]:
    return {name: rate for name, rate in row.items() if name in MAKERS}


if __name__ == "__main__":
    entry.run(main)
