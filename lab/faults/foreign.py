"""Lists the ways in which a foreign or damaged run folder may be wrong: name -> function that damages a healthy copy.

Used by lab/faults/folder.py and tests. There are wrong types and sizes in config.json, invalid numbers in metrics.csv,
and links, FIFOs and folders in the place of files. `outside` is a folder beside the runs whose files no command may
read or write; names that lead there are written wherever a run contains a name. This module does not import torch.
"""

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir

SECRET, VICTIM = "id_secret", "victim"
DATA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
CONFIG: dict[str, list[object]] = DATA["config"]  # key of config.json -> wrong values
KEYS: dict[str, list[object]] = DATA["keys"]  # key of "config" in config.json -> wrong values
CONFIG["env_id"].append("x" * 10_000)
KEYS["description"].append("x" * 100_000)


class Target(NamedTuple):
    """A run to damage, and the folder that must not be touched through it."""

    run: RunDir
    outside: Path

    @property
    def stem(self) -> str:
        """The name of the best checkpoint, such as "epoch=40"."""
        return checkpoint_set.target(self.run.checkpoints / "best.ckpt")

    def file(self, name: str) -> Path:
        """Return the path of one of FILES, which has every kind of file of a run."""
        run_folder, checkpoints = self.run.path, self.run.checkpoints
        match name:
            case "checkpoint":
                return checkpoints / f"{self.stem}.ckpt"
            case "sidecar":
                return checkpoints / f"{self.stem}.json"
            case "segment":
                return sorted((checkpoints / checkpoint_set.SEGMENTS).iterdir())[0]
            case "video":
                return run_folder / "videos" / "epoch=02.mp4"
            case "curve":
                return run_folder / "logs" / "curve.svg"
        return (checkpoints if name.startswith(("best", "last")) else run_folder) / name

    def folder(self, name: str) -> Path:
        return (self.run.checkpoints if name == checkpoint_set.SEGMENTS else self.run.path) / name


FILES = ("config.json", "metrics.csv", "run.log", "report.md", ".lock", "checkpoint", "sidecar", "best.ckpt",
         "best.json", "last.ckpt", "last.json", "segment", "video", "curve")  # fmt: skip
FOLDERS = ("checkpoints", checkpoint_set.SEGMENTS, "videos", "logs")
Spoil = Callable[[Target], None]


def cleared(path: Path) -> Path:
    """Delete whatever is at this path, and return the path."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return path


def listening(path: Path) -> None:
    """Make a socket file; it is bound under a short name first, because such paths may have about 100 bytes."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    os.rename("socket", path)


def sparse(path: Path) -> None:
    """Make a file of 1 TiB that takes no room on the disk."""
    with open(path, "wb") as file:
        file.truncate(1 << 40)


IN_PLACE: dict[str, Callable[[Path, Path], None]] = {  # name -> function that puts something in the place of a file
    "a link to a secret": lambda path, outside: path.symlink_to(outside / SECRET),
    "a link to a file that can be written": lambda path, outside: path.symlink_to(outside / VICTIM),
    "a relative link": lambda path, outside: path.symlink_to(os.path.relpath(outside / VICTIM, path.parent)),
    "a link to a name that is free": lambda path, outside: path.symlink_to(outside / "made"),
    "a link to itself": lambda path, _: path.symlink_to(path.name),
    "a link to an endless device": lambda path, _: path.symlink_to("/dev/zero"),
    "a link to the terminal's device": lambda path, _: path.symlink_to("/dev/tty"),
    "a FIFO": lambda path, _: os.mkfifo(path),
    "a folder": lambda path, _: path.mkdir(),
    "a socket": lambda path, _: listening(path),
    "a terabyte of nothing": lambda path, _: sparse(path),
    "empty": lambda path, _: path.touch(),
    "noise": lambda path, _: void(path.write_bytes(hashlib.shake_256(b"noise").digest(100_000))),
    "gone": lambda path, _: None,
}
IN_PLACE_OF_FOLDERS: dict[str, Callable[[Path, Path], None]] = {
    "a link to a folder": lambda path, outside: path.symlink_to(outside / "folder"),
    "a link to a free name": lambda path, outside: path.symlink_to(outside / "made"),
    "a link to itself": lambda path, _: path.symlink_to(path.name),
    "a file": lambda path, _: path.touch(),
    "a FIFO": lambda path, _: os.mkfifo(path),
    "gone": lambda path, _: None,
}


def void(_: object) -> None:
    """Drop a result, so that an expression fits a function that returns None."""
    return None


def put(kind: Callable[[Path, Path], None], name: str, folder: bool = False) -> Spoil:
    """Put something in the place of the file `name` (or of the folder, which is copied to `outside` before)."""

    def spoil(target: Target) -> None:
        path = target.folder(name) if folder else target.file(name)
        if folder and not (target.outside / "folder" / "kept").exists():  # a link there then leads to the same files
            shutil.copytree(path, target.outside / "folder", symlinks=True, dirs_exist_ok=True)
            (target.outside / "folder" / "kept").touch()
        kind(cleared(path), target.outside)

    return spoil


def in_json(name: str, inside: str = "", **changes: object) -> Spoil:
    """Change keys of a JSON file, or of the object `inside` it."""

    def spoil(target: Target) -> None:
        path = target.file(name)
        facts = json.loads(path.read_text())
        (facts[inside] if inside else facts).update(changes)
        path.write_text(json.dumps(facts))

    return spoil


def in_csv(column: str, cell: str) -> Spoil:
    """Write `cell` into a column of metrics.csv, in every row but the first."""

    def spoil(target: Target) -> None:
        head, *rows = target.run.metrics_csv.read_text().splitlines()
        index = head.split(",").index(column)
        changed = [",".join(cell if n == index else old for n, old in enumerate(row.split(","))) for row in rows]
        target.run.metrics_csv.write_text("\n".join([head, *rows[:1], *changed[1:], ""]))

    return spoil


def content(name: str, data: bytes) -> Spoil:
    """Replace the contents of a file."""
    return lambda target: void(cleared(target.file(name)).write_bytes(data))


def segments_out(form: str) -> Spoil:
    """Name a segment of the replay memory so that it leads outside, with the hash that the file there has."""

    def spoil(target: Target) -> None:
        digest = hashlib.sha256((target.outside / VICTIM).read_bytes()).hexdigest()[:16]
        climbing = os.path.relpath(target.outside, target.run.checkpoints / checkpoint_set.SEGMENTS)
        name = form.format(outside=target.outside, climbing=climbing, digest=digest)
        in_json("sidecar", segments=[name])(target)

    return spoil


def link(name: str, to: str) -> Spoil:
    """Replace a file by a link; `to` may contain {outside}, {stem} and {id}."""
    return lambda target: cleared(target.file(name)).symlink_to(
        to.format(outside=target.outside, stem=target.stem, id=target.run.id)
    )


def temporary(folder: str, leads: str) -> Spoil:
    """Add a link that is named like a temporary file of another process, which a command would delete."""
    return lambda target: (target.run.path / folder / ".x.1-0123abcd.tmp").symlink_to(target.outside / leads)


def outside_litter(target: Target) -> None:
    """Replace videos/ by a link to a folder with files that are named like our temporary ones."""
    (target.outside / "folder").mkdir(exist_ok=True)
    (target.outside / "folder" / ".x.1-0123abcd.tmp").write_text("somebody's own")
    (target.outside / "folder" / "1-2-0123456789abcdef.rows").write_text("somebody's own")
    cleared(target.run.videos).symlink_to(target.outside / "folder")


CLOCK = ("size", "epoch", "iterations", "env_steps", "exported")
HEAD = b"train/clock/env_steps,val/roll/ep_rew/mean\n"
ROWS = {  # contents of metrics.csv that are no tables, or too large
    "no metric's names": b"GARBAGE\nx\n", "zeros": bytes(5000), "a million columns": b"a," * 10**6 + b"\n",
    "infinite clock": b"train/clock/env_steps,train/roll/ep_rew/mean\ninf,1\nnan,2\n1e400,3\n",
    "header only": HEAD, "header of a megabyte": b"x" * 10**6,
    "the same column twice": HEAD[:-1] + b"," + HEAD + b"1,2,3,4\n",
    "no clock": b"a,b\n1,2\n", "torn end": HEAD + b"1,2\n3,", "backwards": HEAD + b"9,2\n3,4\n1,8\n",
    "CRLF": HEAD[:-1] + b"\r\n1,2\r\n3,4\r\n", "wrong number of cells": HEAD + b"1\n1,2,3\n",
    "long line": HEAD + b"1,2\n" + b"1" * 3_000_000 + b",2\n3,4\n",
    "zeros inside": HEAD + b"1,2\n" + bytes(10**5) + b"\n3,4\n",
    "large": HEAD + b"".join(b"%d,%d\n" % (number, number % 500) for number in range(400_000)),
    # one bit apart: an axis has no length if it is rounded
    "almost equal": HEAD + f"1,1\n2,{1 + 2**-52!r}\n3,{1 - 2**-53!r}\n".encode(),
    "subnormal": HEAD + b"0,5e-324\n1,1e-323\n",
}  # fmt: skip
LOCKS = {
    "words": b"not a lock", "400 digits": b'{"pid": ' + b"9" * 400 + b"}", "negative": b'{"pid": -1}',
    "nested": b"[" * 4000, "a megabyte": b"9" * 10**6, "another's": b'{"pid": 1, "boot": "", "started": 0}',
}  # fmt: skip
JSON = {
    "nested": b"[" * 100_000, "no UTF-8": b"\xff\xfe{", "17 MB": b'{"a": "' + b"x" * (17 << 20) + b'"}', "NaN": b"NaN",
    "null": b"null", "a list": b"[]", "digits": b'{"score": ' + b"9" * 5000 + b"}",
    "a huge number": b'{"score": 1' + b"0" * 400 + b"}", "half": b'{"env_id": "CartPole-v1", "vari',
}  # fmt: skip


def cases() -> dict[str, Spoil]:
    """Return every damage by its name, such as "metrics.csv: a FIFO"."""
    return dict(_cases())


def _cases() -> Iterator[tuple[str, Spoil]]:
    for kind, make in IN_PLACE.items():
        yield from ((f"{name}: {kind}", put(make, name)) for name in FILES)
    for kind, make in IN_PLACE_OF_FOLDERS.items():
        yield from ((f"{name}/: {kind}", put(make, name, folder=True)) for name in FOLDERS)
    yield from ((f"a segment called {form!r}", segments_out(form)) for form in DATA["sidecar"]["names_out"])
    for what, value in DATA["sidecar"]["odd"].items():
        yield from ((f"sidecar: {key} {what}", in_json("sidecar", **{key: value})) for key in CLOCK)
    for key, value in DATA["sidecar"]["forged"].items():
        # "segments of": a dict has a key once, and there are two ways to forge this one
        yield f"sidecar: {key} {value!r}", in_json("sidecar", **{key.removesuffix(" of"): value})
    for name, inside, keys in (("config.json", "", CONFIG), ("config", "config", KEYS)):
        for key, values in keys.items():
            for number, value in enumerate(values):
                yield f"{name}: {key} {number}", in_json("config.json", inside, **{key: value})
    for column in DATA["columns"]:
        yield from ((f"metrics.csv: {column} {cell!r}", in_csv(column, cell)) for cell in DATA["cells"])
    tables = {"metrics.csv": ROWS, ".lock": LOCKS, "config.json": JSON, "sidecar": JSON, "best.json": JSON}
    for name, contents in tables.items():
        yield from ((f"{name}: {what}", content(name, data)) for what, data in contents.items())
    for name in ("best.ckpt", "last.ckpt"):
        yield from ((f"{name} -> {to!r}", link(name, to)) for to in DATA["links"])
    for folder in ("", "checkpoints", "checkpoints/segments", "videos", "logs"):
        yield f"litter in {folder or 'the run'}/ that is a link to a file", temporary(folder, VICTIM)
        yield f"litter in {folder or 'the run'}/ that is a link to a folder", temporary(folder, "")
    yield "videos/ is a folder of somebody's litter", outside_litter
