"""SIGKILL at random instants, then `train.py --resume`: does the run end as if nothing had happened?

    python scripts/faults/kill.py --trials 200 --replays 60

Trials are of PPO on the fused engine, replays of DQN with a memory mapped from the disk: as many of a prioritised one
as of the fused engine's. Half the kills come from outside at a random moment of the run. The other half strike inside
a save, at one of its file operations drawn at random: in the middle of a write, before or after an fsync, a rename, a
link, a deletion. Every other trial runs on another filesystem, /dev/shm.
"""

import collections
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from scripts.faults.record import command_line
from scripts.faults.rig import REPLAY, TINY, Ended, amounts_to, faults, finish, last_run, leftovers, start
from trainer_callbacks.checkpoint import Checkpoint, Hashing

WATCHED = ("fsync", "replace", "symlink", "unlink")


class Mine:
    """Counts the file operations inside saves; at number `at` the process kills itself, before or after it."""

    def __init__(self, at: int, after: bool, told: Path) -> None:
        self.at, self.after, self.told, self.saving = at, after, told, False
        self.seen: list[str] = []

    def plant(self) -> None:
        for name in WATCHED:
            setattr(os, name, self.watched(getattr(os, name), name))
        save, write = Checkpoint.save, Hashing.write

        def watched_save(checkpoint: Checkpoint, *arguments: Any) -> None:
            self.saving = True
            save(checkpoint, *arguments)
            self.saving = False
            if self.at == 0:
                self.told.write_text(" ".join(self.seen))

        def watched_write(hashing: Hashing, data: bytes) -> int:
            if self.strikes("write"):
                hashing.file.write(bytes(data)[: len(data) // 2])
                hashing.file.flush()
                self.strike("write")
            return write(hashing, data)

        setattr(Checkpoint, "save", watched_save)  # noqa: B010  (mypy would not have it assigned)
        setattr(Hashing, "write", watched_write)  # noqa: B010

    def watched(self, function: Any, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
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


FUSED_REPLAY = (*(word for word in REPLAY if word != "prioritised=true"), "engine=fused_cpu")
OTHER = Path("/dev/shm")  # a folder on another filesystem


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    """The figures in words, and whether all of them are what they should be."""
    other = Path(tempfile.mkdtemp(prefix="kill-", dir=OTHER))
    try:
        parts = [
            killed("PPO, fused engine", (*TINY, "engine=fused_cpu"), counts["trials"], draw, [folder, other]),
            killed("DQN, prioritised, memmap", REPLAY, counts["replays"], draw, [folder, other]),
            killed("DQN, fused engine, memmap", FUSED_REPLAY, counts["replays"], draw, [folder, other]),
        ]
    finally:
        shutil.rmtree(other, ignore_errors=True)
    return [line for lines, _ in parts for line in lines], all(good for _, good in parts)


def killed(
    title: str, words: tuple[str, ...], trials: int, draw: random.Random, places: list[Path]
) -> tuple[list[str], bool]:
    straight, told = places[0] / f"{title} straight", places[0] / f"{title} count"
    ended = finish(words, straight, Mine(0, False, told).plant)
    assert ended.code == 0, ended.said
    whole, points = last_run(straight), told.read_text().split()
    assert whole is not None
    wanted = amounts_to(whole)
    quick = finish(words, places[0] / f"{title} again").seconds
    found: collections.Counter[str] = collections.Counter()
    where: collections.Counter[str] = collections.Counter()
    began = time.monotonic()
    for trial in range(trials):
        root = places[trial % 2] / f"{title} {trial}"
        mined = trial // 2 % 2 == 0
        told.unlink(missing_ok=True)
        if mined:
            kind = draw.choice(sorted(set(points)))  # or nearly all would strike a write
            at = draw.choice([place for place, name in enumerate(points, 1) if name == kind])
            ended = finish(words, root, Mine(at, draw.random() < 0.5, told).plant)
            while ended.code != 137:  # this run's saves had fewer operations
                shutil.rmtree(root)
                at = max(1, at - 50)
                ended = finish(words, root, Mine(at, draw.random() < 0.5, told).plant)
        else:
            ended = killed_at(words, draw.uniform(0.0, 0.9 * quick), root)
            while ended.code != 137:  # it was quicker than the one before
                quick = min(quick, ended.seconds)
                shutil.rmtree(root)
                ended = killed_at(words, draw.uniform(0.0, 0.9 * quick), root)
        found["killed"] += ended.code == 137
        if told.exists():
            found["inside"] += 1
            where[told.read_text()] += 1
        outcome = revived(words, root, wanted)
        found[outcome] += 1
        if outcome != "identical":
            print(
                f"trial {trial} ({root}): {outcome}; killed {ended.code} {told.exists() and told.read_text()}",
                flush=True,
            )
        found["corrupt"] += len(faults(there)) if (there := last_run(root)) else 0
        litter = leftovers(root)
        found["leftovers"] += len(litter)
        found["other filesystem"] += trial % 2
        shutil.rmtree(root)
        if (trial + 1) % 20 == 0:
            print(f"{title}: {trial + 1}/{trials} {dict(found)} {time.monotonic() - began:.0f} s", flush=True)
    lines = [
        f"{title}: {trials} runs, {found['killed']} killed before their end, {found['inside']} of these inside a save "
        f"(at one of their {len(points):,} file operations), {found['other filesystem']} on another filesystem (tmpfs)",
        f"{title}: **{found['identical']} of {trials} resumed bit-identical** to the run that was never stopped: "
        "weights, optimizer, statistics, worlds, memory, counters, every row of metrics.csv, the links",
        f"{title}: {found['corrupt']} corrupt checkpoints, segments or links, {found['leftovers']} leftovers after the "
        "next start",
        f"{title}: killed " + ", ".join(f"{place} {count}x" for place, count in sorted(where.items())),
    ]
    return lines, found["identical"] == trials and not found["corrupt"] and not found["leftovers"]


def killed_at(words: tuple[str, ...], seconds: float, root: Path) -> Ended:
    """A run that gets SIGKILL from outside after so long."""
    child = start(words, root)
    moment = time.monotonic() + seconds
    while time.monotonic() < moment and child.lives():
        time.sleep(0.002)
    os.kill(child.pid, signal.SIGKILL)
    return child.wait()


def revived(begun: tuple[str, ...], root: Path, wanted: dict[str, Any]) -> str:
    """Resume (or start anew where not even a folder was there) and compare: "identical", or what is wrong."""
    words = ["--resume", "@last", "-q"] if last_run(root) else list(begun)
    ended = finish(words, root)
    if ended.code == 2 and "spent its budget" in ended.said:  # it was killed after its last word
        ended = ended._replace(code=0)
    run = last_run(root)
    if ended.code or run is None:
        return f"resume ended with {ended.code}: {ended.said[-300:]}"
    got = amounts_to(run)
    wrong = [name for name in wanted if got[name] != wanted[name]]
    return f"differs in {', '.join(f'{name} {got[name]} / {wanted[name]}' for name in wrong)}" if wrong else "identical"


if __name__ == "__main__":
    sys.exit(command_line(__doc__ or "", "kill", "Killed and resumed", run, trials=200, replays=60))
