"""Trains the shipped variants by the rules of lab/evidence/rows.py, and writes docs/results.md from the records.

    python -m lab.evidence campaign --hours 2.5             the next due runs, by value and price
    python -m lab.evidence campaign --only P1 P2 --dry-run  what is due there and what it costs; nothing is trained
    python -m lab.evidence campaign --only CartPole-v1:ppo  all that is missing of one row
    python -m lab.evidence check                            the first tenth of each cheap row (make evidence-check)
    python -m lab.evidence page                             docs/results.md, its pictures and config/bands.json

A campaign may be killed at any time: the same command continues it, also in the middle of a training. Evidence is about
learning, not about speed, so --processes may train several runs side by side, each with one thread.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import stride.agents.algorithms  # noqa: F401  # makes every algorithm's keys known
from lab.evidence import bands, families
from lab.evidence.receipts import check
from lab.evidence.rows import Row, chosen
from lab.evidence.runs import DONE, TAKEN, Run, Store
from lab.host import switches
from stride.commands.usage import parser_of
from stride.config import bands as shipped_bands
from stride.utils.provenance import PROJECT
from stride.utils.typography import duration
from stride.utils.user_error import UserError

ACTIONS = ("campaign", "check", "page")
RECORD_FOLDERS = ("docs", "evidence")  # changes in them change no training
SEEDS_PER_BATCH = 5  # enough for an interval; a row gets more only after every row has so many
POLL_PERIOD = 0.1  # seconds after which the processes are looked at again


class Process(Protocol):
    """A started run: the part of subprocess.Popen that is used here."""

    def poll(self) -> int | None: ...
    def send_signal(self, number: int) -> None: ...


def main(argv: list[str]) -> int:
    given = parse(argv)
    rows, store = chosen(given.only), Store()
    if given.kind == "page":
        return write_page(store)
    if given.kind == "check":
        return check(rows, store)
    runs = due_runs(rows, store)
    print(plan(rows, store, runs))
    if given.dry_run or not runs:
        return 0
    check_tree()
    code = work(runs, store, given.hours * 3600, given.processes, partial(start, store))
    print("  python -m lab.evidence page writes docs/results.md from the records")
    return code


def parse(argv: list[str]) -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("kind", choices=ACTIONS, help="what to do")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="pieces (P1), names or parts of names")
    parser.add_argument("--hours", type=float, default=2.5, metavar="N", help="stop after so many hours (default 2.5)")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="trainings side by side (default 1)")
    parser.add_argument("--dry-run", action="store_true", help="print what is due with its price, train nothing")
    given = parser.parse_args(argv)
    if given.processes < 1 or not given.hours > 0:
        raise UserError("--processes takes a number from 1 on, --hours one above 0")
    return given


def write_page(store: Store) -> int:
    """Write docs/results.md, its pictures and config/bands.json."""
    page = families.write_results(store)
    shipped_bands.FILE.write_text(bands.text(families.in_order(store)), encoding="utf-8")
    print(f"  {os.path.relpath(page)}; python -m lab.write_docs writes what follows from it")
    return 0


def check_tree() -> None:
    """Raise UserError if code is not committed: nobody could repeat what is trained now."""
    command = ["git", "status", "--porcelain", "--", ".", *(f":!{folder}" for folder in RECORD_FOLDERS)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError("the campaign needs a git checkout: a record names its commit")
    if done.stdout.strip():
        changed = done.stdout.splitlines()[0].split()[-1]
        raise UserError(f"{changed} is not committed; commit or remove it, as a record names the commit of its code")


def due_runs(rows: Sequence[Row], store: Store) -> list[Run]:
    """Return the due runs in the order in which they are trained.

    Piece by piece; in a piece first SEEDS_PER_BATCH seeds of every row, the cheapest row first, then as many again.
    """
    runs = {}
    for row in rows:
        try:
            row.config()
        except UserError as error:
            print(f"  {row.variant} is left out: {error}")
            continue
        price, seeds = price_of(row, store), store.seeds(row)
        for seed in store.due(row):
            batch = (seed - seeds.start) // SEEDS_PER_BATCH
            runs[Run(row, seed)] = (piece_order(row.piece), batch, price, row.variant, seed)
    return sorted(runs, key=lambda run: runs[run])


def piece_order(piece: str) -> int:
    """Return a sort key: P1, P2, .. by number, then the pieces without a number ("later")."""
    return int(piece[1:]) if piece[1:].isdigit() else sys.maxsize


def price_of(row: Row, store: Store) -> float:
    """Return the seconds of a core for a run: the median of recorded runs, else the table's estimate."""
    spent = [record["core_seconds"] for record in store.current(row).values() if "core_seconds" in record]
    return float(statistics.median(spent)) if spent else float(row.seconds)


def plan(rows: Sequence[Row], store: Store, runs: Sequence[Run]) -> str:
    """Return a line for each row that has due runs, and a last line with the price of each piece in core hours."""
    lines = [f"  {'variant':34} {'piece':6} {'due':>9} {'env steps':>11} {'s a run':>8} {'core h':>7}"]
    hours: dict[str, float] = {}
    for row in rows:
        due = sum(run.row is row for run in runs)
        if due:
            price = price_of(row, store)
            hours[row.piece] = hours.get(row.piece, 0.0) + due * price / 3600
            count = f"{due} of {row.seeds}"
            steps = row.config().max_timesteps
            lines.append(
                f"  {row.variant:34} {row.piece:6} {count:>9} {steps:>11,} {price:>8,.0f} {due * price / 3600:>7.2f}"
            )
    pieces = ", ".join(f"{piece} {hours[piece]:.1f}" for piece in sorted(hours, key=piece_order))
    return "\n".join([*lines, f"  {len(runs)} runs are due, {sum(hours.values()):.1f} core hours ({pieces})"])


def start(store: Store, run: Run) -> subprocess.Popen[bytes]:
    """Start a process that trains a run.

    It computes as the processor of the row's first record did, so that one machine can check the whole row.
    """
    command = [sys.executable, "-m", "lab.evidence.run", run.row.variant, str(run.seed)]
    recorded = next(iter(store.current(run.row).values()), None)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(switches(recorded["processor"]) if recorded else {})}
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=PROJECT, env=environment, stdin=quiet, stdout=quiet)


def work(runs: Sequence[Run], store: Store, seconds: float, processes: int, begin: Callable[[Run], Process]) -> int:
    """Train due runs, `processes` at a time, for so many `seconds`; return 1 if a run failed, else 0.

    When the time is over, running trainings are asked to save a checkpoint; this waits for them. `begin` starts a run.
    """
    waiting, running, failed, done = [*runs], dict[Run, Process](), 0, 0
    began = time.monotonic()
    is_over = False
    while running or (waiting and not is_over):
        while waiting and len(running) < processes and not is_over:
            run = waiting.pop(0)
            running[run] = begin(run)
        for run in [run for run, process in running.items() if process.poll() is not None]:
            code = running.pop(run).poll()
            done += 1
            failed += code not in (DONE, TAKEN)
            left = sum(price_of(other.row, store) for other in (*waiting, *running)) / processes
            spent = time.monotonic() - began
            line = (
                f"{done} of {len(runs)} runs, {duration(spent)} of {duration(seconds)}, {duration(left)} left for all"
            )
            print(f"  {run.row.variant} seed {run.seed}: {outcome(run, store, code)} | {line}", flush=True)
        if not is_over and time.monotonic() - began > seconds:
            is_over = True
            for process in running.values():
                process.send_signal(signal.SIGTERM)  # the training saves a checkpoint and goes on another time
        time.sleep(POLL_PERIOD)
    return 1 if failed else 0


def outcome(run: Run, store: Store, code: int | None) -> str:
    """Return in words how a run's process ended; `code`: its exit code."""
    record = store.records(run.row.variant).get(run.seed)
    if code == TAKEN:
        return "another process has it"
    if record is None:
        return f"stopped with code {code}, goes on another time"
    if record["status"] != "finished":
        return f"FAILED: {record['line']}"
    return f"{record['final'].get('mean', float('nan')):.4g} after {record['env_steps']:,} steps"
