"""`--pause-at` at random steps, then on: does the run end in the bits of the one that never paused, rows included?

    python -m lab.faults pauses --trials 200

PPO, DQN and SAC in turn, each paused once, twice or three times at steps drawn at random; every other time the run goes
on by `--resume`, else by the same command with `--group`.
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
    Tally,
    Told,
    amounts_to,
    finish,
    last_run,
    last_words,
    state_of,
    straight,
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
LAST = 1280 - 64  # env steps; whoever pauses later is through
SAME = ("rows", "increasing", "links", "report")  # an epoch that a pause saved may lie beside the others


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Told:
    wanted = {name: whole(words, folder / name) for name, words in AGENTS.items()}
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
    other = [key for key in ended if ended[key] != wanted[key]]
    return f"{', '.join(other)} differ from an undisturbed run" if other else ""


def whole(words: tuple[str, ...], root: Path) -> dict[str, object]:
    straight(words, root)
    return outcome(root)


def paused(words: tuple[str, ...], steps: list[int], root: Path, by_group: bool) -> tuple[str, int]:
    """Train with these pauses; what went wrong, and how many there were (two in one iteration are one)."""
    before, group, stops = words, ("--group", "g") if by_group else (), 0
    for step in steps:
        ended = finish((*before, *group, "--pause-at", str(step)), root)
        stood = ended.code == 0 and "result=paused" in ended.said
        if not stood and "is too low" not in ended.said:
            return f"--pause-at {step} ended with {ended.code}: {ended.said[-300:]}", stops
        stops += stood
        if not by_group:
            before = ("--resume", found(root).id, "-q")
    ended = finish((*before, *group), root)
    return "" if ended.code == 0 else f"the rest ended with {ended.code}: {ended.said[-300:]}", stops


def outcome(root: Path) -> dict[str, object]:
    """What a finished run amounts to, whichever checkpoint wrote which rows of its replay memory."""
    run = found(root)
    state, amount = state_of(run), amounts_to(run)
    parts = state["stride"]["parts"]  # type: ignore[index]
    if parts["memory"].get("segments"):
        parts["memory"]["segments"] = remembered(run, parts["memory"])
    return {"state": fingerprint(state), **{key: amount[key] for key in SAME}}


def remembered(run: RunDir, state: dict[str, object]) -> list[torch.Tensor]:
    config = from_plain(run.facts()["config"])
    memory = build_agent(config, make_envs(config, config.n_envs)).memory
    memory.save_in(run.checkpoints / checkpoint_set.SEGMENTS)
    memory.load_state_dict(state)
    return memory.columns_written()


def found(root: Path) -> RunDir:
    run = last_run(root)
    assert run is not None
    return run


CHANGED = ("max_timesteps=300000", "checkpoint_freq_epochs=10", "log_freq_epochs=10", "eval_freq_epochs=500")
WORDS = last_words((*TINY, *CHANGED))
PATIENCE = 120.0  # seconds
LEFT_AFTER = 10.0  # seconds after which nothing of a dead node may run


def nodes(counts: dict[str, int], draw: random.Random, folder: Path) -> Told:
    """A node of a Ray cluster dies while a run trains on it: does the run end on another as if nothing had happened?

    A real cluster on this machine: a head without CPUs and two nodes of one CPU. `train.py --on ray` trains a run; the
    raylet of the node that has it is killed by SIGKILL, every other time while a checkpoint is written, and a new node
    comes in its place. The bits at the end must be those of an undisturbed run; also reported are the seconds until
    another process had the run, and whether anything of the dead node was left after 10 seconds.
    """
    wanted, tally, seconds, left = whole(WORDS, folder / "whole"), Tally(), list[float](), 0
    with cluster() as made:
        for number in range(counts["kills"]):
            root = folder / f"trial {number}"
            try:
                problem, spent, lives = trial(made, draw.uniform(0.0, 1.0), number % 2 == 1, root, wanted)
                seconds.append(spent)
                left += lives
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
            wait_until(lambda: trainer_of(run.path) not in (0, owner) or led.poll() is not None)
            assert led.poll() is None, "it ended as its node was killed, so nothing could continue it"
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
