"""A run that was killed and goes on, while something about it or around it is another by then. For circumstances."""

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lab.faults.kill import CASES, last_words
from lab.faults.rig import (
    Call,
    Ended,
    amounts_to,
    at_call,
    faults,
    finish,
    last_run,
    leftovers,
    refused_in_a_line,
    start,
)
from lab.faults.signals import pause
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.checkpoint import Checkpoint

VIDEOS = ("video_freq_epochs=4", "video_max_steps=20")
BASES = {name: last_words((*CASES[name], *VIDEOS)) for name in ("PPO, fused", "PPO", "DQN, fused, memmap")}
ESSENCE = ("state", "rows", "increasing", "report")
YEARS = {"mtimes of 1970": 0, "mtimes of 2099": 4_080_000_000}


class Change(NamedTuple):
    """What is another at the resume: to say, what must be said ("exact": and nothing else), exit code and equality."""

    words: tuple[str, ...] = ()
    told: str = ", exact"
    code: int = 0
    equal: tuple[str, ...] = ESSENCE


CHANGES = {
    "threads": Change(("threads=2",), "changed: threads auto -> 2", equal=("state",)),
    "engine": Change((), "not to the bit; engine", equal=()),
    **{name: Change() for name in YEARS},
    "clock": Change(),
    "folder renamed": Change(),
    "links gone": Change(),
    "videos gone": Change(),
    "metrics.csv deleted": Change(told="metrics.csv is missing: the rows up to", equal=("state",)),
    "metrics.csv emptied": Change(told="kept as metrics.damaged-1.csv", equal=("state",)),
    "metrics.csv garbage": Change(told="kept as metrics.damaged-1.csv", equal=("state",)),
    "config.json edited": Change(told="was edited by hand: gamma", code=2),
    "config.json's engine": Change(told="was edited by hand: engine", code=2),
    "edit accepted": Change(("--accept-changes",), "edited by hand in config.json: gamma", equal=()),
    "sidecar garbage": Change(told="has no sidecar that says what it should be"),
}


def prepare_bases(folder: Path, names: list[str]) -> None:
    """Each once as it ends, and once killed in its middle."""
    for name in names:
        whole = finish(BASES[name], straight_of(name, folder))
        assert whole.code == 0, whole.said
        ended = finish(BASES[name], folder / f"{name}, killed", killed_after(5))
        assert ended.code == 128 + signal.SIGKILL, ended.said


def straight_of(base: str, folder: Path) -> Path:
    return folder / f"{base}, straight"


def resumed_at_once(case: tuple[int, float], folder: Path) -> str:
    root = folder / f"at once {case[0]}"
    base = [*BASES][case[0] % len(BASES)]
    shutil.copytree(folder / f"{base}, killed", root, symlinks=True)
    children = []
    for place in range(3):
        said = folder / f"{root.name}-{place}.said"
        told = folder / f"{root.name}-{place}.told"
        child = start(["--resume", "@last", "-q"], root, partial(speak_into, said, told))
        children.append(child._replace(log=said))
    ended = sorted((child.wait() for child in children), key=lambda each: each.code)
    if not all(
        each.code == 2 and refused_in_a_line(each.said) and "is being trained by" in each.said for each in ended[1:]
    ):
        return f"not refused: {ended}"
    return judged(ended[0], last_run(root), straight_of(base, folder), ESSENCE)


def speak_into(said: Path, told: Path) -> None:
    """A log of its own, as `start` names one by the root, which is the same for all; and slow enough to meet."""
    descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    pause("building", told, 3.0)


def resumed(case: tuple[str, str], folder: Path) -> str:
    base, name = case
    change, root = CHANGES[name], folder / f"resumed {name}, {base}"
    shutil.copytree(folder / f"{base}, killed", root, symlinks=True)
    killed = last_run(root)
    assert killed is not None
    run = RunDir(altered(killed.path, name))
    words = [*change.words]
    if name == "engine":
        words.append("engine=eager" if "fused" in base else "engine=fused_cpu")
    ended = finish(["--resume", str(run.path), "-q", *words], root, later if name == "clock" else lambda: None)
    told = ended.said + run.run_log.read_text()
    if change.told not in told:
        return f"does not say {change.told!r}: {ended.code} {told[-600:]}"
    if change.code:
        return (
            "" if ended.code == change.code and refused_in_a_line(ended.said) else f"{ended.code} {ended.said[-600:]}"
        )
    if name == "engine" and ", exact" in told:  # another rounds otherwise: no bits may be promised
        return "called exact"
    return judged(ended, run, straight_of(base, folder), change.equal)


def altered(run: Path, name: str) -> Path:
    """The run after it was changed, and where it is now."""
    checkpoints, metrics, config = run / "checkpoints", run / "metrics.csv", run / "config.json"
    facts = json.loads(config.read_text())
    if name in YEARS:
        for path in run.rglob("*"):
            os.utime(path, (YEARS[name], YEARS[name]), follow_symlinks=False)  # links have times, too
    elif name == "folder renamed":
        return run.rename(run.with_name("20200101-000000-CartPole-v1-ppo-s1-abcd"))
    elif name == "links gone":
        for path in (path for path in checkpoints.iterdir() if path.is_symlink()):
            path.unlink()
    elif name == "videos gone":
        shutil.rmtree(run / "videos")
    elif name == "metrics.csv deleted":
        metrics.unlink()
    elif name.startswith("metrics.csv"):
        metrics.write_bytes(b"" if name.endswith("emptied") else random.Random(0).randbytes(3000))
    elif name in ("config.json edited", "edit accepted"):
        config.write_text(json.dumps({**facts, "config": {**facts["config"], "gamma": 0.5}}))
    elif name == "config.json's engine":
        config.write_text(json.dumps({**facts, "engine": "another"}))
    elif name == "sidecar garbage":
        (checkpoints / f"{checkpoint_set.target(checkpoints / 'last.ckpt')}.json").write_bytes(b"\xff{garbage")
    return run


def later() -> None:
    now = time.time
    setattr(time, "time", lambda: now() + 30 * 365 * 86400)  # noqa: B010  (mypy would not have it assigned)


def killed_after(saves: int) -> Callable[[], None]:
    """Has a process kill itself after so many checkpoints."""

    def last(save: Call, *arguments: object) -> None:
        save(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    return partial(at_call, Checkpoint, "save", saves, last)


def judged(ended: Ended, run: RunDir | None, straight: Path, equal: tuple[str, ...]) -> str:
    """What is wrong with a run that should have ended well and equal in these to the straight one; "" for nothing."""
    if ended.code or run is None or "Traceback" in ended.said:
        return f"{ended.code} {ended.said[-600:]}"
    reference = last_run(straight)
    assert reference is not None
    got, wanted = amounts_to(run), amounts_to(reference)
    wrong = [name for name in equal if got[name] != wanted[name]]
    litter = [name for name in leftovers(run.path.parent) if "damaged" not in name]
    return f"differs in {', '.join(wrong)}" if wrong else f"leftovers {litter}" if litter or faults(run) else ""
