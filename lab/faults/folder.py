"""Run folders made to harm, on every command that opens one.

    python -m lab.faults folder

Beside the runs lies a folder with a secret and with files that can be written: nothing in it may change, nothing of it
be said or copied. Each command ends by itself, well or with lines that say what is wrong, and a sound run under the
same root is shown as ever.
"""

import contextlib
import hashlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lab.faults.foreign import SECRET, VICTIM, Spoil, Target, cases
from lab.faults.rig import REPLAY, finish, last_run, start
from stride import publishing
from stride.commands import run_play, run_publish, train
from stride.inspector.compare import compare
from stride.inspector.model import config
from stride.inspector.overview import overview
from stride.inspector.reported import report
from stride.inspector.runs import Runs
from stride.inspector.table import runs_table
from stride.inspector.videos import lend
from stride.runstore.run_dir import RunDir
from stride.runstore.seed_group import outcomes
from stride.trainer_callbacks.resume import provenance_once
from stride.utils.user_error import UserError

CANARY = "the secret that only its owner reads"
PATIENCE = 60.0  # seconds that a command may take
MORE = "1344"  # env steps: one iteration behind the end
GROUP = "20200101-000000-abcd"

SHORTER = (  # what takes a second and looks at nothing of a folder
    (publishing.folder, "film", lambda *_: b""),
    (run_publish, "build_files", partial(publishing.folder.build_files, episodes=2)),
)


def resumed(run: RunDir, out: Path) -> int:
    return train.command(["--resume", run.id, "-q", "--max-timesteps", MORE])


def resumed_by_path(run: RunDir, out: Path) -> int:
    return train.command(["--resume", f"{run.path}/", "-q", "--max-timesteps", MORE, "--accept-changes"])


def forked(run: RunDir, out: Path) -> int:
    return train.command(["--resume", run.id, "--checkpoint", "best", "-q", "--max-timesteps", MORE])


def played(run: RunDir, out: Path) -> int:
    return run_play.command(["--run-id", run.id, "--headless", "--episodes", "1"])


def listed(run: RunDir, out: Path) -> int:
    """--list-envs, @best and a group's outcomes, in which the sound run must be found."""
    print(f"best: {RunDir.find('@best:CartPole-v1').id}, outcomes: {len(outcomes(GROUP))}")
    return train.command(["--list-envs", "CartPole-v1"])


def published(run: RunDir, out: Path) -> int:
    return run_publish.command(["--run-id", run.id, "--dry-run", str(out)])


def inspected(run: RunDir, out: Path) -> int:
    """Everything that the inspector shows of a run, and the table of all."""
    runs = Runs()
    print(runs_table(runs.page()))
    try:
        each = runs.look_into(run.id)
        print(overview(each), config(each), compare([each]), report(each), len(lend(run, out)))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


COMMANDS: dict[str, Callable[[RunDir, Path], int]] = {
    "resume": resumed, "resume by path": resumed_by_path, "fork": forked, "play": played, "list": listed,
    "publish": published, "inspect": inspected,
}  # fmt: skip


class Base(NamedTuple):
    """A sound run to copy and to spoil, and the folder everything happens in."""

    whole: RunDir
    folder: Path


class Ended(NamedTuple):
    """What a command did with a spoilt run."""

    code: int
    said: str
    seconds: float
    harm: str  # what was read or written outside, "" where nothing was


def sound_run(folder: Path) -> Base:
    """A finished run with a replay memory on disk, a video (of no content) and a report."""
    (folder / "cwd").mkdir(parents=True)
    os.chdir(folder / "cwd")
    ended = finish([*REPLAY, "test_episodes=2", "--group", GROUP], folder / "made")
    whole = last_run(folder / "made")
    assert ended.code == 0 and whole is not None, ended.said
    (whole.videos / "epoch=02.mp4").write_bytes(b"not a film")
    provenance_once()  # here, and not in every process
    return Base(whole, folder)


def attempt(base: Base, spoil: Spoil, command: Callable[[RunDir, Path], int]) -> Ended:
    """A spoilt copy beside a sound one, and the command on it in a process of its own."""
    root, outside, out = (base.folder / name for name in ("runs", "outside", "out"))
    for folder in (root, outside, out):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    (outside / SECRET).write_text(CANARY)
    (outside / VICTIM).write_text("somebody's file")
    shutil.copytree(base.whole.path, root / base.whole.id, symlinks=True)
    run = RunDir(shutil.copytree(base.whole.path, root / f"{base.whole.id[:-4]}evil", symlinks=True))
    spoil(Target(run, outside))
    before = snapshot(outside)
    began = time.monotonic()
    code, said = in_a_process(lambda: command(run, out), root)
    seconds = time.monotonic() - began
    leaked = [place for place, data in (("said", said), *texts(root, out)) if CANARY in data]
    changed = [name for name in {**before, **snapshot(outside)} if before.get(name) != snapshot(outside).get(name)]
    harm = ", ".join([f"the secret in {place}" for place in leaked] + [f"{name} was changed" for name in changed])
    return Ended(code, said, seconds, harm)


def in_a_process(command: Callable[[], int], root: Path) -> tuple[int, str]:
    """Its exit code and what it said; -1 where it had to be killed."""
    child = start([], root, shortened, lambda _: command())
    until = time.monotonic() + PATIENCE
    while child.lives() and time.monotonic() < until:
        time.sleep(0.002)
    hung = child.lives()
    if hung:
        os.kill(child.pid, signal.SIGKILL)
    ended = child.wait()
    return -1 if hung else ended.code, ended.said


def shortened() -> None:
    """In the process of a command."""
    for module, name, short in SHORTER:
        setattr(module, name, short)


def snapshot(folder: Path) -> dict[str, object]:
    """Names, kinds and contents of all that lies in the folder."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = os.readlink(path) if path.is_symlink() else None if path.is_dir() else path.stat().st_mtime_ns
        if path.is_file() and not path.is_symlink():
            found[name] = (found[name], hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def texts(*folders: Path) -> list[tuple[str, str]]:
    """Every file that was written, to look for the secret in it."""
    found = []
    for folder in folders:
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                if not path.is_symlink() and path.is_file() and path.stat().st_size < 64 << 20:
                    found.append((str(path.relative_to(folder)), path.read_bytes().decode("latin-1")))
    return found


def wrong(name: str, ended: Ended, base: Base) -> str:
    """What is wrong with how a command ended, "" where nothing is."""
    if ended.harm:
        return ended.harm
    if ended.code == -1:
        return f"did not end in {PATIENCE:.0f} s"
    if "Traceback (most recent call last)" in ended.said:
        return "ended in a traceback"
    if ended.code not in (0, 2):
        return f"ended with code {ended.code}"
    lines = ended.said.strip().splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    if ended.code == 2 and (len(errors) != 1 or errors[0] != lines[-1]):
        return "was not refused in one line"
    if any(len(line) > 400 or not line.isprintable() for line in errors):
        return "said more than a line holds, or what is no text"
    if name == "list" and (ended.code or f"best: {base.whole.id[:-4]}" not in ended.said or "steps" not in ended.said):
        return "did not list the sound run"
    return "did not show the sound run" if name == "inspect" and base.whole.id not in ended.said else ""


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    """Each command meets a copy of its own, as one may mend what the next should find."""
    base = sound_run(folder)
    spoils = cases()
    names = list(spoils)
    if counts["cases"] < len(names):
        names = draw.sample(names, counts["cases"])
    total, failed, slowest = 0, [], 0.0
    ended_by = {"refused in one line": 0, "done": 0}
    for case in names:
        for name in draw.sample(list(COMMANDS), min(counts["each"], len(COMMANDS))):
            ended = attempt(base, spoils[case], COMMANDS[name])
            what = wrong(name, ended, base)
            total, slowest = total + 1, max(slowest, ended.seconds)
            ended_by["done" if ended.code == 0 else "refused in one line"] += not what
            if what:
                failed.append(f"{case} on {name}: {what}")
                print(f"{failed[-1]}\n    {ended.said[-400:]!r}", flush=True)
    lines = [
        f"**{total - len(failed)} of {total}** ended as they should: {len(names)} run folders made to harm, on "
        f"{', '.join(COMMANDS)}; {', '.join(f'{number} {how}' for how, number in ended_by.items())}",
        f"**{sum('secret' in each or 'changed' in each for each in failed)} read or wrote outside** of the run, "
        f"{sum('traceback' in each for each in failed)} tracebacks, {sum('did not end' in each for each in failed)} "
        f"hung; slowest {slowest:.1f} s",
    ]
    return lines, not failed
