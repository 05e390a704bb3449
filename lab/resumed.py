"""Makes README's figure: a training killed by SIGKILL and resumed, beside the same training without interruption.

    python -m lab.resumed --record     trains both, writes docs/benchmarks/resumed.json and docs/images/resumed.svg
    python -m lab.resumed              trains both and prints whether they are equal

The last checkpoints and all rows of metrics.csv, without wall time, are compared. Exit code 1: they differ.
"""

import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lab.same_bits import digest_of
from stride.commands.usage import parser_of
from stride.runstore.history import STEPS, VAL
from stride.utils import entry
from stride.utils.curve import BOTTOM, HEIGHT, TOP, Axes, CurveLine, Point, picture
from stride.utils.places import PROJECT
from stride.utils.user_error import UserError

VARIANT, SEED, BUDGET, GOAL = "CartPole-v1:ppo", 1, 40_960, 475.0
# an evaluation in each epoch from the first on, so that the curve has many points
WORDS = (VARIANT, f"seed={SEED}", "early_stop_on_eval_threshold=false", "eval_freq_epochs=1", "eval_warmup_epochs=0")
FIGURES = PROJECT / "docs" / "benchmarks" / "resumed.json"
IMAGE = PROJECT / "docs" / "images" / "resumed.svg"
KILL_AFTER = 0.45  # of the budget
PATIENCE = 120.0  # seconds in which the run must reach that step


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--record", action="store_true", help="write the figures and the picture")
    record = parser.parse_args(argv).record
    with tempfile.TemporaryDirectory(prefix="resumed-") as folder:
        figures = measure(Path(folder), BUDGET)
    if record:
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        IMAGE.write_text(drawn(figures), encoding="utf-8")
    print(sentence(figures))
    return 0 if figures["equal"] else 1


def measure(folder: Path, budget: int) -> dict[str, Any]:
    """Train twice, once with a kill and a resume; return the evaluations of both and whether their bits are equal."""
    words = [*WORDS, f"max_timesteps={budget}"]
    straight = run_of(train(words, folder / "straight"), folder / "straight")
    killed = folder / "killed"
    process = start(words, killed)
    rows_at_kill = kill(process, killed, KILL_AFTER * budget)
    run = run_of(train(["--resume", "@last"], killed), killed)
    digests = digest_of(straight), digest_of(run)
    return {
        "variant": VARIANT,
        "seed": SEED,
        "budget": budget,
        "killed_at": int(max(float(row[STEPS]) for row in rows_at_kill)),
        "straight": evaluations(rows_of(straight)),
        "killed": evaluations(rows_at_kill),
        "resumed": evaluations(rows_of(run)),
        "digests": digests,
        "equal": digests[0] == digests[1],
    }


def start(words: list[str], root: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "STRIDE_RUNS": str(root), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "train.py", *words, "-q"]
    return subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=subprocess.DEVNULL)


def train(words: list[str], root: Path) -> int:
    return start(words, root).wait()


def run_of(code: int, root: Path) -> Path:
    """Return the only run under `root`; UserError if the training's exit `code` is not 0."""
    if code:
        raise UserError(f"the training in {root.name} ended with exit code {code}")
    [folder] = [path for path in root.glob("2*") if (path / "config.json").is_file()]
    return folder


def kill(process: subprocess.Popen[bytes], root: Path, env_steps: float) -> list[dict[str, str]]:
    """Send SIGKILL when the run has made so many env steps; return the rows that it has written."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        for folder in root.glob("2*"):
            rows = rows_of(folder)
            if rows and float(rows[-1][STEPS]) >= env_steps:
                process.send_signal(signal.SIGKILL)
                process.wait()
                return rows_of(folder)
        time.sleep(0.001)
    process.kill()
    raise UserError(f"the training did not reach {env_steps:g} env steps, or ended first")


def rows_of(folder: Path) -> list[dict[str, str]]:
    """Return the complete rows of a run's metrics.csv; the last line may be half written."""
    file = folder / "metrics.csv"
    if not file.is_file():
        return []
    complete_text = file.read_text(encoding="utf-8").rpartition("\n")[0]
    return [row for row in csv.DictReader(complete_text.splitlines()) if row.get(STEPS)]


def evaluations(rows: list[dict[str, str]]) -> list[tuple[int, float]]:
    """Return (env steps, mean return) of each evaluation."""
    return [(int(float(row[STEPS])), float(row[VAL])) for row in rows if row.get(VAL)]


def drawn(figures: dict[str, Any]) -> str:
    """Return the SVG: a wide curve of the uninterrupted run; over it the killed run, and what the resumed one added."""
    killed_at, last_killed = figures["killed_at"], figures["killed"][-1][0]
    resumed = [point for point in figures["resumed"] if point[0] >= last_killed]
    curves = [
        CurveLine(points_of(figures["straight"]), "seed", 9.0),
        CurveLine(points_of(figures["killed"]), "mean", 2.5),
        CurveLine(points_of(resumed), "third", 2.5),
    ]
    x = Axes(figures["straight"][-1][0], 0.0, 1.0).x(killed_at)
    y = HEIGHT - BOTTOM
    mark = [
        f'<line class="axis" x1="{x}" x2="{x}" y1="{TOP}" y2="{y}" stroke-width="1.5" stroke-dasharray="3 3"/>',
        f'<text class="name" x="{x}" y="{y - 10}" dx="6">SIGKILL at {killed_at:,} env steps</text>',
    ]
    legend = [("seed", "never stopped"), ("mean", "killed"), ("third", "resumed")]
    title = f"{figures['variant']}, seed {figures['seed']}: evaluations"
    return picture(title, curves, GOAL, legend, labels=mark)


def points_of(pairs: list[tuple[int, float]]) -> list[Point]:
    return [Point(float(x), y) for x, y in pairs]


def sentence(figures: dict[str, Any]) -> str:
    """Return the sentence that README has below the picture."""
    word = "equal" if figures["equal"] else "different"
    return (
        f"SIGKILL at {figures['killed_at']:,} of {figures['budget']:,} env steps, then `--resume`: "
        f"{len(figures['resumed'])} evaluations, all rows and final weights {word} to those of the run never stopped."
    )


if __name__ == "__main__":
    entry.run(main)
