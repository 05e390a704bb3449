"""Did a change make a command slower? Runs it in two checkouts in turn, so that a busy machine slows both alike.

    python -m lab.bench.pairs ../before train.py CartPole-v1:ppo max_timesteps=256 -q
    python -m lab.bench.pairs --seeds 1-20 ../before train.py CartPole-v1:ppo -q
    python -m lab.bench.pairs --printed ../before lab/bench/rate.py 16

The other checkout is a clone at the commit before (`git clone . ../before && git -C ../before checkout -q HASH`). Both
run with this Python, each with its own modules, but a file of lab/ or scripts/ is always this checkout's: it measures.
Both run once untimed, so that kernels are compiled. This prints the medians, and the ratio now / before: its median
over the pairs with a bootstrapped 95 % interval. With --seeds each pair trains with its own seed, and the training's
seconds and phases are printed, too. Exit code 1: even the lower end of an interval is more than 2 % worse.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from lab.bench.ratio import ratio_of
from stride.commands.usage import parser_of
from stride.runstore.run_files import read_json
from stride.utils import entry
from stride.utils.provenance import PROJECT
from stride.utils.user_error import UserError

MAX_RATIO = 1.02  # of seconds, now / before: smaller ones may be noise of a shared machine


class Cost(NamedTuple):
    """What one run of a command took, in seconds."""

    wall: float
    cpu: float
    printed: float  # the last number that the command printed, a rate per second; 1 if it is not compared
    phases: dict[str, float]  # seconds of a training's phases; {} if the command did not train exactly one run


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--pairs", type=int, default=11, help="how many (default 11)")
    parser.add_argument("--seeds", type=seeds_of, metavar="FIRST-LAST", help="train a pair with each of these seeds")
    parser.add_argument("--printed", action="store_true", help="compare the rate it prints last: more is better")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what Python shall run in both")
    args = parser.parse_args(argv)
    is_checkout(args.before)
    if args.pairs < 1 or not args.command:
        raise UserError("nothing to compare: --pairs from 1, and behind the checkout what Python shall run")
    folders = (args.before, PROJECT)
    pairs = []
    for number in [0, *(args.seeds or range(1, args.pairs + 1))]:
        arguments = [*args.command, f"seed={number or 1}"] if args.seeds else args.command
        order = folders if number % 2 else folders[::-1]
        costs = {folder: measured(folder, arguments, args.printed) for folder in order}
        before, now = (costs[folder] for folder in folders)
        if number:  # pair 0 compiled kernels and filled caches
            pairs.append((before, now))
            print(f"{number}: before {cost_text(before, args.printed)}, now {cost_text(now, args.printed)}", flush=True)
    if args.printed:
        return compared("printed", pairs, lambda cost: 1 / cost.printed)
    exit_code = max(compared("wall", pairs, lambda cost: cost.wall), compared("CPU", pairs, lambda cost: cost.cpu))
    if args.seeds:
        exit_code = max(exit_code, compared("training", pairs, lambda cost: sum(cost.phases.values())))
        for name, costs_of in zip(("before", "now"), zip(*pairs, strict=True), strict=True):
            print(f"{name}: {shares(costs_of)}")
    return exit_code


def seeds_of(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def is_checkout(folder: Path) -> None:
    if not (folder / "train.py").is_file():
        raise UserError(f"{folder} is no checkout: there is no train.py in it")


def measured(folder: Path, command: Sequence[str], printed: bool = False, **environment: str) -> Cost:
    """Run a command once in a checkout, with the checkout's modules; its runs are deleted afterwards."""
    arguments = [str(PROJECT / word) if word.startswith(("lab/", "scripts/")) else word for word in command]
    with tempfile.TemporaryDirectory(prefix="stride-pairs-") as runs:
        variables = {**os.environ, "PYTHONPATH": str(folder.resolve()), "STRIDE_RUNS": runs, **environment}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)  # modules stay compiled
        before, began = os.times(), time.perf_counter()
        program = [sys.executable, *arguments]
        process = subprocess.run(program, cwd=folder, env=variables, capture_output=True, text=True, check=False)
        wall, after = time.perf_counter() - began, os.times()
        if process.returncode:
            message = (process.stderr or process.stdout).strip()[-200:]
            raise UserError(f"exit code {process.returncode} in {folder}: {message}")
        trained = [run for run in Path(runs).glob("*/config.json") if not run.parent.is_symlink()]
        phases = phases_of(trained[0]) if len(trained) == 1 else {}
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(wall, cpu, float(process.stdout.split()[-1]) if printed else 1.0, phases)


def phases_of(config_json: Path) -> dict[str, float]:
    outcome = read_json(config_json)["outcome"]
    return {phase: outcome["seconds"] * part for phase, part in (outcome.get("phases") or {}).items()}


def cost_text(cost: Cost, printed: bool) -> str:
    return f"{cost.printed:,.6g}" if printed else f"{cost.wall:.2f} s ({cost.cpu:.2f} s CPU)"


def shares(costs: Sequence[Cost]) -> str:
    total = sum(sum(cost.phases.values()) for cost in costs)
    names = dict.fromkeys(name for cost in costs for name in cost.phases)
    return ", ".join(f"{name} {sum(cost.phases.get(name, 0.0) for cost in costs) / total:.1%}" for name in names)


def compared(name: str, pairs: Sequence[tuple[Cost, Cost]], seconds: Callable[[Cost], float]) -> int:
    """Print medians and the ratio of seconds; return 1 if the whole interval is above MAX_RATIO, else 0."""
    before, now = ([seconds(pair[i]) for pair in pairs] for i in range(2))
    ratio = ratio_of(now, before)
    middle = f"{ratio.median:.3f} of before, 95 % interval {ratio.low:.3f} to {ratio.high:.3f}"
    medians = f"{statistics.median(before):.4g} s before, {statistics.median(now):.4g} s now"
    print(f"{name}: {medians}: now takes {middle}, {ratio.turns} pairs")
    return int(ratio.low > MAX_RATIO)


if __name__ == "__main__":
    entry.run(main)
