"""Did a change make a command slower? The same command in two checkouts in turn, so that a busy hour meets both.

    python -m lab.bench.pairs ../before train.py CartPole-v1:ppo max_timesteps=256 -q
    python -m lab.bench.pairs --printed ../before lab/bench/stepping.py 16

The other checkout is a clone at the commit before (`git clone . ../before && git -C ../before checkout -q HASH`); both
run with this Python, each with its own modules; a file of lab/ or scripts/ is this checkout's in both, as it measures.
Printed are the medians and the ratio now / before: its median over the pairs with a bootstrapped 95 % interval. Exit
code 1: even the kind end of the interval is more than 2 % worse.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.provenance import PROJECT
from stride.utils.statistics import interval
from stride.utils.user_error import UserError

ALLOWED = 1.02  # ratio of seconds: less is noise of a shared machine


class Cost(NamedTuple):
    """What one run of the command took, in seconds; `printed` is the last number it printed, a rate per second."""

    wall: float
    cpu: float
    printed: float = 1.0


def main(argv: list[str]) -> int:
    """Alternate, print each pair as it is there, then the verdict."""
    parser = parser_of(__doc__)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--pairs", type=int, default=11, help="how many (default 11)")
    parser.add_argument(
        "--printed", action="store_true", help="compare the number it prints last, a rate: more is better"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what Python shall run in both")
    options = parser.parse_args(argv)
    if not (options.before / "train.py").is_file():
        raise UserError(f"{options.before} is no checkout: there is no train.py in it")
    if options.pairs < 1 or not options.command:
        raise UserError("nothing to compare: --pairs from 1, and behind the checkout what Python shall run")
    for folder in (options.before, PROJECT):
        measured(folder, options.command, options.printed)  # kernels, caches
    pairs = []
    for turn in range(options.pairs):
        order = [options.before, PROJECT] if turn % 2 == 0 else [PROJECT, options.before]
        costs = {folder: measured(folder, options.command, options.printed) for folder in order}
        pairs.append((costs[options.before], costs[PROJECT]))
        print(
            f"pair {turn + 1}: before {told(pairs[-1][0], options.printed)}, now {told(pairs[-1][1], options.printed)}"
        )
    if options.printed:
        return verdict("printed", [before.printed / now.printed for before, now in pairs])
    return max(
        verdict("wall", [now.wall / before.wall for before, now in pairs]),
        verdict("CPU", [now.cpu / before.cpu for before, now in pairs]),
    )


def measured(folder: Path, command: list[str], printed: bool, **environment: str) -> Cost:
    """Run it once in that checkout; its own modules come first there."""
    before, began = os.times(), time.perf_counter()
    words = [str(PROJECT / word) if word.startswith(("lab/", "scripts/")) else word for word in command]
    own = {**os.environ, "PYTHONPATH": str(folder.resolve()), **environment}
    ended = subprocess.run([sys.executable, *words], cwd=folder, env=own, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - began, os.times()
    if ended.returncode:
        said = (ended.stderr or ended.stdout).strip()[-200:]
        raise UserError(f"exit code {ended.returncode} in {folder}: {said}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(wall, cpu, float(ended.stdout.split()[-1])) if printed else Cost(wall, cpu)


def told(cost: Cost, printed: bool) -> str:
    """One run in words."""
    return f"{cost.printed:,.6g}" if printed else f"{cost.wall:.2f} s ({cost.cpu:.2f} s CPU)"


def verdict(name: str, ratios: list[float]) -> int:
    """Print the ratio of times and say whether it is worse beyond doubt."""
    low, high = interval(ratios, np.median)
    middle = f"{np.median(ratios):.3f} of before, 95 % interval {low:.3f} to {high:.3f}"
    print(f"{name}: now takes {middle}, {len(ratios)} pairs")
    return int(low > ALLOWED)


if __name__ == "__main__":
    entry.run(main)
