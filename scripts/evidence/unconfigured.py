"""Trains environments that nothing here was configured for, by ENV:ALGORITHM alone, beside random actions.

    python -m scripts.evidence.unconfigured                       all of them, 2 seeds each, whole budgets
    python -m scripts.evidence.unconfigured Maze --budget 50_000  those with that in their name, for so many steps

Wants the packages that bring them (minigrid, highway-env, gymnasium-robotics); what cannot be made says why in its row.
Settings are those of config/general, which were chosen on other tasks. Every run is a row, whatever it came to.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from report.outcome import FAILED
from scripts.usage import parser_of
from utils import entry
from utils.durable_file import write_json
from utils.provenance import PROJECT

FILTERED = "env_wrappers=[{id:'gymnasium.wrappers:FilterObservation',filter_keys:[direction,image]}]"
TASKS: dict[str, tuple[str, ...]] = {  # and what has to be said beside the name
    "minigrid:MiniGrid-Empty-5x5-v0:ppo": (FILTERED,),
    "minigrid:MiniGrid-DoorKey-5x5-v0:ppo": (FILTERED,),
    "minigrid:MiniGrid-LavaGapS5-v0:ppo": (FILTERED,),
    "minigrid:MiniGrid-Unlock-v0:dqn": ("env_wrappers=[{id:'minigrid.wrappers:FlatObsWrapper'}]",),
    "highway_env:highway-fast-v0:ppo": (),
    "highway_env:parking-v0:sac": (),
    "gymnasium_robotics:PointMaze_UMazeDense-v3:ppo": (),
    "InvertedPendulum-v5:ppo": (),
    "InvertedDoublePendulum-v5:sac": (),
    "Reacher-v5:sac": (),
}
EPISODES = 100
HEAD = ("environment and algorithm", "seed", "env steps", "random", "trained", "verdict", "minutes")


class Row(NamedTuple):
    """One training, beside random actions in the same worlds."""

    words: str
    seed: int
    env_steps: int = 0
    random: float | None = None
    trained: float | None = None
    verdict: str = ""
    seconds: float = 0.0

    def cells(self) -> tuple[str, ...]:
        means = ("-" if mean is None else f"{mean:.2f}" for mean in (self.random, self.trained))
        return (self.words, str(self.seed), f"{self.env_steps:,}", *means, self.verdict, f"{self.seconds / 60:.1f}")


def main(argv: list[str]) -> int:
    """Exit code: 1 where a training failed."""
    parser = parser_of(__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="a part of the names")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="how many seeds (default 2)")
    parser.add_argument("--budget", default="", metavar="N", help="env steps instead of those of the general settings")
    parser.add_argument("--out", metavar="FILE", help="the table as JSON")
    given = parser.parse_args(argv)
    rows = []
    for words in (words for words in TASKS if given.pattern.casefold() in words.casefold()):
        for seed in range(1, given.seeds + 1):
            rows.append(measured(words, seed, given.budget))
            print("  ".join(rows[-1].cells()), flush=True)
    print("\n" + "\n".join(table(rows)))
    if given.out:
        write_json(Path(given.out), [row._asdict() for row in rows])
    return 1 if any(row.verdict.startswith(FAILED) for row in rows) else 0


def measured(words: str, seed: int, budget: str) -> Row:
    """Train, then play random episodes in the same worlds."""
    with tempfile.TemporaryDirectory() as runs:
        asked = [words, "--seed", str(seed), "--json", f"test_episodes={EPISODES}", *TASKS[words]]
        code, told, error = run("train.py", *asked, *([f"max_timesteps={budget}"] if budget else []), runs=runs)
        end: dict[str, Any] = json.loads(told.splitlines()[-1]) if told.strip() else {}
        if code:
            return Row(words, seed, verdict=f"{FAILED}: {error.removeprefix('error: ')[:120]}")
        play = ["--random", "--headless", "--json", "--episodes", str(EPISODES)]
        _, random, _ = run("run_play.py", *play, runs=runs)
    mean = json.loads(random.splitlines()[-1])["mean_return"]
    return Row(words, seed, end["env_steps"], mean, end["test_mean"], end["result"], end["seconds"])


def run(command: str, *words: str, runs: str) -> tuple[int, str, str]:
    """Exit code, what it said, and its last complaint."""
    env = {**os.environ, "STRIDE_RUNS": runs}
    done = subprocess.run([sys.executable, str(PROJECT / command), *words], env=env, capture_output=True, text=True)
    return done.returncode, done.stdout, next(iter(done.stderr.splitlines()[-1:]), "")


def table(rows: list[Row]) -> Iterator[str]:
    """Markdown."""
    yield f"| {' | '.join(HEAD)} |"
    yield f"|{'---|' * len(HEAD)}"
    yield from (f"| {' | '.join(row.cells())} |" for row in rows)


if __name__ == "__main__":
    entry.run(main)
