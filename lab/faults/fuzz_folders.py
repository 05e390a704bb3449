"""Run folders damaged by bytes, types and links, among sound ones, through everything that reads a run: for fuzz."""

import contextlib
import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import train
from agents.playing.loading import load_run
from config import listing
from inspector.compare import compare
from inspector.model import config
from inspector.overview import overview
from inspector.reported import report
from inspector.runs import RunFacts, Runs
from inspector.table import runs_table
from lab.faults.fuzz_words import Accepted, accepted
from lab.faults.rig import REPLAY, TINY, finish, last_run
from lab.faults.watch import Seen, Watch
from publishing import folder as published
from report.group import group_of
from report.group_page import report as group_report
from run_publish import command as publish
from utils.run_dir import RunDir
from utils.user_error import UserError

ENV = "CartPole-v1"
FILES = ("config.json", "metrics.csv", "run.log", "report.md", "checkpoints/best.json", "checkpoints/last.json",
         "checkpoints/*=*.json", "checkpoints/*=*.ckpt", "checkpoints/last.ckpt", "checkpoints/best.ckpt", ".lock",
         "checkpoints", "checkpoints/segments", "checkpoints/segments/*", "videos", "logs")  # fmt: skip
VALUES: tuple[object, ...] = (
    None, True, -1, 0, 5, 1e308, float("nan"), float("inf"), 10**400, "", "x", "\ud800", "x" * 5000, [], [5], {},
    {"a": 1}, "../../secret/key", "/etc/passwd", "<script>", "9" * 50, 2**63, -(2**63), [[[[]]]], "\x1b[31m",
    ["../../../secret/key"],
)  # fmt: skip
CELLS = ("nan", "inf", "-inf", "", "x", "9" * 400, "1e999", "=1+1", "\x00", '"', "\ud800", "1,2,3", "-0", "\n\n")


class Root:
    """A folder of runs, one of them damaged; what lies beside it must stay as it is and unread."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self.folder, self.draw, self.runs = folder, draw, folder / "damaged"
        self.secret = folder / "secret"
        self.secret.mkdir(exist_ok=True)
        (self.secret / "key").write_text("nobody reads this\n")
        self.bases = []
        for number, given in enumerate((TINY, REPLAY)):
            ended = finish([*given, "--group", "g"], folder / f"base {number}")
            run = last_run(folder / f"base {number}")
            assert ended.code == 0 and run is not None, ended.said
            self.bases.append(run)

    def fresh(self) -> tuple[RunDir, str]:
        """A sound run and one that was damaged, and how."""
        shutil.rmtree(self.runs, ignore_errors=True)
        self.runs.mkdir()
        sound, base = self.runs / self.bases[0].id, self.draw.choice(self.bases)
        shutil.copytree(self.bases[0].path, sound, symlinks=True)
        damaged = self.runs / f"20990101-000000-{base.id[16:]}"
        shutil.copytree(base.path, damaged, symlinks=True)
        if self.draw.random() < 0.5:  # as one that was killed: its end is to be told once more
            self.change_json(damaged / "config.json", status="running")
        how = [self.damage(damaged) for _ in range(self.draw.choice((1, 1, 2, 3)))]
        (self.runs / "@last").symlink_to(damaged.name)
        return RunDir(damaged), "; ".join(how)

    def damage(self, run: Path) -> str:
        """Spoils one file, mostly one that readers parse; -> what was done.

        Nothing is written through a link, as that would spoil what lies beside the runs.
        """
        draw = self.draw
        there = [path for pattern in FILES for path in run.glob(pattern)]
        weighed = [path for path in there if path.suffix in (".json", ".csv")]
        path = draw.choice(weighed if weighed and draw.random() < 0.6 else there or [run / "config.json"])
        kind = draw.randrange(8)
        name = str(path.relative_to(run))
        if path.suffix == ".json" and path.is_file() and kind < 6:
            return f"{name}: {self.damage_json(path)}"
        if path.suffix == ".csv" and path.is_file() and not path.is_symlink() and kind < 5:
            return f"{name}: {self.damage_csv(path)}"
        if path.is_file() and not path.is_symlink() and kind < 5:
            data = bytearray(path.read_bytes() or b"x")
            if kind < 2:
                for _ in range(draw.choice((1, 5, 200))):
                    data[draw.randrange(len(data))] = draw.randrange(256)
            else:
                data = data[: draw.randrange(len(data))] if kind < 4 else data * draw.choice((2, 20))
            path.write_bytes(bytes(data))
            return f"{name}: bytes"
        return f"{name}: {self.replaced(path)}"

    def replaced(self, path: Path) -> str:
        """Something else under its name, or nothing."""
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        match self.draw.randrange(7):
            case 0:
                return "gone"
            case 1:
                path.mkdir()
                return "a folder"
            case 2:
                path.symlink_to(self.secret / "key")
                return "a link to a secret file"
            case 3:
                path.symlink_to(self.secret)
                return "a link to a secret folder"
            case 4:
                path.symlink_to(path.name)
                return "a link to itself"
            case 5:
                os.mkfifo(path)  # who opens it waits for a writer, for ever
                return "a pipe"
        path.write_bytes(b"")
        return "empty"

    def change_json(self, path: Path, **values: object) -> None:
        data = {**json.loads(path.read_text()), **values}
        path.write_text(json.dumps(data), errors="surrogatepass")

    def damage_json(self, path: Path) -> str:
        """A value somewhere in it is another one."""
        try:
            data = json.loads(path.read_text(errors="replace"))
        except ValueError:  # it was damaged before
            return "as it was"
        at, keys = data, list[str]()
        while isinstance(at, dict) and at:
            keys.append(self.draw.choice(list(at)))
            if not isinstance(at[keys[-1]], dict) or not at[keys[-1]] or self.draw.random() < 0.3:
                value = self.draw.choice(VALUES)
                if self.draw.random() < 0.1:
                    del at[keys[-1]]
                else:
                    at[keys[-1]] = value
                break
            at = at[keys[-1]]
        else:
            data = self.draw.choice(VALUES)
        path.unlink()  # a link leads to a file that stays
        path.write_bytes(json.dumps(data).encode("utf-8", "surrogatepass"))
        return f"{'.'.join(keys)} = {ascii(value if keys else data)[:60]}"

    def damage_csv(self, path: Path) -> str:
        lines = path.read_text(errors="replace").split("\n")
        for _ in range(self.draw.choice((1, 3))):
            at = self.draw.randrange(len(lines))
            cells = lines[at].split(",")
            cells[self.draw.randrange(len(cells))] = self.draw.choice(CELLS)
            lines[at] = ",".join(cells)
        if self.draw.random() < 0.2:
            self.draw.shuffle(lines)
        path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
        return "cells"


def resumed(run: RunDir, *more: str) -> int:
    with mock.patch.object(train, "make_envs", accepted):
        return told(lambda: train.command(["--resume", run.id, "-q", *more]))


def told(act: Callable[[], object]) -> int:
    """As a command would: a UserError is a line."""
    try:
        found = act()
        return found if isinstance(found, int) and not isinstance(found, bool) else 0
    except Accepted:
        return 0
    except UserError as error:
        print(f"error: {error}")
        return 2


def inspected(run: RunDir) -> None:
    """What the page calls: the table of all runs, their comparison, and the rooms of this one."""
    runs = Runs()
    runs_table(runs.page())
    told(lambda: rooms(runs.look_into(run.id)))


def rooms(each: RunFacts) -> tuple[str, ...]:
    """All that is shown of one run without its network."""
    return overview(each), config(each), compare([each]), report(each)


def listed(run: RunDir) -> int:
    group_report(group_of("g"))
    with mock.patch.object(listing, "listed", lambda term: []):  # its files are not damaged
        return train.command(["--list-envs", "cartpole"])


@contextlib.contextmanager
def few_episodes() -> Iterator[None]:
    """What is published is collected and written; a hundred episodes and a video are not the point."""
    one = mock.patch.object(published, "evaluate", lambda loaded, episodes: EVALUATE(loaded, 1))
    with one, mock.patch.object(published, "film", lambda *given: None):
        yield


EVALUATE = published.evaluate
READERS: dict[str, Callable[[RunDir], int | None]] = {
    "list": listed,
    "@best": lambda run: told(lambda: RunDir.find(f"@best:{ENV}")),
    "@last": lambda run: told(lambda: RunDir.find("@last")),
    "resume": resumed,
    "fork": lambda run: resumed(run, "--checkpoint", "best"),
    "load": lambda run: told(lambda: load_run(run.id, "best")),
    "load last": lambda run: told(lambda: load_run(run.id, "last")),
    "inspect": inspected,
    "publish": lambda run: publish(["--run-id", run.id, "--dry-run", str(run.path.parent.parent / "card")]),
}
SHARED = ("list", "@best", "inspect")  # what one damaged run must not spoil


def folders(number: int, draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    """Each reader meets each folder; it takes it, or says in one line what is wrong."""
    if not number:
        return [], True
    root, began = Root(folder, draw), time.monotonic()
    os.environ["STRIDE_RUNS"] = str(root.runs)
    wrong, refused, shown = Counter[str](), Counter[str](), 0
    for base in root.bases:  # what the first of a process loads and makes is none of a folder's doing
        load_run(str(base.path))
    watch = Watch((root.runs, folder / "card"), root.secret)  # card: where "publish" writes
    with few_episodes():
        for trial in range(number):
            run, how = root.fresh()
            for name, read in READERS.items():
                seen = watch.call(partial(read, run))
                fault = seen.wrong or spoilt(name, seen)
                wrong[name] += bool(fault)
                refused[name] += bool(seen.code) and not fault
                if fault and shown < 60:
                    shown += 1
                    print(f"folder {trial} ({how}), {name}: {fault} {seen.said[-160:]!r}", flush=True)
    kept = (root.secret / "key").read_text() == "nobody reads this\n" and len(list(root.secret.iterdir())) == 1
    kept = kept and not list((folder / "here").iterdir())
    each = ", ".join(f"{name} {wrong[name]} ({refused[name]:,} refused)" for name in READERS)
    line = (
        f"**{wrong.total()} of {number * len(READERS):,}** wrong: {number:,} run folders damaged by bytes, types and "
        f"links, beside a sound one, read by {each}; what lay beside {'was left alone' if kept else 'WAS CHANGED'} "
        f"({time.monotonic() - began:.0f} s)"
    )
    return [line], not wrong.total() and kept


def spoilt(name: str, seen: Seen) -> str:
    return f"refused for all: {seen.said[-100:]!r}" if name in SHARED and seen.code else ""
