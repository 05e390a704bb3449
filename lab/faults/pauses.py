"""Pauses trainings at random steps (`--pause-at`) and continues them: they must end in the bits of one never paused.

    python -m lab.faults pauses --trials 200

PPO, DQN and SAC in turn, each paused once, twice or three times at steps drawn at random. Every other run is
continued by `--resume`, the others by the same command with `--group`. Rows of metrics.csv must be equal, too.
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

import torch

from lab.faults.rig import (
    REPLAY,
    TINY,
    Report,
    Tally,
    comparable,
    finish,
    last_of_each_key,
    last_run,
    state_of,
    undisturbed,
    wait_until,
)
from stride.agents.engines.choice import build_agent
from stride.commands.plain_tree import fingerprint
from stride.config.loader import from_plain
from stride.envs_gym.make import make_envs
from stride.runstore import checkpoint_set, run_lock
from stride.runstore.run_dir import RunDir
from stride.utils.places import PROJECT

OTHERS = ("prioritised", "n_step", "buffer_size")
SAC = ("Pendulum-v1:sac", *(word for word in REPLAY[1:] if not word.startswith(OTHERS)), "buffer_size=1500")
AGENTS = {"PPO": TINY, "DQN": REPLAY, "SAC": SAC}
LAST = 1280 - 64  # env steps; a later pause comes after the end
SAME = ("rows", "increasing", "links", "report")  # not the files: a pause may save one more checkpoint


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    wanted = {name: undisturbed_outcome(words, folder / name) for name, words in AGENTS.items()}
    tallies, pauses = {name: Tally() for name in AGENTS}, dict.fromkeys(AGENTS, 0)
    for number in range(counts["trials"]):
        name = list(AGENTS)[number % len(AGENTS)]
        steps = sorted(draw.sample(range(1, LAST), draw.randint(1, 3)))
        root = folder / f"trial {number}"
        problem, stops = paused(AGENTS[name], steps, root, by_group=number % 2 == 1)
        pauses[name] += stops
        tallies[name].add(f"{name} paused at {steps}", problem or differing(outcome(root), wanted[name]))
    alike = "runs end in the same weights, optimizer state, environments, memory, counters and rows of metrics.csv"
    lines = [f"{name}, paused {pauses[name]} times: {tally} {alike}" for name, tally in tallies.items()]
    problems = [problem for tally in tallies.values() for problem in tally.problems]
    return lines + problems, not problems


def differing(ended: dict[str, object], wanted: dict[str, object]) -> str:
    """Return which results of a run (as `outcome` returns them) differ; "" if none does."""
    other = [key for key in ended if ended[key] != wanted[key]]
    return f"{', '.join(other)} differ from an undisturbed run" if other else ""


def undisturbed_outcome(words: tuple[str, ...], root: Path) -> dict[str, object]:
    undisturbed(words, root)
    return outcome(root)


def paused(words: tuple[str, ...], steps: list[int], root: Path, by_group: bool) -> tuple[str, int]:
    """Train with these pauses; return what went wrong, and the number of pauses (two in one iteration are one)."""
    command, group, stops = words, ("--group", "g") if by_group else (), 0
    for step in steps:
        ended = finish((*command, *group, "--pause-at", str(step)), root)
        is_paused = ended.code == 0 and "result=paused" in ended.said
        if not is_paused and "is too low" not in ended.said:
            return f"--pause-at {step} ended with {ended.code}: {ended.said[-300:]}", stops
        stops += is_paused
        if not by_group:
            command = ("--resume", only_run(root).id, "-q")
    ended = finish((*command, *group), root)
    return "" if ended.code == 0 else f"the rest ended with {ended.code}: {ended.said[-300:]}", stops


def outcome(root: Path) -> dict[str, object]:
    """Return a finished run in comparable form, whichever checkpoint wrote which rows of its replay memory."""
    run = only_run(root)
    state, amount = state_of(run), comparable(run)
    parts = state["stride"]["parts"]  # type: ignore[index]
    if parts["memory"].get("segments"):
        parts["memory"]["segments"] = remembered(run, parts["memory"])
    return {"state": fingerprint(state), **{key: amount[key] for key in SAME}}


def remembered(run: RunDir, state: dict[str, object]) -> list[torch.Tensor]:
    """Load a replay memory from its segments, and return its columns."""
    config = from_plain(run.facts()["config"])
    memory = build_agent(config, make_envs(config, config.n_envs)).memory
    memory.save_in(run.checkpoints / checkpoint_set.SEGMENTS)
    memory.load_state_dict(state)
    return memory.columns_written()


def only_run(root: Path) -> RunDir:
    run = last_run(root)
    assert run is not None
    return run


CHANGED = ("max_timesteps=300000", "checkpoint_freq_epochs=10", "log_freq_epochs=10", "eval_freq_epochs=500")
WORDS = last_of_each_key((*TINY, *CHANGED))
PATIENCE = 120.0  # seconds
LEFT_AFTER = 10.0  # seconds after which no process of a dead node may run


def nodes(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    """Kill a node of a Ray cluster while a run trains on it: the run must end on another as if nothing had happened.

    A real cluster on this machine: a head without CPUs and two nodes of one CPU. `train.py --on ray` trains a run; the
    raylet of its node is killed by SIGKILL, every other time while a checkpoint is written, and a new node takes
    its place. The bits at the end must be those of an undisturbed run; also reported are the seconds until
    another process had the run, and whether anything of the dead node was left after 10 seconds.
    """
    wanted, tally, seconds, left = undisturbed_outcome(WORDS, folder / "whole"), Tally(), list[float](), 0
    with cluster() as made:
        for number in range(counts["kills"]):
            root = folder / f"trial {number}"
            try:
                problem, spent, is_alive = trial(made, draw.uniform(0.0, 1.0), number % 2 == 1, root, wanted)
                seconds.append(spent)
                left += is_alive
            except AssertionError as error:
                problem = f"{error}: {(root / 'log').read_text()[-600:]}"
            tally.add(f"kill {number}", problem)
    lines = [
        f"nodes killed while they trained, every other one inside a save: {tally} runs finished exactly once, with the "
        "weights, optimizer state, environments, counters and rows of an undisturbed run",
        f"another process continued the run {median(seconds or [PATIENCE]):.1f} s after the kill (median; longest "
        f"{max(seconds, default=PATIENCE):.1f}); {left} processes of dead nodes were alive after {LEFT_AFTER:.0f} s",
    ]
    return lines + tally.problems, tally.good and not left


def trial(made: Any, wait: float, in_save: bool, root: Path, wanted: dict[str, object]) -> tuple[str, float, bool]:
    """Start a run, kill its node after `wait` seconds (or in the next save), and wait for the end.

    Return what is wrong, the seconds until the run was continued, and whether its first process still exists.
    """
    root.mkdir(parents=True)
    os.environ["STRIDE_RUNS"] = str(root)
    command = [sys.executable, str(PROJECT / "train.py"), *WORDS, "--on", "ray"]
    with (
        (root / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, cwd=PROJECT) as process,
    ):
        try:
            wait_until(lambda: (run := last_run(root)) and (run.checkpoints / "last.ckpt").exists())
            run = last_run(root)
            assert run is not None
            time.sleep(wait)
            owner = trainer_of(run.path)
            assert owner, "it ended before its node was killed"
            if in_save:
                wait_until(lambda: any(name.startswith(".") for name in os.listdir(run.checkpoints)), pause=0.0)
            node = next(node for node in made.worker_nodes if raylet_of(node) in ancestors(owner))
            killed = time.monotonic()
            made.remove_node(node, allow_graceful=False)
            made.add_node(num_cpus=1)
            wait_until(lambda: trainer_of(run.path) not in (0, owner) or process.poll() is not None)
            assert process.poll() is None, "it ended as its node was killed, so nothing could continue it"
            resumed = time.monotonic() - killed
            while (left := Path(f"/proc/{owner}").exists()) and time.monotonic() < killed + LEFT_AFTER:
                time.sleep(0.02)
            code = process.wait(PATIENCE)
        finally:
            process.kill()
    runs = sum(path.is_dir() and not path.is_symlink() and "CartPole" in path.name for path in root.iterdir())
    ended = f"exit code {code}: {(root / 'log').read_text()[-300:]}" if code else f"{runs} runs" if runs != 1 else ""
    return ended or differing(outcome(root), wanted), resumed, left


@contextmanager
def cluster() -> Iterator[Any]:
    """Run a Ray cluster of two nodes on this machine inside the block."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_MEMORY_MONITOR": "1"}
    from ray.cluster_utils import Cluster

    ray_cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        ray_cluster.add_node(num_cpus=1)
    os.environ["RAY_ADDRESS"] = ray_cluster.address
    try:
        yield ray_cluster
    finally:
        ray_cluster.shutdown()


def trainer_of(path: Path) -> int:
    """Return the id of the process that trains a run; 0 if none does."""
    return int((run_lock.owner(path) or {}).get("pid", 0))


def raylet_of(node: Any) -> int:
    pid: int = node.all_processes["raylet"][0].process.pid
    return pid


def ancestors(pid: int) -> list[int]:
    """Return a process and its ancestors, the nearest first."""
    pids = []
    while pid > 1:
        pids.append(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return pids
