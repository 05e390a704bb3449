"""Starts many processes at once that want the same run id, lock, link or folder: exactly one may get it.

python -m lab.faults races --processes 100 --lookups 100000 --trainings 6
"""

import json
import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lab.faults import rig
from lab.faults.record import Report
from stride.runstore import run_dir, run_lock
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.run_files import write_json
from stride.runstore.run_lock import LOST_EXIT_CODE, RunInTrainingError, identity, locked
from stride.utils.durable_file import relink


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    os.environ["STRIDE_RUNS"] = str(folder / "ids")
    processes, lookups, trainings = counts.values()
    same_id, same_lock = one_id(processes, folder), one_lock(processes, folder)
    return rig.joined(same_id, same_lock, one_link(lookups, folder), one_folder(trainings, folder))


def at_once(number: int, work: Callable[[int], str], folder: Path) -> list[str]:
    """Run `work(i)` in `number` processes that start in the same instant; return their results.

    Each process writes its result into a file of `folder`; if there is none, the result is "died".
    """
    folder.mkdir(parents=True, exist_ok=True)
    start = time.time() + 0.5

    def begin(index: int) -> None:
        while time.time() < start:
            time.sleep(0.001)
        (folder / str(index)).write_text(work(index))

    for pid in [rig.forked(partial(begin, index)) for index in range(number)]:
        os.waitpid(pid, 0)
    return [path.read_text() if (path := folder / str(index)).exists() else "died" for index in range(number)]


def one_id(number: int, folder: Path) -> tuple[str, bool]:
    """Create a run in many processes whose clock and random letters are equal, so that all first try the same id."""

    def create(index: int) -> str:
        letters = iter("aaaa")
        choice, second = run_dir.secrets.choice, "20260101-000000"
        rig.plant(run_dir.secrets, "choice", lambda options: next(letters, "") or choice(options))
        rig.plant(run_dir.time, "strftime", lambda form: second)
        return RunDir.create("CartPole-v1", "ppo", 1, {"place": index}).id

    ids = at_once(number, create, folder / "created")
    owners = [json.loads((folder / "ids" / name / "config.json").read_text())["place"] for name in ids]
    whole = len(set(ids)) == number and owners == list(range(number)) and len(list_runs()) == number
    first = sum(name.endswith("-aaaa") for name in ids)
    litter = rig.leftovers(folder / "ids")
    line = f"{number} processes ask for one run id: {len(set(ids))} folders, {first} with just that id, each with the "
    return (
        f"{line}config.json of its own process; {len(litter)} files left over",
        whole and first == 1 and not litter,
    )


def one_lock(number: int, folder: Path) -> tuple[str, bool]:
    """Take over the lock of a dead process in many processes at once."""
    target = folder / "claimed"
    target.mkdir()
    (target / ".lock").write_text(json.dumps({**identity(os.getpid()), "started": 1}))

    def claim(place: int) -> str:
        try:
            with locked(target):
                deadline = time.monotonic() + 60  # until all others have asked
                while len(list((folder / "claims").iterdir())) < number - 1 and time.monotonic() < deadline:
                    time.sleep(0.05)
                return "owner"
        except RunInTrainingError:
            return "refused"

    answers = at_once(number, claim, folder / "claims")
    owners, refused = answers.count("owner"), answers.count("refused")
    line = f"{number} processes try to take over one stale lock: {owners} gets it, {refused} are refused"
    return line, owners == 1 and refused == number - 1 and not (target / ".lock").exists()


def one_link(lookups: int, folder: Path) -> tuple[str, bool]:
    """Look up @last while two processes change it without pause."""
    names = [run.id for run in list_runs()[:2]]
    root = folder / "ids"

    def relinking() -> None:
        while True:
            for name in names:
                relink(root / run_dir.LAST, root / name)

    pids = [rig.forked(relinking) for _ in range(2)]
    failed, seen = 0, set()
    for _ in range(lookups):
        try:
            seen.add(RunDir.find("@last").id)
        except ValueError:
            failed += 1
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    line = f"{lookups:,} look-ups of @last while two processes change it: {failed} failed, {len(seen)} runs were found"
    return line, failed == 0


def one_folder(trainings: int, folder: Path) -> tuple[str, bool]:
    """Start trainings at once under one root, and try to resume one of them while it trains."""
    root = folder / "trained"
    root.mkdir()
    children = [rig.start((*rig.TINY, f"seed={place}"), root) for place in range(trainings)]
    refusals = 0
    while not refusals:
        live = [path for path in root.glob("*/.lock") if path.parent.name != "@last"]
        if live:
            ended = rig.finish(["--resume", live[0].parent.name, "-q"], root)
            refusals += ended.code == 2 and "is being trained by process" in ended.said
            assert ended.code == 2 or not live[0].exists(), ended.said  # it may have ended meanwhile
        time.sleep(0.01)
    codes = [child.wait().code for child in children]
    os.environ["STRIDE_RUNS"] = str(root)
    runs = list_runs()
    broken = sum(len(rig.faults(run)) for run in runs)
    good = codes == [0] * trainings and len(runs) == trainings and not broken and not rig.leftovers(root)
    line = f"{trainings} trainings at once: {codes.count(0)} finished in {len(runs)} folders, with {broken} broken "
    return f"{line}checkpoints; an attempt to resume one that was running was refused", good


SHORT = "1.5"  # seconds of a lease, for $STRIDE_LEASE
LONG = rig.last_of_each_key((*rig.TINY, "max_timesteps=6400"))


def elsewhere(name: str, boot: str) -> Callable[[], None]:
    """Return a `prepare` that makes a process look as if it ran on another machine (other boot id and host name)."""

    def prepare() -> None:
        os.environ["STRIDE_LEASE"] = SHORT
        here = run_lock._location()
        there = {**here, "boot": boot, "host": name}
        rig.plant(run_lock, "_location", lambda: there)
        real_identity = run_lock.identity

        def identity(pid: int) -> dict[str, object]:
            return {**process_facts, "boot": boot} if (process_facts := real_identity(pid)) else {}

        rig.plant(run_lock, "identity", identity)

    return prepare


def hosts(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    """Use one folder of runs from two machines: only one may write, and one that lost its lock must notice it.

    The second machine is a process of this one with another boot id and another name; its clock may be hours off. In a
    race both want a run whose owner, on a third machine, has not renewed its lock for long. A stale owner is a training
    that is suspended for longer than its lease, while the other machine continues the run; then it is continued.
    """
    os.environ["STRIDE_LEASE"] = SHORT
    two, left = races(counts["races"], draw, folder / "races")
    tally = rig.Tally()
    for number in range(counts["stale"]):
        tally.add(number, stale(number, folder / f"stale {number}"))
    lines = [
        f"{counts['races']} times two machines tried to take over one abandoned run at once: **{two}** times both had "
        f"it; {left} locks were left over",
        f"trainings suspended for longer than their lease, while another machine continued: {tally} wrote nothing more "
        f"and ended with exit code {LOST_EXIT_CODE}; the other machine's run ended in the same bits as an undisturbed "
        "run",
    ]
    return lines + tally.problems, not two and not left and tally.good


def races(number: int, draw: random.Random, folder: Path) -> tuple[int, int]:
    """Return how often both machines had the lock at one time, and how many locks were left over."""
    both = left = 0
    for trial in range(number):
        target = folder / f"run {trial}"
        target.mkdir(parents=True)
        lock = target / ".lock"
        write_json(lock, {"pid": os.getpid(), "boot": "third", "host": "third", "space": "x", "started": 1})
        age = time.time() - float(SHORT) - draw.uniform(0.0, 3600.0)
        os.utime(lock, (age, age))

        def claim(place: int, target: Path = target) -> str:
            elsewhere(f"machine {place}", f"boot {place}")()
            if place:  # its clock is decades behind
                rig.plant(run_lock.time, "time", lambda: 0.0)
            try:
                with locked(target):
                    began = time.monotonic()
                    time.sleep(0.05)
                    return f"{began} {time.monotonic()}"
            except RunInTrainingError:
                return ""

        # both may have it, one after the other: a fault is only if their times overlap
        spans = sorted(tuple(map(float, span.split())) for span in at_once(2, claim, folder / f"{trial}") if span)
        both += len(spans) != 1 and not (len(spans) == 2 and spans[0][1] <= spans[1][0])
        left += lock.exists()
    return both, left


def stale(number: int, root: Path) -> str:
    """Suspend a training until another machine has finished its run; return what is wrong afterwards."""
    words, shared = (*LONG, f"seed={number}"), root / "shared"
    wanted = rig.comparable(rig.undisturbed(words, root / "straight"))
    child = rig.start(words, shared, elsewhere("cut off", "boot a"))
    saved = lambda: (run := rig.last_run(shared)) and (run.checkpoints / "last.ckpt").exists()  # noqa: E731
    rig.wait_until(lambda: not child.lives() or saved())
    run = rig.last_run(shared)
    if run is None or not child.lives():
        return "ended before it was halted"
    os.kill(child.pid, signal.SIGSTOP)
    time.sleep(1.2 * float(SHORT))
    other = rig.finish(("--resume", run.id, "-q"), shared, elsewhere("other", "boot b"))
    files_before = written(run)
    os.kill(child.pid, signal.SIGCONT)
    ended = child.wait()
    if other.code or ended.code != LOST_EXIT_CODE or "now belongs to another process" not in ended.said:
        return f"the other ended with {other.code}, the halted one with {ended.code}: {ended.said[-300:]}"
    if written(run) != files_before:
        return f"the halted one wrote {sorted(written(run).items() ^ files_before.items())[:4]}"
    return rig.difference(run, {name: wanted[name] for name in ("state", "rows")})


def written(run: RunDir) -> dict[str, tuple[int, int]]:
    """Return path -> (size, time) of a run's files, without those that may change after the lock is lost."""
    paths = [path for path in run.path.rglob("*") if path.is_file() and path.name not in ("run.log", "metrics.mmap")]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}
