"""Opens malicious and damaged run folders with every command that opens a run.

    python -m lab.faults folder

Outside the runs is a folder with a secret and with files that can be written: nothing in it may change, and nothing of
it may be printed or copied. Each command must end by itself, with success or with one line that says what is wrong. A
healthy run under the same root must be shown as before.

    python -m lab.faults inspector --runs 10000      only the inspector, in every room
"""

import contextlib
import hashlib
import os
import random
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lab.faults.foreign import SECRET, VICTIM, Spoil, Target, cases
from lab.faults.rig import REPLAY, Report, Tally, start, undisturbed
from stride import publishing
from stride.commands import run_play, run_publish, train
from stride.inspector.compare import compare
from stride.inspector.rooms import Rooms
from stride.inspector.table import runs_table
from stride.runstore.run_dir import RunDir
from stride.runstore.seed_group import outcomes
from stride.trainer_callbacks.resume import provenance_once
from stride.utils.user_error import UserError

CANARY = "the secret that only its owner reads"
PATIENCE = 60.0  # seconds that a command may take
MORE = ("-q", "--max-timesteps", "1344")  # one iteration more than the run has
GROUP = "20200101-000000-abcd"

SHORTER = (  # (module, name, replacement) of slow steps that read nothing of the folder
    (publishing.folder, "film", lambda *_: b""),
    (run_publish, "build_files", partial(publishing.folder.build_files, episodes=2)),
)


def words(command: Callable[[list[str]], int], *arguments: str) -> "Command":
    """Return a command whose arguments may contain {id} and {path} of the run, and {out}, a folder to write to."""
    return lambda run, out: command([argument.format(id=run.id, path=run.path, out=out) for argument in arguments])


def listed(run: RunDir, out: Path) -> int:
    """Run --list-envs, @best and the outcomes of a group, which must find the healthy run."""
    print(f"best: {RunDir.find('@best:CartPole-v1').id}, outcomes: {len(outcomes(GROUP))}")
    return train.command(["--list-envs", "CartPole-v1"])


ROOMS: dict[str, Callable[[Rooms, str], str]] = {
    "overview": lambda rooms, run: rooms.overview(run),
    "compare": lambda rooms, run: compare([rooms.runs.look_into(run)]),
    "episode": lambda rooms, run: rooms.episode(run, "best", 0, "greedy", 5),
    "videos": lambda rooms, run: rooms.videos(run),
    "report": lambda rooms, run: rooms.report(run),
    "model": lambda rooms, run: rooms.model(run),
}


def inspected(run: RunDir, out: Path) -> int:
    """Print everything that the inspector shows of a run, and the table of all runs; of refusals print the last."""
    rooms, refusal = Rooms(out), ""
    print(runs_table(rooms.runs.page()))
    for room in ROOMS.values():
        try:
            print(room(rooms, run.id))
        except UserError as error:
            refusal = str(error)
    if refusal:
        print(f"error: {refusal}", file=sys.stderr)
    return 2 if refusal else 0


Command = Callable[[RunDir, Path], int]
COMMANDS: dict[str, Command] = {
    "resume": words(train.command, "--resume", "{id}", *MORE),
    "resume by path": words(train.command, "--resume", "{path}/", "--accept-changes", *MORE),
    "fork": words(train.command, "--resume", "{id}", "--checkpoint", "best", *MORE),
    "play": words(run_play.command, "--run-id", "{id}", "--headless", "--episodes", "1"),
    "list": listed,
    "publish": words(run_publish.command, "--run-id", "{id}", "--dry-run", "{out}"),
    "inspect": inspected,
}


class Base(NamedTuple):
    """A healthy run to copy and to damage, and the folder in which everything happens."""

    whole: RunDir
    folder: Path


class Ended(NamedTuple):
    """How a command ended, as `rig.Ended`, and what it did outside of the run."""

    code: int
    said: str
    seconds: float
    harm: str  # what was read or written outside; "" if nothing was


def sound_run(folder: Path) -> Base:
    """Train and return a finished run with a replay memory on disk, a dummy video and a report."""
    (folder / "cwd").mkdir(parents=True)
    os.chdir(folder / "cwd")
    whole = undisturbed([*REPLAY, "test_episodes=2", "--group", GROUP], folder / "made")
    (whole.videos / "epoch=02.mp4").write_bytes(b"not a film")
    provenance_once()  # here, so that not every process does it again
    return Base(whole, folder)


def attempt(base: Base, spoil: Spoil, command: Command) -> Ended:
    """Damage one copy of the run, keep another healthy, and run the command on the damaged one in its own process."""
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
    ended = start([], root, shortened, lambda _: command(run, out)).wait(PATIENCE)
    changes = [name for name in {**before, **snapshot(outside)} if before.get(name) != snapshot(outside).get(name)]
    leaks = [source for source, data in (("said", ended.said), *texts(root, out)) if CANARY in data]
    harm = ", ".join([f"the secret in {source}" for source in leaks] + [f"{name} was changed" for name in changes])
    return Ended(*ended, harm)


def shortened() -> None:
    """Replace the slow steps of SHORTER in this process."""
    for module, name, short in SHORTER:
        setattr(module, name, short)


def snapshot(folder: Path) -> dict[str, object]:
    """Return every path below a folder with what would show a change: link target, time and hash; None of a folder."""
    facts: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        facts[name] = os.readlink(path) if path.is_symlink() else None if path.is_dir() else path.stat().st_mtime_ns
        if path.is_file() and not path.is_symlink():
            facts[name] = (facts[name], hashlib.sha256(path.read_bytes()).hexdigest())
    return facts


def texts(*folders: Path) -> list[tuple[str, str]]:
    """Return (path, contents) of every file below these folders, to search them for the secret."""
    contents = []
    for folder in folders:
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                if not path.is_symlink() and path.is_file() and path.stat().st_size < 64 << 20:
                    contents.append((str(path.relative_to(folder)), path.read_bytes().decode("latin-1")))
    return contents


def wrong(name: str, ended: Ended, base: Base) -> str:
    """Return what is wrong with the end of the command COMMANDS[name]; "" if nothing is."""
    if ended.harm:
        return ended.harm
    if ended.seconds >= PATIENCE:
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
    if name == "inspect" and (base.whole.id not in ended.said or "<script" in ended.said):
        return "did not show the sound run, or a script of the other"
    return ""


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    """Run each command on its own copy, because a command may repair what the next one should find."""
    return tried(counts["cases"], counts["each"], list(COMMANDS), draw, folder)


def inspector(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    """Damaged and hostile runs in every room of the inspector, beside a sound run that must be shown as before."""
    lines, good = tried(counts["runs"], 1, ["inspect"], draw, folder)
    return [*lines, f"tabs: the table of runs, {', '.join(ROOMS)}"], good


def tried(number: int, per_case: int, commands: list[str], draw: random.Random, folder: Path) -> Report:
    """Try `number` damages drawn from all, each with `per_case` of the commands."""
    base, damages, tally, slowest, worked = sound_run(folder), cases(), Tally(), 0.0, 0
    chosen = draw.sample(list(damages), min(number, len(damages)))
    for case in chosen:
        for name in draw.sample(commands, min(per_case, len(commands))):
            ended = attempt(base, damages[case], COMMANDS[name])
            tally.add(f"{case} on {name}", wrong(name, ended, base))
            slowest, worked = max(slowest, ended.seconds), worked + (ended.code == 0)
    lines = [
        f"{tally} attempts ended as they should: {len(chosen)} hostile run folders, opened by {', '.join(commands)}; "
        f"{worked} worked, all others were refused in one line; nothing outside of the run was read or written; "
        f"the slowest took {slowest:.1f} s"
    ]
    return lines + tally.problems, tally.good
