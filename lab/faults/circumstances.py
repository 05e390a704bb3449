"""The same run under other circumstances: does it end in the same bits, or in one line that says why not?

    python -m lab.faults circumstances --seed 1        (as root: it mounts small tmpfs)

Determinism: each reference again, on two threads, with no and with more evaluation, and in another folder.
Environment: the whole command, imports and all, under odd variables, a umask, closed streams. Limits: memory, file
size, descriptors, inodes; then resumed without them. Stops: SIGSTOP and SIGCONT. Resuming: three at once, and under
changed circumstances (changed_runs). A smaller count takes cases evenly out of the list.
"""

import concurrent.futures
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lab.faults.changed_runs import (
    BASES,
    CHANGES,
    ESSENCE,
    judged,
    prepare_bases,
    resumed,
    resumed_at_once,
)
from lab.faults.kill import CASES, last_words
from lab.faults.rig import TINY, Ended, evenly, faults, finish, last_run, refused_in_a_line, start, state_of, told
from stride.commands import train
from stride.commands.plain_tree import fingerprint

FUSED = CASES["PPO, fused"]
REFERENCES = {
    **{f"PPO, fused, seed {seed}": (*FUSED, f"seed={seed}") for seed in (9041, 7717, 313, 987)},
    **{name: CASES[name] for name in ("PPO", "PPO, fused, on Gymnasium's worlds", "PPO, LSTM", "PQN", "SAC")},
    **{name: CASES[name] for name in ("REINFORCE, fused", "DQN, prioritised, memmap", "DQN, fused, memmap")},
    **{name: CASES[name] for name in ("SAC, fused", "Q-learning")},
    "Q-learning, Taxi": ("Taxi-v4:q_learning", *CASES["Q-learning"][1:]),
    "PPO, Blackjack": ("Blackjack-v1:ppo", *(word for word in TINY[1:] if not word.startswith("normalize_obs"))),
}
MANNERS = {
    "again": (),
    "threads=2": ("threads=2",),
    "no evaluation": ("eval_freq_epochs=null",),
    "more evaluation": ("eval_freq_epochs=1",),
    "in another folder": (),
}
ENVIRONMENTS: dict[str, dict[str, str | None]] = {  # None: without that variable
    "PYTHONHASHSEED=0": {"PYTHONHASHSEED": "0"},
    "PYTHONHASHSEED=4242": {"PYTHONHASHSEED": "4242"},
    "LANG=C": {"LANG": "C", "LC_ALL": "C"},
    "PYTHONUTF8=0": {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"},
    "stdout closed": {},
    "no HOME": {"HOME": None},
    "empty environment": dict.fromkeys(os.environ),
    "PYTHONOPTIMIZE=1": {"PYTHONOPTIMIZE": "1"},
    "OMP_NUM_THREADS=8": {"OMP_NUM_THREADS": "8"},
    "MKL_NUM_THREADS=4": {"MKL_NUM_THREADS": "4"},
    "NUMBA_CACHE_DIR impossible": {"NUMBA_CACHE_DIR": "/proc/nowhere"},
    "TZ odd": {"TZ": "Nowhere/Land-99:99"},
    "umask 077": {},
    "stdin closed": {},
    "NUMBA_CACHE_DIR a file": {"NUMBA_CACHE_DIR": train.__file__},
}
AT_THE_START: dict[str, Callable[[], object]] = {
    "umask 077": lambda: os.umask(0o077),
    "stdin closed": lambda: os.close(0),
    "stdout closed": lambda: os.close(1),
}
MIB = 1 << 20
LIMITS = (
    *(("memory", more * MIB) for more in (60, 80, 100, 150)),
    *(("file size", size) for size in (2_000, 12_000, 40_000, 100_000)),
    *(("descriptors", more) for more in (1, 2, 4)),
    *(("inodes", number) for number in (12, 16, 20, 24)),
)
ROOMY = last_words((*CASES["DQN, fused, memmap"], "replay_storage=ram", "buffer_size=3_000_000"))  # for "memory"
STOPS = 4
STOPPED = tuple(
    last_words(CASES[name]) for name in ("PPO, fused", "PPO", "DQN, fused, memmap", "SAC, fused", "PQN", "Q-learning")
)


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    torch.set_num_threads(1)
    for name, words in (("straight", FUSED), ("straight, roomy", ROOMY)):
        straight = finish(words, folder / name)
        assert straight.code == 0, straight.said
    references = evenly([*REFERENCES], counts["references"])
    moments = [(place, draw.random()) for place in range(max(counts["stops"], counts["resumes"]))]
    changed = evenly([(base, change) for change in CHANGES for base in BASES], counts["cases"])
    at_once = [*BASES][: counts["resumes"]]
    prepare_bases(folder, [*dict.fromkeys([*at_once, *(base for base, _ in changed)])])
    classes: dict[str, tuple[list[Any], Callable[..., str]]] = {
        f"comparisons of final weights and moments ({', '.join(MANNERS)}): equal to the reference's"
        f" ({'; '.join(references)})": (references, determined),
        "environments of the process: the same bits, or one line and exit code 2": (
            evenly([*ENVIRONMENTS], counts["environments"]), surrounded),
        "limits (memory, file size, descriptors, inodes of a tmpfs): one line or done (or LLVM's abort where memory "
        "ends in it), every checkpoint whole, resumed to the same bits": (evenly(LIMITS, counts["limits"]), limited),
        f"runs stopped and continued {STOPS} times each (SIGSTOP, SIGCONT): the same bits": (
            moments[: counts["stops"]], paused),
        "times three resumes of one run at once: one owner that ends in the same bits, two refused in a line": (
            moments[: counts["resumes"]], resumed_at_once),
        f"resumes under changed circumstances as documented, exact where it says so ({', '.join(CHANGES)}; of "
        f"{'; '.join(BASES)})": (changed, resumed),
    }  # fmt: skip
    lines, good = [], True
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as workers:
        for title, (cases, judge) in classes.items():
            began, right, skipped = time.monotonic(), 0, 0
            for case, problem in zip(cases, workers.map(partial(judge, folder=folder), cases), strict=True):
                skipped += problem.startswith("skipped")
                right += not problem
                if problem:
                    print(f"{judge.__name__}, {case}: {problem}", flush=True)
            times = len(MANNERS) if judge is determined else 1  # as many runs make up a case of it
            total = len(cases) - skipped
            good = good and right == total
            lines.append(f"**{right * times} of {total * times}** {title}" + f"; {skipped} skipped" * bool(skipped))
            print(f"{judge.__name__}: {right} of {total} cases in {time.monotonic() - began:.0f} s", flush=True)
    lines.append(f"{len([*folder.glob('struck by *')])} of the limits struck before the run was done")
    return lines, good


def determined(name: str, folder: Path) -> str:
    """Which manners of running a reference end in other weights."""
    wanted, wrong = "", []
    for manner, words in {"reference": (), **MANNERS}.items():
        root = folder / f"determined {name}" / manner
        (root / "elsewhere").mkdir(parents=True)
        where = root / "elsewhere" if "folder" in manner else folder
        ended = finish(last_words((*REFERENCES[name], *words)), root, partial(os.chdir, where))
        run = last_run(root)
        if ended.code or run is None:
            return f"{manner}: {ended.code} {ended.said[-400:]}"
        state = state_of(run)
        found = fingerprint({key: state[key] for key in ("state_dict", "optimizer_states")})
        wanted = wanted or found
        wrong += [manner] * (found != wanted)
    return f"other weights: {', '.join(wrong)}" if wrong else ""


def surrounded(name: str, folder: Path) -> str:
    root = folder / f"surrounded {name}"
    root.mkdir()
    given = {**os.environ, **ENVIRONMENTS[name]} | {"STRIDE_RUNS": str(root)}
    done = subprocess.run(
        [sys.executable, train.__file__, *FUSED], env={key: value for key, value in given.items() if value is not None},
        preexec_fn=AT_THE_START.get(name), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
    )  # fmt: skip
    if name.startswith("NUMBA"):
        good = done.returncode == 2 and refused_in_a_line(done.stdout) and not last_run(root)
        return "" if good else f"{done.returncode} {done.stdout[-600:]}"
    return judged(Ended(done.returncode, done.stdout, 0.0), last_run(root), folder / "straight", ESSENCE)


def limited(limit: tuple[str, int], folder: Path) -> str:
    kind, amount = limit
    root = folder / f"limited {kind} {amount}" / "runs"
    words, straight = (ROOMY, "straight, roomy") if kind == "memory" else (FUSED, "straight")
    root.parent.mkdir()
    if kind == "inodes":
        options = ["-o", f"nr_inodes={amount},size=30m", "tmpfs", str(root.parent)]
        if subprocess.run(["mount", "-t", "tmpfs", *options], capture_output=True).returncode:
            return "skipped: a tmpfs could not be mounted here"
    try:
        ended = finish(words, root, partial(limit_itself, kind, amount))
        if ended.code and not (ended.code in (1, 2) and refused_in_a_line(ended.said)) and not aborted(ended):
            return f"{ended.code} {ended.said[-600:]}"
        run = last_run(root)
        if run and (broken := faults(run)):
            return f"broken: {broken}"
        if kind == "inodes":
            # this limit belongs to the mount; all others ended with the process
            subprocess.run(["mount", "-o", "remount,nr_inodes=1000", str(root.parent)], check=True)
        if ended.code:
            (folder / f"struck by {kind} {amount}").touch()
            ended = finish(["--resume", "@last", "-q"] if run else words, root)
        return judged(ended, last_run(root), folder / straight, ESSENCE)
    finally:
        if kind == "inodes":
            subprocess.run(["umount", str(root.parent)], check=True)


def aborted(ended: Ended) -> bool:
    """Whether memory ended inside a library that knows no exceptions (LLVM, while it loads kernels): then as killed."""
    return ended.code == 128 + signal.SIGABRT and told(ended.said)[-1:] == ["  what():  std::bad_alloc"]


def limit_itself(kind: str, amount: int) -> None:
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
    words, draw = STOPPED[case[0] % len(STOPPED)], random.Random(case[1])
    straight, root = folder / f"paused {case[0]}, straight", folder / f"paused {case[0]}"
    ended = finish(words, straight)
    assert ended.code == 0, ended.said
    child = start(words, root)
    while last_run(root) is None and child.lives():
        time.sleep(0.005)
    for stop in range(STOPS):
        time.sleep(draw.uniform(0.01, 0.08))
        if not child.lives():
            return f"ended after {stop} stops: {child.wait()}"
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(draw.uniform(0.05, 0.4))
        os.kill(child.pid, signal.SIGCONT)
    return judged(child.wait(), last_run(root), straight, ESSENCE)
