"""A node of a Ray cluster dies while a run trains on it: does the run end on another as if nothing had happened?

    python -m lab.faults nodes --kills 20

A real cluster on this machine: a head without CPUs and two nodes of one CPU. `train.py --on ray` trains a run; the
raylet of the node that has it is killed by SIGKILL, every other time while a checkpoint is written, and a new node
comes in its place. Told are the bits the run ends in beside those of one that nobody disturbed, how long it took until
another process had the run, and whether anything of the dead node was left after 10 seconds.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from lab.faults.pauses import differing, outcome, whole
from lab.faults.rig import TINY, Tally, Told, last_run, last_words, wait_until
from stride.runstore import run_lock
from stride.utils.places import PROJECT

CHANGED = ("max_timesteps=100000", "checkpoint_freq_epochs=10", "log_freq_epochs=10", "eval_freq_epochs=500")
WORDS = last_words((*TINY, *CHANGED))
PATIENCE = 120.0  # seconds
LEFT_AFTER = 10.0  # seconds after which nothing of a dead node may run


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Told:
    wanted, tally, seconds, left = whole(WORDS, folder / "whole"), Tally(), list[float](), 0
    with cluster() as made:
        for number in range(counts["kills"]):
            root = folder / f"trial {number}"
            try:
                problem, spent, lives = trial(made, draw.uniform(0.0, 2.0), number % 2 == 1, root, wanted)
                seconds.append(spent)
                left += lives
            except AssertionError as error:
                problem = f"{error}: {(root / 'log').read_text()[-600:]}"
            tally.add(f"kill {number}", problem)
    lines = [
        f"nodes killed while they trained, every other one inside a save: {tally} runs finished once, with weights, "
        "optimizer, worlds, counters and rows of the run that nobody disturbed",
        f"another process had the run {median(seconds or [PATIENCE]):.1f} s after the kill (median; longest "
        f"{max(seconds, default=PATIENCE):.1f}); {left} processes of dead nodes were left after {LEFT_AFTER:.0f} s",
    ]
    return lines + tally.problems, tally.good and not left


def trial(made: Any, wait: float, in_save: bool, root: Path, wanted: dict[str, object]) -> tuple[str, float, bool]:
    """Begin a run, kill its node, see it end: what is wrong, seconds until it went on, whether its process lives on."""
    root.mkdir(parents=True)
    os.environ["STRIDE_RUNS"] = str(root)
    command = [sys.executable, str(PROJECT / "train.py"), *WORDS, "--on", "ray"]
    with (root / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log, cwd=PROJECT) as led:
        try:
            wait_until(lambda: (run := last_run(root)) and (run.checkpoints / "last.ckpt").exists())
            run = last_run(root)
            assert run is not None
            time.sleep(wait)
            owner = trainer_of(run.path)
            assert owner, "it ended before its node was killed"
            if in_save:
                wait_until(lambda: any(name.startswith(".") for name in os.listdir(run.checkpoints)), pause=0.0)
            node = next(each for each in made.worker_nodes if raylet_of(each) in ancestors(owner))
            killed = time.monotonic()
            made.remove_node(node, allow_graceful=False)
            made.add_node(num_cpus=1)
            wait_until(lambda: trainer_of(run.path) not in (0, owner))
            resumed = time.monotonic() - killed
            while (left := Path(f"/proc/{owner}").exists()) and time.monotonic() < killed + LEFT_AFTER:
                time.sleep(0.02)
            code = led.wait(PATIENCE)
        finally:
            led.kill()
    runs = sum(path.is_dir() and not path.is_symlink() and "CartPole" in path.name for path in root.iterdir())
    ended = f"exit code {code}: {(root / 'log').read_text()[-300:]}" if code else f"{runs} runs" if runs != 1 else ""
    return ended or differing(outcome(root), wanted), resumed, left


@contextmanager
def cluster() -> Iterator[Any]:
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_MEMORY_MONITOR": "1"}
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=1)
    os.environ["RAY_ADDRESS"] = made.address
    try:
        yield made
    finally:
        made.shutdown()


def trainer_of(path: Path) -> int:
    """The process that trains a run, 0 for nobody."""
    return int((run_lock.owner(path) or {}).get("pid", 0))


def raylet_of(node: Any) -> int:
    pid: int = node.all_processes["raylet"][0].process.pid
    return pid


def ancestors(pid: int) -> list[int]:
    """The process and those that it descends from."""
    found = []
    while pid > 1:
        found.append(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return found
