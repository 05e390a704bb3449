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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from lab.faults.pauses import outcome, whole
from lab.faults.record import trials
from lab.faults.rig import TINY, last_run
from stride.runstore import run_lock
from stride.utils.places import PROJECT

CHANGED = {"max_timesteps": 100_000, "checkpoint_freq_epochs": 10, "log_freq_epochs": 10, "eval_freq_epochs": 500}
WORDS = (
    *(word for word in TINY if word.split("=")[0] not in CHANGED), *(f"{key}={value}" for key, value in CHANGED.items())
)  # fmt: skip
PATIENCE = 120.0  # seconds
LEFT_AFTER = 10.0  # seconds after which nothing of a dead node may run


class Killed(NamedTuple):
    """One trial."""

    wrong: str
    in_save: bool
    resumed: float
    left: int


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    straight = whole(WORDS, folder / "whole")
    with cluster() as made:
        told = [
            trial(made, draw.uniform(0.0, 2.0), number % 2 == 1, folder / f"trial {number}", straight)
            for number in trials(counts["kills"])
        ]
    wrong = [f"kill {number}: {each.wrong}" for number, each in enumerate(told) if each.wrong]
    same, left, seconds = len(told) - len(wrong), sum(each.left for each in told), [each.resumed for each in told]
    alike = "finished once, with the weights, optimizer, worlds, counters and rows of the run that nobody disturbed"
    lines = [
        f"{len(told)} nodes killed while they trained, {sum(each.in_save for each in told)} of them inside a save: "
        f"**{same} of {len(told)}** runs {alike}",
        f"another process had the run {median(seconds):.1f} s after the kill (median; longest {max(seconds):.1f}); "
        f"{left} processes of dead nodes were left after {LEFT_AFTER:.0f} s",
    ]
    return [*lines, *wrong], not wrong and not left


def trial(made: Any, wait: float, in_save: bool, root: Path, straight: dict[str, object]) -> Killed:
    """Begin a run, kill its node, see it end."""
    root.mkdir(parents=True)
    os.environ["STRIDE_RUNS"] = str(root)
    with (root / "log").open("w") as log:
        led = subprocess.Popen(
            [sys.executable, str(PROJECT / "train.py"), *WORDS, "--on", "ray"], stdout=log, stderr=log, cwd=PROJECT
        )
    try:
        until(lambda: (found := last_run(root)) is not None and (found.checkpoints / "last.ckpt").exists())
        run = last_run(root)
        assert run is not None
        time.sleep(wait)
        owner = trainer_of(run.path)
        assert owner, "it ended before its node was killed"
        if in_save:
            until(lambda: any(name.startswith(".") for name in os.listdir(run.checkpoints)), pause=0.0)
        node = next(each for each in made.worker_nodes if raylet_of(each) in ancestors(owner))
        killed = time.monotonic()
        made.remove_node(node, allow_graceful=False)
        made.add_node(num_cpus=1)
        until(lambda: trainer_of(run.path) not in (0, owner))
        resumed = time.monotonic() - killed
        while (left := Path(f"/proc/{owner}").exists()) and time.monotonic() < killed + LEFT_AFTER:
            time.sleep(0.02)
        code = led.wait(PATIENCE)
    except AssertionError as error:
        return Killed(f"{error}: {(root / 'log').read_text()[-600:]}", in_save, PATIENCE, 0)
    finally:
        led.kill()
    ended = outcome(root)
    other = [key for key in ended if ended[key] != straight[key]]
    runs = sum(path.is_dir() and not path.is_symlink() and "CartPole" in path.name for path in root.iterdir())
    wrong = f"exit code {code}: {(root / 'log').read_text()[-300:]}" if code else ""
    wrong = wrong or (f"{', '.join(other)} differ" if other else "") or (f"{runs} runs" if runs != 1 else "")
    return Killed(wrong, in_save, resumed, int(left))


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


def until(holds: Callable[[], object], pause: float = 0.02) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it never came to it"
        time.sleep(pause)
