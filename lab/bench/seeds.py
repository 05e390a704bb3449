"""What a whole training costs its user, seed by seed, in two checkouts in turn: wall and CPU seconds, and their phases.

    python -m lab.bench.seeds ../before CartPole-v1:ppo --seeds 1-20

The other checkout is a clone at the commit before, as in lab/bench/pairs.py. A run is `train.py CONFIG seed=N -q`,
in a folder that is deleted; both checkouts train once before anything counts, so kernels are compiled. Printed are each
seed, the medians, the ratios now / before (medians over the seeds with bootstrapped 95 % intervals) of the whole
command and of the training in it, and which part of the time of all trainings was spent on what: the start of the
process is in the seconds, not in these shares. Exit code 1: even the kind end of an interval is more than 2 % worse.
"""

import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from lab.bench.pairs import Cost, measured, told, verdict
from stride.commands.usage import parser_of
from stride.runstore.metrics_csv import read_csv
from stride.runstore.phases import PHASES, PREFIX
from stride.runstore.run_files import read_json
from stride.utils import entry
from stride.utils.provenance import PROJECT
from stride.utils.user_error import UserError

SECONDS = f"{PREFIX}seconds"
UNNAMED = "not told"  # by checkouts that name fewer phases


class Run(NamedTuple):
    """One training."""

    cost: Cost
    env_steps: int
    seconds: dict[str, float]  # by phase


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("config", help="ENV:VARIANT")
    parser.add_argument("--seeds", type=seeds_of, default=range(1, 21), help="first-last (default 1-20)")
    parser.add_argument("overrides", nargs="*", help="key=value, as train.py takes them")
    options = parser.parse_args(argv)
    if not (options.before / "train.py").is_file():
        raise UserError(f"{options.before} is no checkout: there is no train.py in it")
    folders, words = (options.before, PROJECT), [options.config, *options.overrides]
    for folder in folders:  # kernels, caches
        trained(folder, words, options.seeds[0])
    runs: list[tuple[Run, Run]] = []
    for seed in options.seeds:
        order = folders if seed % 2 else folders[::-1]
        found = {folder: trained(folder, words, seed) for folder in order}
        before, now = (found[folder] for folder in folders)
        runs.append((before, now))
        print(f"seed {seed}: before {words_of(before)}, now {words_of(now)}", flush=True)
    for name, each in (("before", [run for run, _ in runs]), ("now", [run for _, run in runs])):
        wall, cpu = (statistics.median(values) for values in zip(*(run.cost[:2] for run in each), strict=True))
        print(f"{name}: median {told(Cost(wall, cpu), False)}; {parts_of(each)}")
    return max(
        verdict("wall", [now.cost.wall / before.cost.wall for before, now in runs]),
        verdict("CPU", [now.cost.cpu / before.cost.cpu for before, now in runs]),
        verdict("wall of training", [sum(now.seconds.values()) / sum(before.seconds.values()) for before, now in runs]),
    )


def seeds_of(text: str) -> range:
    """`1-20`, or one number."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def trained(folder: Path, words: list[str], seed: int) -> Run:
    """One training in that checkout."""
    with tempfile.TemporaryDirectory(prefix="stride-seeds-") as root:
        cost = measured(folder, ["train.py", *words, f"seed={seed}", "-q"], False, STRIDE_RUNS=root)
        [run] = [each for each in Path(root).iterdir() if (each / "config.json").is_file() and not each.is_symlink()]
        outcome = read_json(run / "config.json")["outcome"]
        return Run(cost, outcome["env_steps"], seconds_of(run, outcome))


def seconds_of(run: Path, outcome: Mapping[str, object]) -> dict[str, float]:
    """Of a training by phase: of its rows, and of the whole where that is told."""
    rows = [row for row in read_csv(run / "metrics.csv") if SECONDS in row]
    total = rows[-1][SECONDS]
    if isinstance(parts := outcome.get("phases"), dict):
        return {phase: total * part for phase, part in parts.items()}
    lasted = [row[SECONDS] - (rows[k - 1][SECONDS] if k else 0.0) for k, row in enumerate(rows)]
    named = {
        phase: sum(row.get(f"{PREFIX}{phase}", 0.0) * seconds for row, seconds in zip(rows, lasted, strict=True))
        for phase in PHASES
        if f"{PREFIX}{phase}" in rows[-1]
    }
    return {**named, UNNAMED: total - sum(named.values())}


def words_of(run: Run) -> str:
    return f"{told(run.cost, False)}, {run.env_steps:,} env steps"


def parts_of(runs: list[Run]) -> str:
    """Of the time of all these trainings together."""
    total = sum(sum(run.seconds.values()) for run in runs)
    names = dict.fromkeys(name for run in runs for name in run.seconds)
    return ", ".join(f"{name} {sum(run.seconds.get(name, 0.0) for run in runs) / total:.1%}" for name in names)


if __name__ == "__main__":
    entry.run(main)
