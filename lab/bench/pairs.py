"""Did a change make a command slower? The same command in two checkouts in turn, so that a busy hour meets both.

    python -m lab.bench.pairs ../before train.py CartPole-v1:ppo max_timesteps=256 -q
    python -m lab.bench.pairs --seeds 1-20 ../before train.py CartPole-v1:ppo -q
    python -m lab.bench.pairs --printed ../before lab/bench/rate.py 16

The other checkout is a clone at the commit before (`git clone . ../before && git -C ../before checkout -q HASH`); both
run with this Python, each with its own modules; a file of lab/ or scripts/ is this checkout's in both, as it measures.
Both do it once before anything counts, so kernels are compiled. Printed are the medians and the ratio now / before: its
median over the pairs with a bootstrapped 95 % interval. With --seeds each pair trains with a seed of its own, and told
are the training's own seconds and their phases, too. Exit code 1: even the kind end of an interval is more than 2 %
worse.
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

ALLOWED = 1.02  # ratio of seconds: less is noise of a shared machine


class Cost(NamedTuple):
    wall: float
    cpu: float
    printed: float  # the last number it printed, a rate per second
    phases: dict[str, float]  # seconds of the training, where it was one


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--pairs", type=int, default=11, help="how many (default 11)")
    parser.add_argument("--seeds", type=seeds_of, metavar="FIRST-LAST", help="train a pair with each of these seeds")
    parser.add_argument("--printed", action="store_true", help="compare the rate it prints last: more is better")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what Python shall run in both")
    options = parser.parse_args(argv)
    is_checkout(options.before)
    if options.pairs < 1 or not options.command:
        raise UserError("nothing to compare: --pairs from 1, and behind the checkout what Python shall run")
    folders = (options.before, PROJECT)
    pairs = []
    for number in [0, *(options.seeds or range(1, options.pairs + 1))]:
        words = [*options.command, f"seed={number or 1}"] if options.seeds else options.command
        order = folders if number % 2 else folders[::-1]
        costs = {folder: measured(folder, words, options.printed) for folder in order}
        before, now = (costs[folder] for folder in folders)
        if number:  # the first compiled kernels and filled caches
            pairs.append((before, now))
            print(f"{number}: before {told(before, options.printed)}, now {told(now, options.printed)}", flush=True)
    if options.printed:
        return compared("printed", pairs, lambda cost: 1 / cost.printed)
    worse = max(compared("wall", pairs, lambda cost: cost.wall), compared("CPU", pairs, lambda cost: cost.cpu))
    if options.seeds:
        worse = max(worse, compared("training", pairs, lambda cost: sum(cost.phases.values())))
        for name, costs_of in zip(("before", "now"), zip(*pairs, strict=True), strict=True):
            print(f"{name}: {shares(costs_of)}")
    return worse


def seeds_of(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def is_checkout(folder: Path) -> None:
    if not (folder / "train.py").is_file():
        raise UserError(f"{folder} is no checkout: there is no train.py in it")


def measured(folder: Path, command: Sequence[str], printed: bool = False, **environment: str) -> Cost:
    """Run it once in that checkout, its own modules first there; its runs are gone afterwards."""
    words = [str(PROJECT / word) if word.startswith(("lab/", "scripts/")) else word for word in command]
    with tempfile.TemporaryDirectory(prefix="stride-pairs-") as runs:
        own = {**os.environ, "PYTHONPATH": str(folder.resolve()), "STRIDE_RUNS": runs, **environment}
        own.pop("PYTHONDONTWRITEBYTECODE", None)  # modules stay compiled
        before, began = os.times(), time.perf_counter()
        line = [sys.executable, *words]
        ended = subprocess.run(line, cwd=folder, env=own, capture_output=True, text=True, check=False)
        wall, after = time.perf_counter() - began, os.times()
        if ended.returncode:
            said = (ended.stderr or ended.stdout).strip()[-200:]
            raise UserError(f"exit code {ended.returncode} in {folder}: {said}")
        trained = [run for run in Path(runs).glob("*/config.json") if not run.parent.is_symlink()]
        phases = phases_of(trained[0]) if len(trained) == 1 else {}
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(wall, cpu, float(ended.stdout.split()[-1]) if printed else 1.0, phases)


def phases_of(config_json: Path) -> dict[str, float]:
    outcome = read_json(config_json)["outcome"]
    return {phase: outcome["seconds"] * part for phase, part in (outcome.get("phases") or {}).items()}


def told(cost: Cost, printed: bool) -> str:
    return f"{cost.printed:,.6g}" if printed else f"{cost.wall:.2f} s ({cost.cpu:.2f} s CPU)"


def shares(costs: Sequence[Cost]) -> str:
    total = sum(sum(cost.phases.values()) for cost in costs)
    names = dict.fromkeys(name for cost in costs for name in cost.phases)
    return ", ".join(f"{name} {sum(cost.phases.get(name, 0.0) for cost in costs) / total:.1%}" for name in names)


def compared(name: str, pairs: Sequence[tuple[Cost, Cost]], seconds: Callable[[Cost], float]) -> int:
    """Print medians and the ratio of times, and say whether it is worse beyond doubt."""
    before, now = ([seconds(pair[i]) for pair in pairs] for i in range(2))
    ratio = ratio_of(now, before)
    middle = f"{ratio.median:.3f} of before, 95 % interval {ratio.low:.3f} to {ratio.high:.3f}"
    medians = f"{statistics.median(before):.4g} s before, {statistics.median(now):.4g} s now"
    print(f"{name}: {medians}: now takes {middle}, {ratio.turns} pairs")
    return int(ratio.low > ALLOWED)


if __name__ == "__main__":
    entry.run(main)
