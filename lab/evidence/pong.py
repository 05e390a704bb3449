"""Pong from its screen by the general settings, or from its memory: keeps the learning curve, with its time.

    python -m lab.evidence.pong                        ALE/Pong-v5:ppo, 1M env steps, seed 1: hours on two cores
    python -m lab.evidence.pong --budget 4e6 --seeds 3 precision=32 threads=2
    python -m lab.evidence.pong --features             ALE/Pong-v5:features, the shipped variant: minutes

Writes docs/results/pong/pong.json and pong.svg, or features.json and features.svg. Stopped at any time it writes what
there is, and the same command goes on: a training lies among the runs, in the group evidence-pong. Random play and a
policy that learns nothing lose by -20 to -21; the row says at how many env steps, and after how much time, the mean of
the last 100 games had left that for good.
"""

import subprocess
import sys
import time
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from lab.evidence.file import configured, machine
from lab.evidence.variants import RESULTS
from stride.commands.usage import called, parser_of
from stride.config.loader import to_plain
from stride.runstore.claim import claimed
from stride.runstore.many.parent_death import wrapped
from stride.runstore.metrics_csv import read_csv
from stride.runstore.run_dir import RunDir, runs_root
from stride.runstore.run_files import exists
from stride.utils import entry
from stride.utils.curve import Point, lines_svg
from stride.utils.durable_file import write_json
from stride.utils.interrupted import Noted
from stride.utils.provenance import PROJECT, git_hash
from stride.utils.typography import duration

SCREEN, FEATURES = "ALE/Pong-v5:ppo", "ALE/Pong-v5:features"
STEMS = {SCREEN: "pong", FEATURES: "features"}  # of the files
LEFT = -18.0  # a mean of 100 games that luck does not reach
FOLDER = RESULTS / "pong"
GROUP = "evidence-pong"
LOOK = 0.1  # seconds between looks at the training
STEPS, RETURN, TIME = "train/clock/env_steps", "train/roll/ep_rew/mean", "train/time/seconds"


class Instant(NamedTuple):
    """One row of a run that had games behind it."""

    env_steps: int
    mean_return: float
    seconds: float


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="changes of the general settings")
    parser.add_argument("--budget", default="1e6", metavar="N", help="env steps, of four frames each (default 1e6)")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="how many, from 1 on")
    parser.add_argument("--features", action="store_const", const=FEATURES, default=SCREEN, dest="words",
                        help="from 8 numbers of the console's memory, not from the screen")  # fmt: skip
    parser.add_argument("--folder", type=Path, default=FOLDER, metavar="PATH", help="where the figures go")
    given = parser.parse_args(argv)
    overrides = [f"max_timesteps={given.budget}", "eval_freq_epochs=null", "test_episodes=10", *given.overrides]
    curves: dict[str, list[Instant]] = {}
    code, seed = 0, 1
    while not code and seed <= given.seeds:
        code = trained(given.words, seed, overrides)
        curves[str(seed)] = curve(rows_of(given.words, seed, overrides))
        print(f"  seed {seed}: {told(curves[str(seed)])}", flush=True)
        write(given.folder, given.words, curves, overrides)
        seed += 1
    return code


def trained(words: str, seed: int, overrides: list[str]) -> int:
    """The exit code of one training, begun or gone on with, in a process whose progress is seen."""
    line = [sys.executable, "train.py", words, "--group", GROUP, "--seed", str(seed), *overrides]
    with Noted() as noted, subprocess.Popen(wrapped(line), cwd=PROJECT, start_new_session=True) as child:
        while child.poll() is None:
            if noted.number:
                child.send_signal(noted.number)
                return child.wait()
            time.sleep(LOOK)
    return child.returncode


def rows_of(words: str, seed: int, overrides: list[str]) -> list[dict[str, float]]:
    """What is known of that training by now."""
    config = {**to_plain(configured(words, overrides)), "seed": seed}
    file = RunDir(runs_root() / (claimed(GROUP, config) or "none")).metrics_csv
    return read_csv(file) if exists(file) else []


def curve(rows: list[dict[str, float]]) -> list[Instant]:
    """Rows before the first game was over tell no return."""
    return [Instant(int(row[STEPS]), row[RETURN], row[TIME]) for row in rows if RETURN in row]


def left(instants: list[Instant]) -> Instant | None:
    """The first instant from which on the mean stays above LEFT; None where the last one is below."""
    above = [*takewhile(lambda instant: instant.mean_return > LEFT, reversed(instants))]
    return above[-1] if above else None


def told(instants: list[Instant]) -> str:
    if not instants:
        return "no game was over"
    end, gone = instants[-1], left(instants)
    where = f", above {LEFT:g} from {gone.env_steps:,} on, after {duration(gone.seconds)}" if gone else ""
    return f"{end.mean_return:.1f} at {end.env_steps:,} env steps ({duration(end.seconds)}){where}"


def write(folder: Path, words: str, curves: dict[str, list[Instant]], overrides: list[str]) -> None:
    """The figures of the seeds so far, and their picture."""
    stem = STEMS[words]
    folder.mkdir(parents=True, exist_ok=True)
    about = {"command": called(), "overrides": overrides, "machine": machine(), "commit": git_hash()}
    write_json(folder / f"{stem}.json", {**about, "columns": Instant._fields, "seeds": curves})
    lines = {f"seed {seed}": [Point(*instant[:2]) for instant in each] for seed, each in curves.items()}
    (folder / f"{stem}.svg").write_text(lines_svg(f"{words}, mean return of 100 games", lines, None), encoding="utf-8")


if __name__ == "__main__":
    entry.run(main)
