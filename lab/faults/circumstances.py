"""Trains the same run under other circumstances: it must end in the same bits, or in one line that says why not.

    python -m lab.faults circumstances --seed 1        (as root: it mounts small tmpfs)

- references: each training again, with two threads, with less and with more evaluation, and in another folder.
- environments: the whole command with unusual environment variables, another umask, closed streams.
- limits: of memory, file size, file descriptors, inodes; then the run is resumed without the limit.
- stops: SIGSTOP, then SIGCONT. resumes: three processes resume one run at once.
- cases: a run is resumed after something has changed, for example the clock or a deleted metrics.csv.

A smaller count takes its cases at equal distances from the list.
"""

import concurrent.futures
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lab.faults import rig
from lab.faults.kill import CASES, KILLED, pause
from lab.faults.record import Report
from stride.commands import train
from stride.commands.plain_tree import fingerprint
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.checkpoint import Checkpoint
from stride.utils import places

VIDEOS = ("video_freq_epochs=4", "video_max_steps=20")
BASES = {name: rig.last_of_each_key((*CASES[name], *VIDEOS)) for name in ("PPO, fused", "PPO", "DQN, fused, memmap")}
ESSENCE = ("state", "rows", "increasing", "report")  # keys of `rig.comparable`


class Change(NamedTuple):
    """What is changed between the kill of a run and its resume, and what must come of it."""

    alter: Callable[[Path], object] = lambda run: None  # changes the run's folder; returns its new path if it moves it
    words: tuple[str, ...] = ()  # more arguments of the resume
    told: str = ", exact"  # text that the output or run.log must contain
    code: int = 0  # the exit code that the resume must have
    equal: tuple[str, ...] = ESSENCE  # keys that must be equal to the undisturbed run's
    prepare: Callable[[], object] = lambda: None  # called in the process of the resume


def dated(seconds: int, run: Path) -> None:
    """Set the times of all files to so many seconds since 1970."""
    for path in run.rglob("*"):
        os.utime(path, (seconds, seconds), follow_symlinks=False)  # links have times, too


def without_links(run: Path) -> None:
    for path in (path for path in (run / "checkpoints").iterdir() if path.is_symlink()):
        path.unlink()


def configured(change: Callable[[dict[str, object]], dict[str, object]], run: Path) -> None:
    """Overwrite keys of config.json by what `change` returns for its present contents."""
    facts = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**facts, **change(facts)}))


def metrics(data: bytes, run: Path) -> None:
    (run / "metrics.csv").write_bytes(data)


def garbled_sidecar(run: Path) -> None:
    stem = checkpoint_set.target(run / "checkpoints" / "last.ckpt")
    (run / "checkpoints" / f"{stem}.json").write_bytes(b"\xff{garbage")


def later() -> None:
    """Set this process's clock 30 years ahead."""
    now = time.time
    rig.plant(time, "time", lambda: now() + 30 * 365 * 86400)


HALVED = partial(configured, lambda facts: {"config": {**facts["config"], "gamma": 0.5}})  # type: ignore[dict-item]
KEPT = "kept as metrics.damaged-1.csv"
CHANGES = {
    "threads": Change(words=("threads=2",), told="changed: threads auto -> 2", equal=("state",)),
    "engine": Change(told="not bit-exact; engine", equal=()),
    "mtimes of 1970": Change(partial(dated, 0)),
    "mtimes of 2099": Change(partial(dated, 4_080_000_000)),
    "clock": Change(prepare=later),
    "folder renamed": Change(lambda run: run.rename(run.with_name("20200101-000000-CartPole-v1-ppo-s1-abcd"))),
    "links gone": Change(without_links),
    "videos gone": Change(lambda run: shutil.rmtree(run / "videos")),
    "metrics.csv deleted": Change(
        lambda run: (run / "metrics.csv").unlink(), told="metrics.csv is missing: the rows up to", equal=("state",)),
    "metrics.csv emptied": Change(partial(metrics, b""), told=KEPT, equal=("state",)),
    "metrics.csv garbage": Change(partial(metrics, random.Random(0).randbytes(3000)), told=KEPT, equal=("state",)),
    "config.json edited": Change(HALVED, told="was edited by hand: gamma", code=2),
    "config.json's engine": Change(
        partial(configured, lambda facts: {"engine": "another"}), told="was edited by hand: engine", code=2),
    "edit accepted": Change(HALVED, ("--accept-changes",), "edited by hand in config.json: gamma", equal=()),
    "sidecar garbage": Change(garbled_sidecar, told="has no sidecar with its size and hash"),
}  # fmt: skip


def last_save(save: rig.Call, *arguments: object) -> None:
    """Save, then kill this process."""
    save(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)


def resumed_at_once(case: tuple[int, float], folder: Path) -> str:
    """Resume one run in three processes at once, and return what is wrong: two must be refused, one must finish."""
    root = folder / f"at once {case[0]}"
    base = [*BASES][case[0] % len(BASES)]
    shutil.copytree(folder / f"{base}, killed", root, symlinks=True)
    children = []

    def speak_into(log_file: Path) -> None:  # each has its own log, and builds so slowly that all three meet
        rig.write_into(log_file)
        pause("building", log_file.with_suffix(".told"), 3.0)

    for process_number in range(3):
        log_file = folder / f"{root.name}-{process_number}.said"
        child = rig.start(["--resume", "@last", "-q"], root, partial(speak_into, log_file))
        children.append(child._replace(log=log_file))
    ended = sorted((child.wait() for child in children), key=lambda result: result.code)
    refused = [other.code == 2 and "is being trained by" in other.said for other in ended[1:]]
    if not all(refused) or not all(rig.refused_in_a_line(other.said) for other in ended[1:]):
        return f"not refused: {ended}"
    return judged(ended[0], rig.last_run(root), folder / f"{base}, straight")


def resumed(case: tuple[str, str], folder: Path) -> str:
    """Resume a copy of a killed run after a change of CHANGES; `case` is (base, name of the change)."""
    base, name = case
    change, root = CHANGES[name], folder / f"resumed {name}, {base}"
    shutil.copytree(folder / f"{base}, killed", root, symlinks=True)
    killed = rig.last_run(root)
    assert killed is not None
    new_path = change.alter(killed.path)
    run = RunDir(new_path) if isinstance(new_path, Path) else killed
    words = [*change.words]
    if name == "engine":
        words.append("engine=eager" if "fused" in base else "engine=fused_cpu")
    ended = rig.finish(["--resume", str(run.path), "-q", *words], root, change.prepare)
    messages = ended.said + run.run_log.read_text()
    if change.told not in messages:
        return f"does not say {change.told!r}: {ended.code} {messages[-600:]}"
    if change.code:
        good = ended.code == change.code and rig.refused_in_a_line(ended.said)
        return "" if good else f"{ended.code} {ended.said[-600:]}"
    if name == "engine" and ", exact" in messages:  # engines round differently: equal bits may not be promised
        return "called exact"
    return judged(ended, run, folder / f"{base}, straight", change.equal)


def judged(ended: rig.Ended, run: RunDir | None, root: Path, equal: tuple[str, ...] = ESSENCE) -> str:
    """Return what is wrong with a run that should equal the undisturbed run under `root` in the keys `equal`; or ""."""
    if ended.code or run is None or "Traceback" in ended.said:
        return f"{ended.code} {ended.said[-600:]}"
    reference = rig.last_run(root)
    assert reference is not None
    expected = rig.comparable(reference)
    return rig.difference(run, {name: expected[name] for name in equal})


FUSED = CASES["PPO, fused"]
REFERENCES = {
    **{f"PPO, fused, seed {seed}": (*FUSED, f"seed={seed}") for seed in (9041, 7717, 313, 987)},
    **{name: CASES[name] for name in ("PPO", "PPO, fused, on Gymnasium's environments", "PPO, LSTM", "PQN", "SAC")},
    **{name: CASES[name] for name in ("REINFORCE, fused", "DQN, prioritised, memmap", "DQN, fused, memmap")},
    **{name: CASES[name] for name in ("SAC, fused", "Q-learning")},
    "Q-learning, Taxi": ("Taxi-v4:q_learning", *CASES["Q-learning"][1:]),
    "PPO, Blackjack": ("Blackjack-v1:ppo", *(word for word in rig.TINY[1:] if not word.startswith("normalize_obs"))),
}
MANNERS = {
    "again": (), "with threads=2": ("threads=2",), "without evaluation": ("eval_freq_epochs=null",),
    "with more evaluations": ("eval_freq_epochs=1",), "in another folder": (),
}  # fmt: skip
VARIABLES = (
    "PYTHONHASHSEED=0", "PYTHONHASHSEED=4242", "LANG=C LC_ALL=C", "PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 LC_ALL=C",
    "PYTHONOPTIMIZE=1", "OMP_NUM_THREADS=8", "MKL_NUM_THREADS=4", "NUMBA_CACHE_DIR=/proc/nowhere",
    "TZ=Nowhere/Land-99:99", f"NUMBA_CACHE_DIR={train.__file__}",
)  # fmt: skip
ENVIRONMENTS: dict[str, Mapping[str, str | None]] = {  # None: without that variable
    **{words: dict(word.split("=", 1) for word in words.split()) for words in VARIABLES},
    "no HOME": {"HOME": None}, "empty environment": dict.fromkeys(os.environ), "umask 077": {}, "stdin closed": {},
    "stdout closed": {},
}  # fmt: skip
AT_THE_START: dict[str, Callable[[], object]] = {
    "umask 077": lambda: os.umask(0o077),
    "stdin closed": lambda: os.close(0),
    "stdout closed": lambda: os.close(1),
}
MIB = 1 << 20
# a kind of limit -> the option of a tmpfs that sets it; and options without a limit, for the resume
MOUNTS, MORE = {"inodes": "nr_inodes", "room": "size"}, {"nr_inodes": "1000", "size": "30m"}  # limits of a tmpfs
LIMITS = (
    *(("memory", more * MIB) for more in (60, 80, 100, 150)),
    *(("file size", size) for size in (2_000, 12_000, 40_000, 100_000)),
    *(("descriptors", more) for more in (1, 2, 4)),
    *(("inodes", number) for number in (12, 16, 20, 24)),
)
# for the kind "memory"
ROOMY = rig.last_of_each_key((*CASES["DQN, fused, memmap"], "replay_storage=ram", "buffer_size=3_000_000"))
STOPS = 4  # pauses of each training
STOPPED = ("PPO, fused", "PPO", "DQN, fused, memmap", "SAC, fused", "PQN", "Q-learning")


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    torch.set_num_threads(1)
    rig.undisturbed(FUSED, folder / "straight")
    rig.undisturbed(ROOMY, folder / "straight, roomy")
    references = rig.evenly([*REFERENCES], counts["references"])
    moments = [(trial, draw.random()) for trial in range(max(counts["stops"], counts["resumes"]))]
    changed = rig.evenly([(base, change) for change in CHANGES for base in BASES], counts["cases"])
    at_once = [*BASES][: counts["resumes"]]
    kill_after_save = partial(rig.at_call, Checkpoint, "save", 5, last_save)
    for base in dict.fromkeys([*at_once, *(base for base, _ in changed)]):  # one undisturbed, one killed in the middle
        rig.undisturbed(BASES[base], folder / f"{base}, straight")
        assert rig.finish(BASES[base], folder / f"{base}, killed", kill_after_save).code == KILLED
    classes: dict[str, tuple[list[Any], Callable[..., str]]] = {
        f"trainings ({'; '.join(references)}) end in the same weights and moments when trained {', '.join(MANNERS)}": (
            references, determined),
        "surroundings of the process (variables, streams, umask): the same bits, or one line and exit code 2": (
            rig.evenly([*ENVIRONMENTS], counts["environments"]), surrounded),
        "limits (memory, file size, descriptors, inodes of a tmpfs): finished, or ended with one line (or with "
        "LLVM's abort where its memory ran out); checkpoints complete, resumed to the same bits": (
            rig.evenly(LIMITS, counts["limits"]), limited),
        f"runs stopped and continued {STOPS} times each (SIGSTOP, SIGCONT): the same bits": (
            moments[: counts["stops"]], paused),
        "times three processes resumed one run at once: one ended in the same bits, two were refused in one line": (
            moments[: counts["resumes"]], resumed_at_once),
        f"resumes after a change went as documented ({', '.join(CHANGES)}; of {'; '.join(BASES)})": (
            changed, resumed),
    }  # fmt: skip
    lines, good = [], True
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as workers:
        for title, (cases, judge) in classes.items():
            tally, skipped = rig.Tally(), 0
            for case, problem in zip(cases, workers.map(partial(judge, folder=folder), cases), strict=True):
                if problem.startswith("skipped"):
                    skipped += 1
                else:
                    tally.add(f"{judge.__name__}, {case}", problem)
            good = good and tally.good
            lines.append(f"{tally} {title}" + f"; {skipped} skipped" * bool(skipped))
            print(lines[-1], flush=True)
    lines.append(f"{len([*folder.glob('struck by *')])} of the limits stopped a run before its end")
    return lines, good


def determined(name: str, folder: Path) -> str:
    """Train a reference in each of MANNERS, and return those that end in other weights; "" if none does."""
    expected, wrong = "", []
    for manner, words in {"reference": (), **MANNERS}.items():
        root = folder / f"determined {name}" / manner
        (root / "elsewhere").mkdir(parents=True)
        work_folder = root / "elsewhere" if "folder" in manner else folder
        ended = rig.finish(rig.last_of_each_key((*REFERENCES[name], *words)), root, partial(os.chdir, work_folder))
        run = rig.last_run(root)
        if ended.code or run is None:
            return f"{manner}: {ended.code} {ended.said[-400:]}"
        state = rig.state_of(run)
        weights_hash = fingerprint({key: state[key] for key in ("state_dict", "optimizer_states")})
        expected = expected or weights_hash
        wrong += [manner] * (weights_hash != expected)
    return f"other weights: {', '.join(wrong)}" if wrong else ""


def surrounded(name: str, folder: Path) -> str:
    """Train in a new Python process with the surroundings of ENVIRONMENTS[name]; return what is wrong."""
    root = folder / f"surrounded {name}".replace("/", "-")
    root.mkdir()
    environment = {**os.environ, **ENVIRONMENTS[name]} | {"STRIDE_RUNS": str(root)}
    result = subprocess.run(
        [*places.program("train"), *FUSED], env={key: value for key, value in environment.items() if value is not None},
        preexec_fn=AT_THE_START.get(name), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
    )  # fmt: skip
    if name.startswith("NUMBA"):
        good = result.returncode == 2 and rig.refused_in_a_line(result.stdout) and not rig.last_run(root)
        return "" if good else f"{result.returncode} {result.stdout[-600:]}"
    return judged(rig.Ended(result.returncode, result.stdout, 0.0), rig.last_run(root), folder / "straight")


def limited(limit: tuple[str, int], folder: Path) -> str:
    """Train under a limit, resume without it, and return what is wrong; "" if nothing is.

    `limit` is the kind and its amount, for example ("inodes", 12).
    """
    kind, amount = limit
    root, mount_option = folder / f"limited {kind} {amount}" / "runs", MOUNTS.get(kind)
    words, reference_name = (ROOMY, "straight, roomy") if kind == "memory" else (FUSED, "straight")
    root.parent.mkdir()
    if mount_option and mount(root.parent, f"size=30m,{mount_option}={amount}").returncode:
        return "skipped: a tmpfs could not be mounted here"
    try:
        ended = rig.finish(words, root, partial(limit_itself, kind, amount))
        if ended.code and not (ended.code in (1, 2) and rig.refused_in_a_line(ended.said)) and not aborted(ended):
            return f"{ended.code} {ended.said[-600:]}"
        run = rig.last_run(root)
        if run and (broken := rig.faults(run)):
            return f"broken: {broken}"
        if mount_option:  # this limit belongs to the mount; all others ended with the process
            mount(root.parent, f"remount,size=30m,{mount_option}={MORE[mount_option]}")
        if ended.code:
            (folder / f"struck by {kind} {amount}").touch()
            ended = rig.finish(["--resume", "@last", "-q"] if run else words, root)
        return judged(ended, rig.last_run(root), folder / reference_name)
    finally:
        if mount_option:
            subprocess.run(["umount", str(root.parent)], check=True)


def mount(folder: Path, options: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True)


def aborted(ended: rig.Ended) -> bool:
    """Whether memory ended inside LLVM (it loads kernels, without exceptions): that counts as if the run was killed."""
    return ended.code == 128 + signal.SIGABRT and rig.message_lines(ended.said)[-1:] == ["  what():  std::bad_alloc"]


def limit_itself(kind: str, amount: int) -> None:
    """Limit this process; `amount` is in bytes (memory: more than now) or in descriptors beside the open ones."""
    if kind == "memory":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + amount,) * 2)
    elif kind == "file size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (amount, amount))
    elif kind == "descriptors":
        free = os.dup(1)
        os.close(free)
        number = free + amount  # the next descriptors to be taken
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))


def paused(case: tuple[int, float], folder: Path) -> str:
    """Stop and continue a training STOPS times; `case` is (number of the trial, seed). Return what is wrong."""
    words, draw = rig.last_of_each_key(CASES[STOPPED[case[0] % len(STOPPED)]]), random.Random(case[1])
    root = folder / f"paused {case[0]}"
    rig.undisturbed(words, folder / f"{root.name}, straight")
    child = rig.start(words, root)
    rig.wait_until(lambda: rig.last_run(root) or not child.lives())
    for stop in range(STOPS):
        time.sleep(draw.uniform(0.01, 0.08))
        if not child.lives():
            return f"ended after {stop} stops: {child.wait()}"
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(draw.uniform(0.05, 0.4))
        os.kill(child.pid, signal.SIGCONT)
    return judged(child.wait(), rig.last_run(root), folder / f"{root.name}, straight")
