"""MuJoCo's bodies by general settings beside Stable-Baselines3 by the same numbers: learning curves of one machine.

    python -m lab.evidence.mujoco                            every row, seeds 1 to 3, theirs and ours in turns
    python -m lab.evidence.mujoco Hopper --budget 20_000     the rows with that in their name, for so many steps
    python -m lab.evidence.mujoco --only-report              the table and the curves again, nothing is trained

One thread each. Both are evaluated by 10 greedy episodes 20 times. What is there is kept: the same command goes on.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lab.evidence.comparison import band_of
from lab.evidence.file import file_stem, machine
from lab.evidence.report import table
from lab.evidence.variants import RESULTS
from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.curve import bands_svg
from stride.utils.durable_file import read_json, write_json
from stride.utils.provenance import PROJECT, git_hash
from stride.utils.statistics import interval
from stride.utils.typography import score

FOLDER = RESULTS / "mujoco"
FIGURES = FOLDER / "rows.json"
WHO = ("ours", "sb3")
ROWS = {  # and how many env steps an evening of two cores allows
    "InvertedPendulum-v5:ppo": 100_000,
    "InvertedPendulum-v5:sac": 20_000,
    "Hopper-v5:ppo": 500_000,
    "Hopper-v5:sac": 200_000,
    "HalfCheetah-v5:ppo": 500_000,
    "HalfCheetah-v5:sac": 200_000,
}
EPISODES, LOOKS = 10, 20  # of an evaluation; how many evaluations
HEAD = ("environment and algorithm", "who", "seeds", "env steps", "last evaluation", "minutes")


class Curve(NamedTuple):
    """One training: what its evaluations came to, over env steps."""

    words: str
    who: str
    seed: int
    budget: int
    points: list[tuple[int, float]]
    seconds: float


def main(argv: list[str]) -> int:
    """Exit code: 1 where a training failed."""
    parser = parser_of(__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="a part of the names")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="how many seeds (default 3)")
    parser.add_argument("--first", type=int, default=1, metavar="N", help="the first of them (default 1)")
    parser.add_argument("--budget", type=int, metavar="N", help="env steps instead of those of the rows")
    parser.add_argument("--only-report", action="store_true", help="train nothing, report from the file")
    given = parser.parse_args(argv)
    found, failed = kept(), 0
    for words, budget in ROWS.items() if not given.only_report else ():
        if given.pattern.casefold() in words.casefold():
            failed += measure(words, given.budget or budget, range(given.first, given.first + given.seeds), found)
    print("\n" + "\n".join(told(found)))
    draw(found)
    return 1 if failed else 0


def kept() -> list[Curve]:
    rows = read_json(FIGURES)["rows"] if FIGURES.is_file() else []
    return [Curve(**{**row, "points": [(int(x), float(y)) for x, y in row["points"]]}) for row in rows]


def measure(words: str, budget: int, seeds: Sequence[int], found: list[Curve]) -> int:
    """Train what is missing, who is first changes with the seed, and keep each as soon as it is there. -> failures"""
    failed = 0
    for seed in seeds:
        for who in WHO[:: 1 if seed % 2 else -1]:
            if any(curve[:4] == (words, who, seed, budget) for curve in found):
                continue
            print(f"  {words} seed {seed}, {who}: {budget:,} env steps", flush=True)
            try:
                found.append(trained(words, who, seed, budget))
            except subprocess.CalledProcessError as error:
                failed += 1
                print(f"  FAILED: {(error.stderr or 'no word').strip().splitlines()[-1]}", flush=True)
                continue
            rows = [curve._asdict() for curve in sorted(found)]
            FOLDER.mkdir(parents=True, exist_ok=True)
            write_json(FIGURES, {"machine": machine(), "commit": git_hash(), "rows": rows})
    return failed


def trained(words: str, who: str, seed: int, budget: int) -> Curve:
    """In a process of its own, as everybody's training is."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "curve.json")
        line = [sys.executable, "-m", "lab.evidence.mujoco_curve", words, who, str(seed), str(budget), str(path)]
        subprocess.run(line, cwd=PROJECT, check=True, stderr=subprocess.PIPE, text=True)
        told: dict[str, Any] = read_json(path)
    return Curve(words, who, seed, budget, [(int(x), float(y)) for x, y in told["points"]], told["seconds"])


def told(found: Sequence[Curve]) -> Iterator[str]:
    """Markdown: a line for each way of each row and budget, mean of the seeds and its interval."""
    lines = []
    for words, budget in dict.fromkeys((curve.words, curve.budget) for curve in sorted(found)):
        for who in WHO:
            curves = [each for each in found if (each.words, each.budget, each.who) == (words, budget, who)]
            ends = [each.points[-1][1] for each in curves if each.points]
            minutes = f"{np.mean([each.seconds for each in curves]) / 60:.1f}" if curves else "-"
            lines.append((words, who, str(len(curves)), f"{budget:,}", spread(ends), minutes))
    yield table([HEAD, *lines])


def spread(values: Sequence[float]) -> str:
    """The mean, of several with its 95 % interval."""
    if len(values) < 2:
        return score(values[0]) if values else "-"
    low, high = interval(values, np.mean)
    return f"{score(float(np.mean(values)))} [{score(low)}, {score(high)}]"


def draw(found: Sequence[Curve]) -> None:
    """A picture for each row that both have trained, of the seeds and steps that both have."""
    for words, budget in dict.fromkeys((curve.words, curve.budget) for curve in sorted(found)):
        curves = {
            who: [each.points for each in found if (each.words, each.budget, each.who) == (words, budget, who)]
            for who in WHO
        }
        if all(lines and all(lines) for lines in curves.values()):
            bands = {who: band_of(lines) for who, lines in curves.items()}
            title = f"{words}, {budget:,} env steps, mean and 95 % interval of the seeds"
            (FOLDER / f"{file_stem(words)}.svg").write_text(bands_svg(title, bands, None), encoding="utf-8")


if __name__ == "__main__":
    entry.run(main)
