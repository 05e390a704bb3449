"""Kills trainings at random moments and resumes them: each run must end as if nothing had happened.

    python -m lab.faults kill --trials 200 --groups 10

Trials use all algorithms and engines in turn. Half the kills (SIGKILL) come from outside at a random moment of the run.
The other half happen inside a save, at one of its file operations drawn at random: in the middle of a write, before or
after an fsync, a rename, a link, a deletion. Every other trial runs on another filesystem, /dev/shm. A group is one
command with three seeds, and its leading process is killed.
"""

import collections
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

from lab.faults import rig
from lab.faults.record import Report
from stride.agents.base import Agent
from stride.commands.plain_tree import walk
from stride.runstore import run_lock
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.checkpoint import AtomicIO, Checkpoint, HashingFile
from stride.trainer_callbacks.evaluate import Evaluate
from stride.trainer_callbacks.video import Video
from stride.utils.resources import CORES_VARIABLE, cores

PHASES: dict[str, tuple[type, str, int]] = {  # phase -> (class, method, in which of its calls the signal comes)
    "building": (Agent, "setup", 1), "collecting": (Agent, "collect", 9), "updating": (Agent, "learn_from", 9),
    "evaluating": (Evaluate, "_play", 4), "recording": (Video, "film", 2), "saving": (AtomicIO, "save_checkpoint", 4),
    "closing test": (Evaluate, "test", 1),
}  # fmt: skip
MANNERS = {"quick": 0.3, "long": 20.0, "twice": 20.0}  # seconds that the phase lasts; "twice": two signals
WORDS = (*rig.TINY, "video_freq_epochs=4", "video_max_steps=40")
MAX_SECONDS = 5.0  # seconds in which a process must end after a signal
OURS = ("max_timesteps", "eval_freq", "checkpoint_freq")
GROUP = (*(word for word in rig.TINY if word != "-q" and not word.startswith(OURS)),
         "max_timesteps=38400", "eval_freq_epochs=40", "checkpoint_freq_epochs=20")  # fmt: skip
SEEDS = ("3", "1", "2")
LEADERS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)  # a leader cannot pass on SIGKILL
RunsBySeed = dict[int, dict[str, object]]  # seed -> its run as `rig.comparable` returns it


def pause(phase: str, told: Path, seconds: float) -> None:
    """Make this process create the file `told` when it reaches the phase, and stay in the phase for `seconds`."""

    def late(function: rig.Call, *arguments: object, **options: object) -> object:
        told.write_text("here")
        time.sleep(seconds)
        return function(*arguments, **options)

    rig.at_call(*PHASES[phase], late)


def signals(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    """SIGTERM, Ctrl-C and SIGHUP at random moments of every phase: exit code, time to exit, resumed to the bit or not.

    In a third of the trials the phase is made to last (a sleep of 20 s inside it), so that it must be dropped; in
    another third a second signal follows at once. Then seed groups: whoever leads one gets SIGTERM, SIGHUP, Ctrl-C or
    SIGKILL; no training may outlive it, and `--resume group:NAME` must end in the bits of a group never stopped.
    """
    wanted = rig.comparable(rig.undisturbed(WORDS, folder / "straight"))
    lines, good = [], True
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        tally, slowest = rig.Tally(), 0.0
        for trial in range(counts["trials"]):
            phase = list(PHASES)[trial % len(PHASES)]
            manner = list(MANNERS)[trial // len(PHASES) % 3]  # 21 trials: each phase in each manner
            root = folder / f"{number}-{trial}"
            seconds, left = stopped(number, phase, manner, draw, root)
            slowest = max(slowest, seconds)
            tally.add(f"{number.name} while {phase}, {manner}", judged(left, seconds, number, root, wanted))
            shutil.rmtree(root, ignore_errors=True)
        good = good and tally.good
        ending = f"runs ended with exit code {128 + number} within {MAX_SECONDS:g} s (slowest {slowest:.1f} s)"
        lines.append(f"{number.name}: {tally} {ending} and resumed to the same bits as the uninterrupted run")
    lines.append(f"phases, in turn: {', '.join(PHASES)}; as they are, prolonged to 20 s, with a second signal at once")
    group_lines, groups_good = groups(counts["groups"], draw, folder)
    return [*lines, *group_lines], good and groups_good


def stopped(number: int, phase: str, manner: str, draw: random.Random, root: Path) -> tuple[float, rig.Ended]:
    """Train, send the signal in a phase; return the seconds from the signal to the end, and how it ended."""
    told = root.parent / f"{root.name}.told"
    child = rig.start(WORDS, root, lambda: pause(phase, told, MANNERS[manner]))
    rig.wait_until(told.exists)
    time.sleep(draw.uniform(0.0, 0.2))
    signalled = time.monotonic()
    os.kill(child.pid, number)
    if manner == "twice":
        time.sleep(0.1)
        os.kill(child.pid, number)
    ended = child.wait()
    return time.monotonic() - signalled, ended


def judged(ended: rig.Ended, seconds: float, number: int, root: Path, wanted: dict[str, object]) -> str:
    """Return what is wrong with the end after signal `number`, or with the resumed run; "" if nothing is."""
    if ended.code != 128 + number or seconds > MAX_SECONDS or "Traceback" in ended.said:
        return f"exit code {ended.code} after {seconds:.1f} s: {ended.said[-600:]}"
    return rig.resumed(root, wanted) if rig.last_run(root) else ""  # or it was stopped before there was a run


def groups(count: int, draw: random.Random, folder: Path, leaders: tuple[signal.Signals, ...] = LEADERS) -> Report:
    """Stop the leader of a group by each of these signals in turn, `count` times in all, and resume the group."""
    if not count:
        return [], True
    os.environ.pop(CORES_VARIABLE, None)  # with one core for each test, a group would train one seed at a time
    rig.undisturbed((*GROUP, "--seed", ",".join(SEEDS)), folder / "group")
    amounts = {run.facts()["seed"]: rig.comparable(run) for run in runs_of(folder / "group")}
    alike = ("state", "rows", "increasing")  # not the files: a stop saves one more checkpoint
    wanted = {seed: {name: amount[name] for name in alike} for seed, amount in amounts.items()}
    tallies = {number: rig.Tally() for number in leaders[:count]}
    for trial in range(count):
        number, root = leaders[trial % len(leaders)], folder / f"group-{trial}"
        tallies[number].add(f"a group, {number.name}", led(number, draw, root, wanted))
        shutil.rmtree(root, ignore_errors=True)
    end = f"times all its trainings ended within {MAX_SECONDS:g} s; "
    end += "resumed, it ended in the bits of an undisturbed group"
    prefix = f"the leader of a group of {len(SEEDS)} seeds gets"
    lines = [f"{prefix} {number.name}: {tally} {end}" for number, tally in tallies.items()]
    return lines, all(tally.good for tally in tallies.values())


def led(number: int, draw: random.Random, root: Path, wanted: RunsBySeed) -> str:
    """Train a group, send the signal to its leader, resume it; return what is wrong, "" if nothing is."""
    child = rig.start((*GROUP, "--seed", ",".join(SEEDS)), root)
    workers = min(len(SEEDS), cores())
    rig.wait_until(lambda: len(pids(root)) == workers or not child.lives())
    if not child.lives():
        return f"over before {workers} trained at once: {child.wait()}"
    time.sleep(draw.uniform(0.0, 1.5))
    trainings = pids(root)
    os.kill(child.pid, number)
    ended = child.wait()
    ended_at = time.monotonic()
    while alive(trainings) and time.monotonic() < ended_at + MAX_SECONDS:
        time.sleep(0.01)
    if survivors := alive(trainings):
        for pid in survivors:
            os.kill(pid, signal.SIGKILL)
        return f"{len(survivors)} trainings live on"
    if ended.code not in (128 + number, 0):  # 0: it had ended before
        return f"exit code {ended.code}"
    name = re.search(r"group (\S+):", ended.said)
    assert name is not None
    command = f"--resume group:{name[1]}"
    if number != signal.SIGKILL and ended.code and command not in ended.said.strip().splitlines()[-1]:
        return f"the last line does not say how to go on: {ended.said[-300:]}"
    resume = rig.finish(command.split(), root)
    if resume.code:
        return f"resume ended with {resume.code}: {resume.said[-500:]}"
    if {int(run.facts()["seed"]) for run in runs_of(root)} != wanted.keys():
        return "other seeds"
    return "".join(rig.difference(run, wanted[run.facts()["seed"]]) for run in runs_of(root))


def runs_of(root: Path) -> list[RunDir]:
    return [RunDir(path.parent) for path in root.glob("*/config.json") if not path.parent.is_symlink()]


def pids(root: Path) -> list[int]:
    """Return the processes that train runs under `root` now."""
    return [owner["pid"] for run in runs_of(root) if (owner := run_lock.owner(run.path))]


def alive(processes: list[int]) -> list[int]:
    return [pid for pid in processes if run_lock.identity(pid)]


WATCHED = ("fsync", "replace", "symlink", "unlink")
KILLED = 128 + signal.SIGKILL
P = ParamSpec("P")
T = TypeVar("T")


class KillInSave:
    """Counts the file operations inside saves and kills the process at number `at`, before or after the operation.

    With `at` 0 nothing is killed, and the names of all operations are written to `told`. Else `told` gets where the
    kill happened.
    """

    def __init__(self, at: int, after: bool, told: Path) -> None:
        self.at, self.after, self.told, self.saving = at, after, told, False
        self.operations: list[str] = []

    def plant(self) -> None:
        """Watch the file operations of this process from now on."""
        for name in WATCHED:
            rig.plant(os, name, self.watched(getattr(os, name), name))
        save, write = Checkpoint.save, HashingFile.write

        def watched_save(checkpoint: Checkpoint, trainer: L.Trainer, agent: Agent) -> None:
            self.saving = True
            save(checkpoint, trainer, agent)
            self.saving = False
            if self.at == 0:  # this run only counts
                self.told.write_text(" ".join(self.operations))

        def watched_write(hashing: HashingFile, data: bytes) -> int:
            if self.strikes("write"):
                hashing.file.write(bytes(data)[: len(data) // 2])
                hashing.file.flush()
                self.strike("write")
            return write(hashing, data)

        rig.plant(Checkpoint, "save", watched_save)
        rig.plant(HashingFile, "write", watched_write)

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
        """Count an operation; whether it is the one at which to kill."""
        self.operations.append(name)
        return len(self.operations) == self.at

    def strike(self, where: str) -> None:
        self.told.write_text(where)
        os.kill(os.getpid(), signal.SIGKILL)


MEMORY = tuple(word for word in rig.REPLAY[1:] if word != "prioritised=true")
SAC = ("Pendulum-v1:sac", *(word for word in MEMORY if word != "n_step=3"))
DREAMER = (
    "CartPole-v1:dreamer", *rig.SMALL, "n_envs=4", "train_freq=16", "batch_size=4", "batch_length=6", "buffer_size=400",
    "learning_starts=100", "epoch_iterations=1", "train_ratio=2", "deter=16", "width=16", "stoch=3", "horizon=4",
    "imagined_starts=8",
)  # fmt: skip
PLANET = ("CartPole-v1:planet", *DREAMER[1:-1], "candidates=8", "elites=3")  # without imagined_starts
LSTM = ("policy=lstm", "engine=eager", "max_timesteps=640")
CASES = {
    "PPO, fused": (*rig.TINY, "engine=fused_cpu"),
    "DQN, prioritised, memmap": (*rig.REPLAY, "engine=eager"),
    "SAC": (*SAC, "engine=eager"),
    "PPO, LSTM": (*rig.TINY, *LSTM),
    "DQN, fused, memmap": ("CartPole-v1:dqn", *MEMORY, "engine=fused_cpu"),
    "SAC, fused": (*SAC, "engine=fused_cpu", "replay_storage=ram"),
    "PQN": ("CartPole-v1:pqn", *rig.TINY[1:]),
    "Dreamer": DREAMER,
    "PlaNet": PLANET,
    "PPO": (*rig.TINY, "engine=eager"),
    "REINFORCE, fused": ("CartPole-v1:reinforce", *rig.TINY[1:], "engine=fused_cpu"),
    "REINFORCE, LSTM": ("CartPole-v1:reinforce", *rig.TINY[1:], *LSTM, "policy_targets=advantages"),
    "Q-learning": ("FrozenLake-v1:q_learning", *rig.SMALL, "n_envs=4", "n_steps=16", "epoch_iterations=2"),
    "Q-learning, one save": ("FrozenLake-v1:q_learning", *rig.SMALL, "n_envs=4", "n_steps=16"),
    "PPO, LSTM, worker processes": (*rig.TINY, *LSTM, "env_backend=gym", "workers=2"),
    "PPO, fused, on Gymnasium's environments": (*rig.TINY, "engine=fused_cpu", "env_backend=gym"),
}
OTHER_FILESYSTEM = Path("/dev/shm")


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    other = Path(tempfile.mkdtemp(prefix="kill-", dir=OTHER_FILESYSTEM))
    trials_each, remainder = divmod(counts["trials"], len(CASES))
    lines, good = [], True
    try:
        for index, (title, words) in enumerate(CASES.items()):
            if trials := trials_each + (index < remainder):
                killing = Killing(title, rig.last_of_each_key(words), [folder, other])
                for number in range(trials):
                    killing.trial(number, draw)
                lines.append(str(killing))
                good = good and killing.tally.good
    finally:
        shutil.rmtree(other, ignore_errors=True)
    group_lines, groups_good = groups(counts["groups"], draw, folder, (signal.SIGKILL,))
    return [*lines, *group_lines], good and groups_good


class Killing:
    """Kills one kind of training again and again, and compares it with the same training undisturbed."""

    def __init__(self, title: str, words: tuple[str, ...], places: list[Path]) -> None:
        self.title, self.words, self.places, self.told = title, words, places, places[0] / f"{title} count"
        reference = rig.undisturbed(words, places[0] / f"{title} straight", KillInSave(0, False, self.told).plant)
        self.operations = self.told.read_text().split()  # names of the file operations of all its saves, in order
        self.wanted, self.leaves = rig.comparable(reference), sum(1 for _ in walk(rig.state_of(reference)))
        self.quick = rig.finish(words, places[0] / f"{title} again").seconds  # the first one also filled caches
        self.tally, self.where = rig.Tally(), collections.Counter[str]()

    def trial(self, number: int, draw: random.Random) -> None:
        """Train, kill, resume and compare; delete the folder afterwards."""
        root = self.places[number % 2] / f"{self.title} {number}"
        self.told.unlink(missing_ok=True)
        killed_run = self.from_outside if number // 2 % 2 else self.inside_a_save
        while killed_run(root, draw).code != KILLED:  # it ended before the kill
            shutil.rmtree(root)
        where = self.told.read_text() if self.told.exists() else "outside of a save"
        self.where[where] += 1
        self.tally.add(f"{self.title} {number}, {where}", rig.resumed(root, self.wanted, self.words))
        shutil.rmtree(root)

    def inside_a_save(self, root: Path, draw: random.Random) -> rig.Ended:
        kind = draw.choice(sorted(set(self.operations)))  # first a kind, as nearly all are writes
        number = draw.choice([index for index, name in enumerate(self.operations, 1) if name == kind])
        return rig.finish(self.words, root, KillInSave(number, draw.random() < 0.5, self.told).plant)

    def from_outside(self, root: Path, draw: random.Random) -> rig.Ended:
        child = rig.start(self.words, root)
        moment = time.monotonic() + draw.uniform(0.0, 0.9 * self.quick)
        while time.monotonic() < moment and child.lives():
            time.sleep(0.002)
        os.kill(child.pid, signal.SIGKILL)
        ended = child.wait()
        self.quick = self.quick if ended.code == KILLED else min(self.quick, ended.seconds)
        return ended

    def __str__(self) -> str:
        struck = ", ".join(f"{place} {count}x" for place, count in sorted(self.where.items()))
        same = f"runs resumed to the same bits ({self.leaves:,} values of the state, rows, links, files, report)"
        return f"{self.title}: {self.tally} {same}, no file left over; killed {struck}, every other one on tmpfs"
