"""Two machines and one folder of runs: is there ever more than one who writes, and does one who was given up find out?

    python -m lab.faults hosts --races 100 --stale 20

The second machine is a process of this one with another boot id and another name; its clock may be hours off. In a race
both want one run whose owner, on a third machine, was heard of long ago. A stale owner is a training that is halted for
longer than its lease, while the other machine goes on with the run; then it is let go on.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from lab.faults.races import at_once
from lab.faults.record import trials
from lab.faults.rig import TINY, Child, amounts_to, faults, finish, last_run, leftovers, start
from stride.runstore import run_lock
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import write_json
from stride.runstore.run_lock import LOST, RunInTrainingError, locked

PATIENCE = 30.0  # seconds
SHORT = "1.5"  # seconds of a lease
LONG = (*TINY[:1], *(word for word in TINY[1:] if not word.startswith("max_timesteps")), "max_timesteps=6400")


def elsewhere(name: str, boot: str) -> Callable[[], None]:
    """Has this process be one of another machine."""

    def prepare() -> None:
        os.environ["STRIDE_LEASE"] = SHORT
        here = run_lock._place()
        there = {**here, "boot": boot, "host": name}
        setattr(run_lock, "_place", lambda: there)  # noqa: B010
        known = run_lock.identity

        def identity(pid: int) -> dict[str, object]:
            return {**found, "boot": boot} if (found := known(pid)) else {}

        setattr(run_lock, "identity", identity)  # noqa: B010

    return prepare


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    os.environ["STRIDE_LEASE"] = SHORT
    two, left = races(counts["races"], draw, folder / "races")
    first = f"{counts['races']} times two machines wanted one abandoned run at once: **{two}** times both had it"
    lines = [f"{first}, {left} locks left behind"]
    told = [stale(number, folder / f"stale {number}") for number in trials(counts["stale"])]
    wrong = [words for words in told if words]
    held = counts["stale"] - len(wrong)
    lines.append(
        f"{counts['stale']} trainings halted beyond their lease while another machine went on: **{held} of "
        f"{counts['stale']}** wrote nothing more, ended with {LOST} and left the other's run whole, in the bits of the "
        "run that nobody disturbed"
    )
    return lines + wrong, not two and not left and not wrong


def races(number: int, draw: random.Random, folder: Path) -> tuple[int, int]:
    """How often both had the run, and how many locks stayed."""
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
            if place:  # hours off
                setattr(run_lock.time, "time", lambda: 0.0)  # noqa: B010
            try:
                with locked(target):
                    began = time.monotonic()
                    time.sleep(0.05)
                    return f"{began} {time.monotonic()}"
            except RunInTrainingError:
                return ""

        # who comes when the other is done may have it, too: what counts is whether both had it at one time
        spans = sorted(tuple(map(float, each.split())) for each in at_once(2, claim, folder / f"{trial}") if each)
        both += len(spans) != 1 and not (len(spans) == 2 and spans[0][1] <= spans[1][0])
        left += lock.exists()
    return both, left


def stale(number: int, root: Path) -> str:
    """What went wrong; "" where nothing did."""
    words = (*LONG, f"seed={number}")
    assert finish(words, root / "straight").code == 0
    straight = last_run(root / "straight")
    child = start(words, root / "shared", elsewhere("cut off", "boot a"))
    run = begun(child, root / "shared")
    if run is None:
        return f"{number}: ended before it was halted"
    os.kill(child.pid, signal.SIGSTOP)
    time.sleep(1.2 * float(SHORT))
    other = finish(("--resume", run.id, "-q"), root / "shared", elsewhere("other", "boot b"))
    before = written(run)
    os.kill(child.pid, signal.SIGCONT)
    ended = child.wait()
    assert straight is not None
    whole, expected = amounts_to(run), amounts_to(straight)
    if other.code or ended.code != LOST or "another process's now" not in ended.said:
        return f"{number}: the other ended with {other.code}, the halted one with {ended.code}: {ended.said[-300:]}"
    if written(run) != before:
        return f"{number}: the halted one wrote {sorted(written(run).items() ^ before.items())[:4]}"
    if faults(run) or leftovers(root / "shared") or any(whole[key] != expected[key] for key in ("state", "rows")):
        return f"{number}: {faults(run)} {leftovers(root / 'shared')} or other bits"
    return ""


def begun(child: Child, root: Path) -> RunDir | None:
    """Its run, once it has a checkpoint."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and child.lives():
        run = last_run(root)
        if run and (run.checkpoints / "last.ckpt").exists():
            return run
        time.sleep(0.005)
    return None


def written(run: RunDir) -> dict[str, tuple[int, int]]:
    """Size and time of what tells of a run; run.log may say that the lock was lost."""
    paths = [path for path in run.path.rglob("*") if path.is_file() and path.name not in ("run.log", "metrics.mmap")]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}
