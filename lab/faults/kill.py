"""SIGKILL at random instants, then `train.py --resume`: does the run end as if nothing had happened?

    python -m lab.faults kill --trials 200 --groups 10

Trials go round all algorithms and engines. Half the kills come from outside at a random moment of the run. The other
half strike inside a save, at one of its file operations drawn at random: in the middle of a write, before or after an
fsync, a rename, a link, a deletion. Every other trial runs on another filesystem, /dev/shm. A group is one command with
two seeds: its parent is killed while they train, who is left is counted and ended, and each run is resumed by its id.
"""

import collections
import contextlib
import os
import random
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import lightning as L

from lab.faults.rig import (
    REPLAY,
    SMALL,
    TINY,
    Ended,
    amounts_to,
    faults,
    finish,
    last_run,
    leftovers,
    start,
    state_of,
)  # fmt: skip
from stride.agents.base import Agent
from stride.commands.plain_tree import differences, walk
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.checkpoint import Checkpoint, HashingFile

WATCHED = ("fsync", "replace", "symlink", "unlink")
P = ParamSpec("P")
T = TypeVar("T")


class Mine:
    """Counts the file operations inside saves; at number `at` the process kills itself, before or after it."""

    def __init__(self, at: int, after: bool, told: Path) -> None:
        self.at, self.after, self.told, self.saving = at, after, told, False
        self.seen: list[str] = []

    def plant(self) -> None:
        for name in WATCHED:
            setattr(os, name, self.watched(getattr(os, name), name))
        save, write = Checkpoint.save, HashingFile.write

        def watched_save(checkpoint: Checkpoint, trainer: L.Trainer, agent: Agent) -> None:
            self.saving = True
            save(checkpoint, trainer, agent)
            self.saving = False
            if self.at == 0:  # nothing strikes: this run counts
                self.told.write_text(" ".join(self.seen))

        def watched_write(hashing: HashingFile, data: bytes) -> int:
            if self.strikes("write"):
                hashing.file.write(bytes(data)[: len(data) // 2])
                hashing.file.flush()
                self.strike("write")
            return write(hashing, data)

        setattr(Checkpoint, "save", watched_save)  # noqa: B010  (mypy would not have it assigned)
        setattr(HashingFile, "write", watched_write)  # noqa: B010

    def watched(self, function: Callable[P, T], name: str) -> Callable[P, T]:
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            strikes = self.saving and self.strikes(name)
            if strikes and not self.after:
                self.strike(f"before {name}")
            result = function(*arguments, **options)
            if strikes:
                self.strike(f"after {name}")
            return result

        return call

    def strikes(self, name: str) -> bool:
        self.seen.append(name)
        return len(self.seen) == self.at

    def strike(self, where: str) -> None:
        self.told.write_text(where)
        os.kill(os.getpid(), signal.SIGKILL)


MEMORY = tuple(word for word in REPLAY[1:] if word != "prioritised=true")
SAC = ("Pendulum-v1:sac", *(word for word in MEMORY if word != "n_step=3"))
DREAMER = (
    "CartPole-v1:dreamer", *SMALL, "n_envs=4", "train_freq=16", "batch_size=4", "batch_length=6", "buffer_size=400",
    "learning_starts=100", "epoch_iterations=1", "train_ratio=2", "deter=16", "width=16", "stoch=3", "horizon=4",
    "imagined_starts=8",
)  # fmt: skip
LSTM = ("policy=lstm", "engine=eager", "max_timesteps=640")
CASES = {
    "PPO, fused": (*TINY, "engine=fused_cpu"),
    "DQN, prioritised, memmap": (*REPLAY, "engine=eager"),
    "SAC": (*SAC, "engine=eager"),
    "PPO, LSTM": (*TINY, *LSTM),
    "DQN, fused, memmap": ("CartPole-v1:dqn", *MEMORY, "engine=fused_cpu"),
    "SAC, fused": (*SAC, "engine=fused_cpu", "replay_storage=ram"),
    "PQN": ("CartPole-v1:pqn", *TINY[1:]),
    "Dreamer": DREAMER,
    "PPO": (*TINY, "engine=eager"),
    "REINFORCE, fused": ("CartPole-v1:reinforce", *TINY[1:], "engine=fused_cpu"),
    "REINFORCE, LSTM": ("CartPole-v1:reinforce", *TINY[1:], *LSTM, "policy_targets=advantages"),
    "Q-learning": ("FrozenLake-v1:q_learning", *SMALL, "n_envs=4", "n_steps=16", "epoch_iterations=2"),
    "Q-learning, one save": ("FrozenLake-v1:q_learning", *SMALL, "n_envs=4", "n_steps=16"),
    "PPO, fused, on Gymnasium's worlds": (*TINY, "engine=fused_cpu", "env_backend=gym"),
}
OTHER = Path("/dev/shm")  # a folder on another filesystem
GROUP = ("--seed", "1,2")
SEEDED = re.compile(r"[0-9]{8}-[0-9]{6}-.+-s([0-9]+)-[a-z2-7]{4}")  # a run's folder


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    """The figures in words, and whether all of them are what they should be."""
    other = Path(tempfile.mkdtemp(prefix="kill-", dir=OTHER))
    each, more = divmod(counts["trials"], len(CASES))
    trials = {title: each + (place < more) for place, title in enumerate(CASES)}
    try:
        parts = [
            killed(title, last_words(words), trials[title], draw, [folder, other])
            for title, words in CASES.items()
            if trials[title]
        ]
        if counts["groups"]:
            parts.append(killed_groups(last_words(CASES["PPO, fused"]), counts["groups"], draw, folder))
    finally:
        shutil.rmtree(other, ignore_errors=True)
    return [line for lines, _ in parts for line in lines], all(good for _, good in parts)


def last_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """The last of each key, as a key may be given once."""
    return tuple({word.partition("=")[0]: word for word in words}.values())


class Killing:
    """One kind of training, killed again and again, beside the same training left alone."""

    def __init__(self, title: str, words: tuple[str, ...], places: list[Path]) -> None:
        self.title, self.words, self.places = title, words, places
        straight, self.told = places[0] / f"{title} straight", places[0] / f"{title} count"
        ended = finish(words, straight, Mine(0, False, self.told).plant)
        assert ended.code == 0, ended.said
        whole = last_run(straight)
        assert whole is not None
        self.operations = self.told.read_text().split()  # of all its saves, in order
        self.wanted, self.state = amounts_to(whole), state_of(whole)
        self.quick = finish(words, places[0] / f"{title} again").seconds  # the first one also warmed caches up
        self.found, self.where = collections.Counter[str](), collections.Counter[str]()

    def trial(self, number: int, draw: random.Random) -> None:
        """Killed, looked at, resumed and compared; the folder is gone afterwards."""
        root = self.places[number % 2] / f"{self.title} {number}"
        self.told.unlink(missing_ok=True)
        ended = self.from_outside(root, draw) if number // 2 % 2 else self.inside_a_save(root, draw)
        self.found["killed"] += ended.code == 137
        where = self.told.read_text() if self.told.exists() else ""
        if where:
            self.found["inside"] += 1
            self.where[where] += 1
        outcome = revived(self.words, root, self.wanted, self.state)
        self.found[outcome] += 1
        if outcome != "identical":
            print(f"trial {number} ({root}): {outcome}; killed {ended.code} {where}", flush=True)
        self.found["corrupt"] += len(faults(there)) if (there := last_run(root)) else 0
        self.found["leftovers"] += len(leftovers(root))
        self.found["other filesystem"] += number % 2
        shutil.rmtree(root)

    def inside_a_save(self, root: Path, draw: random.Random) -> Ended:
        kind = draw.choice(sorted(set(self.operations)))  # or nearly all would strike a write
        at = draw.choice([place for place, name in enumerate(self.operations, 1) if name == kind])
        ended = finish(self.words, root, Mine(at, draw.random() < 0.5, self.told).plant)
        while ended.code != 137:  # this run's saves had fewer operations
            shutil.rmtree(root)
            at = max(1, at - 50)
            ended = finish(self.words, root, Mine(at, draw.random() < 0.5, self.told).plant)
        return ended

    def from_outside(self, root: Path, draw: random.Random) -> Ended:
        ended = killed_at(self.words, draw.uniform(0.0, 0.9 * self.quick), root)
        while ended.code != 137:  # it was quicker than the one before
            self.quick = min(self.quick, ended.seconds)
            shutil.rmtree(root)
            ended = killed_at(self.words, draw.uniform(0.0, 0.9 * self.quick), root)
        return ended

    def verdict(self, trials: int) -> tuple[str, bool]:
        """The line for the record, and whether it is the wanted one."""
        found, leaves = self.found, sum(1 for _ in walk(self.state))
        struck = ", ".join(f"{place} {count}x" for place, count in sorted(self.where.items()))
        line = (
            f"{self.title}: **{found['identical']} of {trials} resumed bit-identical** in {leaves:,} leaves, rows, "
            f"links, files and report; {found['killed']} killed before their end, {found['inside']} inside a save "
            f"({len(self.operations):,} file operations: {struck or 'none'}), {found['other filesystem']} on tmpfs; "
            f"{found['corrupt']} corrupt files or links, {found['leftovers']} leftovers"
        )
        return line, found["identical"] == trials and not found["corrupt"] and not found["leftovers"]


def killed(
    title: str, words: tuple[str, ...], trials: int, draw: random.Random, places: list[Path]
) -> tuple[list[str], bool]:
    killing, began = Killing(title, words, places), time.monotonic()
    for number in range(trials):
        killing.trial(number, draw)
        if (number + 1) % 20 == 0:
            so_far = f"{number + 1}/{trials} {dict(killing.found)} {time.monotonic() - began:.0f} s"
            print(f"{title}: {so_far}", flush=True)
    line, good = killing.verdict(trials)
    return [line], good


def killed_groups(words: tuple[str, ...], trials: int, draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    """Two seeds by one command whose parent is killed: nobody is left, and each run ends in its own bits."""
    wanted, found = {}, collections.Counter[str]()
    for seed in (1, 2):
        straight = folder / f"group straight {seed}"
        ended = finish([*words, f"seed={seed}"], straight)
        whole = last_run(straight)
        assert ended.code == 0 and whole is not None, ended.said
        wanted[seed] = amounts_to(whole)
    for trial in range(trials):
        root = folder / f"group {trial}"
        child = start([*words, *GROUP], root)
        while child.lives() and not runs_of(root):  # the processes are still loading
            time.sleep(0.01)
        time.sleep(draw.uniform(0.0, 1.0))
        children = children_of(child.pid)
        os.kill(child.pid, signal.SIGKILL)
        found["killed"] += child.wait().code == 137
        found["left alive"] += len(left_after(children, 5.0))
        begun = runs_of(root)
        for seed in (1, 2):
            again = ["--resume", begun[seed].id, "-q"] if seed in begun else [*words, f"seed={seed}"]
            ended = finish(again, root)
            there = runs_of(root)[seed]
            over = ended.code == 2 and " is finished: " in ended.said
            same = {key for key, value in amounts_to(there).items() if value == wanted[seed][key]}
            # a training whose parent died has saved where it was: one checkpoint more than the straight run's
            found["identical"] += (not ended.code or over) and same >= wanted[seed].keys() - {"files"}
            found["corrupt"] += len(faults(there))
        found["leftovers"] += len(leftovers(root))
        shutil.rmtree(root)
    line = (
        f"Groups of two seeds: **{found['identical']} of {2 * trials} runs resumed bit-identical**, "
        f"{found['killed']} of {trials} parents killed before their end, {found['left alive']} trainings left alive, "
        f"{found['corrupt']} corrupt, {found['leftovers']} leftovers"
    )
    good = found["identical"] == 2 * trials and not (found["left alive"] or found["corrupt"] or found["leftovers"])
    return [line], good


def runs_of(root: Path) -> dict[int, RunDir]:
    """The runs under a root by their seed; one that is still being made has another name."""
    found = ((SEEDED.fullmatch(path.name), path) for path in root.iterdir()) if root.is_dir() else ()
    return {int(match[1]): RunDir(path) for match, path in found if match and not path.is_symlink()}


def children_of(pid: int) -> list[int]:
    """Its child processes, by the kernel's word."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def left_after(pids: list[int], seconds: float) -> list[int]:
    """Which of them still live after so long; they are ended."""
    deadline = time.monotonic() + seconds
    while (alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    return alive


def killed_at(words: tuple[str, ...], seconds: float, root: Path) -> Ended:
    """A run that gets SIGKILL from outside after so long."""
    child = start(words, root)
    moment = time.monotonic() + seconds
    while time.monotonic() < moment and child.lives():
        time.sleep(0.002)
    os.kill(child.pid, signal.SIGKILL)
    return child.wait()


def revived(begun: tuple[str, ...], root: Path, wanted: dict[str, object], state: dict[str, object]) -> str:
    """Resume (or start anew where not even a folder was there) and compare: "identical", or what is wrong."""
    words = ["--resume", "@last", "-q"] if last_run(root) else list(begun)
    ended = finish(words, root)
    if ended.code == 2 and " is finished: " in ended.said:  # it was killed after its last word
        ended = ended._replace(code=0)
    run = last_run(root)
    if ended.code or run is None:
        return f"resume ended with {ended.code}: {ended.said[-300:]}"
    got = amounts_to(run)
    wrong = [f"{name} {got[name]} / {wanted[name]}" for name in wanted if got[name] != wanted[name]]
    wrong += [f"{each.name} {each.words}" for each in differences(state_of(run), state)[:5]]
    return f"differs in {', '.join(wrong)}" if wrong else "identical"
