"""Runs of one command that differ in their seed alone: started side by side, told as they finish, then summed up."""

import secrets
import time
from collections.abc import Sequence
from typing import Any

from utils.process_pool import run_all
from utils.run_dir import sound_runs
from utils.statistics import interval, iqm


def train_seeds(command: Sequence[str], seeds: Sequence[int], workers: int) -> int:
    """One process per seed, at most `workers` at a time; the exit code is 0 when all of theirs were."""
    group = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    shared = [*command, "--quiet", "--group", group]
    print(f"\n  group {group}: {len(seeds)} seeds, {min(workers, len(seeds))} at a time\n", flush=True)
    worst = 0
    for done in run_all([[*shared, "--seed", str(seed)] for seed in seeds], workers):
        lines = done.output_tail.strip().splitlines() or [f"ended with code {done.returncode} and no word"]
        worst = max(worst, done.returncode)
        print(f"  seed {seeds[done.index]:>3}  {lines[-1]}", flush=True)
    print(f"\n  {summary(outcomes(group))}\n  group {group}\n")
    return worst


def outcomes(group: str) -> list[dict[str, Any]]:
    """How each finished run of a group ended, oldest first."""
    facts = [facts for _, facts in sound_runs() if facts.get("group") == group and "outcome" in facts]
    return [each["outcome"] for each in facts[::-1]]


def summary(ended: Sequence[dict[str, Any]]) -> str:
    """Mean, interquartile mean with its 95 % interval, and how many solved it."""
    means = [outcome["test_mean"] for outcome in ended if outcome["test_mean"] is not None]
    if not means:
        return f"{len(ended)} runs finished, none was tested"
    low, high = interval(means)
    solved = sum(outcome["solved"] for outcome in ended)
    mean = sum(means) / len(means)
    return f"{len(means)} runs: mean {mean:.2f}, IQM {iqm(means):.2f} [95 % {low:.2f} .. {high:.2f}], {solved} solved"
