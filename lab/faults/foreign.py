"""What may be wrong with a run folder from elsewhere: name -> what is done to a sound copy.

`outside` is a folder beside the runs whose files nobody but their owner may read or write; names that lead there are
put wherever a name fits.
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
DIGITS = 10**400


class Target(NamedTuple):
    """A run to spoil, and what must not be touched for it."""

    run: RunDir
    outside: Path

    @property
    def stem(self) -> str:
        return checkpoint_set.target(self.run.checkpoints / "best.ckpt")

    @property
    def files(self) -> dict[str, Path]:
        """A file of every kind that a run has."""
        at, here = self.run.path, self.run.checkpoints
        names = {name: at / name for name in ("config.json", "metrics.csv", "run.log", "report.md", ".lock")}
        names |= {"checkpoint": here / f"{self.stem}.ckpt", "sidecar": here / f"{self.stem}.json"}
        names |= {name: here / name for name in ("best.ckpt", "best.json", "last.ckpt", "last.json")}
        names["segment"] = sorted((here / checkpoint_set.SEGMENTS).iterdir())[0]
        return names | {"video": at / "videos" / "epoch=02.mp4", "curve": at / "logs" / "curve.svg"}

    @property
    def folders(self) -> dict[str, Path]:
        here = self.run.checkpoints
        return {path.name: path for path in (here, here / checkpoint_set.SEGMENTS, self.run.videos, self.run.logs)}


Spoil = Callable[[Target], None]


def cleared(path: Path) -> Path:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return path


def listening(path: Path) -> None:
    """A socket; its name may have 108 characters, so it is moved there."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    os.rename("socket", path)


def sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


IN_PLACE: dict[str, Callable[[Path, Path], None]] = {  # of any file
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
    return None


def put(kind: Callable[[Path, Path], None], name: str, folder: bool = False) -> Spoil:
    def spoil(target: Target) -> None:
        path = (target.folders if folder else target.files)[name]
        if folder and not (target.outside / "folder" / "kept").exists():  # as if nothing had changed
            shutil.copytree(path, target.outside / "folder", symlinks=True, dirs_exist_ok=True)
            (target.outside / "folder" / "kept").touch()
        kind(cleared(path), target.outside)

    return spoil


def in_json(name: str, **changes: object) -> Spoil:
    """The keys of a sidecar or of config.json as given."""

    def spoil(target: Target) -> None:
        path = target.files[name]
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return spoil


def content(name: str, data: bytes) -> Spoil:
    return lambda target: void(cleared(target.files[name]).write_bytes(data))


def segments_out(form: str) -> Spoil:
    """A part of the replay memory by a name that leads out, with the hash it should have (H1 of an audit)."""

    def spoil(target: Target) -> None:
        digest = hashlib.sha256((target.outside / VICTIM).read_bytes()).hexdigest()[:16]
        climbing = os.path.relpath(target.outside, target.run.checkpoints / checkpoint_set.SEGMENTS)
        name = form.format(outside=target.outside, climbing=climbing, digest=digest)
        in_json("sidecar", segments=[name])(target)

    return spoil


def link(name: str, to: str) -> Spoil:
    return lambda target: cleared(target.files[name]).symlink_to(
        to.format(outside=target.outside, stem=target.stem, id=target.run.id)
    )


def temporary(folder: str, leads: str) -> Spoil:
    """Litter of another process, which is swept, as a link."""
    return lambda target: (target.run.path / folder / ".x.1-0123abcd.tmp").symlink_to(target.outside / leads)


def outside_litter(target: Target) -> None:
    """videos/ is a link to a folder with files that look like our litter."""
    (target.outside / "folder").mkdir(exist_ok=True)
    (target.outside / "folder" / ".x.1-0123abcd.tmp").write_text("somebody's own")
    (target.outside / "folder" / "1-2-0123456789abcdef.rows").write_text("somebody's own")
    cleared(target.run.videos).symlink_to(target.outside / "folder")


CLOCK = ("size", "epoch", "iterations", "env_steps", "exported")
ODD = {"text": "1", "negative": -1, "null": None, "true": True, "infinite": float("inf"), "400 digits": DIGITS}
FORGED: dict[str, object] = {
    "segments": 5, "segments of": [5], "sha256": 5, "config": "x", "versions": [], "engine": "\x1b[31m", "score": "x",
}  # fmt: skip
NAMES_OUT = ("{climbing}/evil-{digest}.pth", "{climbing}/victim-{digest}.rows", "{outside}/victim-{digest}.rows",
             "../{digest}.rows", "../../config.json", "0-8-{digest}.rows/../../../x", "0-8-{digest}.rows\n",
             "0-8-{digest}.rows\0", "٣-8-{digest}.rows", "")  # fmt: skip
CONFIG = {
    "resumed": 5, "outcome": [], "goal": DIGITS, "seed": "1", "status": 5, "engine": "../x", "env_backend": 5,
    "group": "a\x1b[31m", "env_id": ["CartPole-v1"], "variant": {"x": 1}, "config": [], "versions": 5, "parent": "x",
    "settings_sha256": 5, "command": {"x": 1}, "host": [],
}  # fmt: skip
OUTCOMES: dict[str, object] = {
    "null": None, "{}": {}, "means of 400 digits": {"solved": True, "test_mean": DIGITS, "env_steps": 1},
    "infinite means": {"solved": True, "test_mean": float("inf"), "env_steps": 1, "test_episodes": 1},
    "texts": {"solved": "yes", "test_mean": "high", "env_steps": "many"},
}  # fmt: skip
ROWS = {
    "no metric's names": b"GARBAGE\nx\n", "zeros": bytes(5000), "a million columns": b"a," * 10**6 + b"\n",
    "infinite clock": b"train/clock/env_steps,train/roll/ep_rew/mean\ninf,1\nnan,2\n1e400,3\n",
    "one long line": b"train/clock/env_steps\n" + b"9" * 10**6 + b"\n",
}  # fmt: skip
LOCKS = {
    "words": b"not a lock", "400 digits": b'{"pid": ' + b"9" * 400 + b"}", "negative": b'{"pid": -1}',
    "nested": b"[" * 4000, "a megabyte": b"9" * 10**6, "another's": b'{"pid": 1, "boot": "", "started": 0}',
}  # fmt: skip
JSON = {
    "nested": b"[" * 100_000,
    "no UTF-8": b"\xff\xfe{",
    "17 MB": b'{"a": "' + b"x" * (17 << 20) + b'"}',
    "NaN": b"NaN",
}
LINKS = ("../config.json", "{outside}/id_secret", "../../{id}/run.log", "epoch=99.ckpt", "last.ckpt", "./{stem}.ckpt",
         "{stem}.ckpt/", "../checkpoints/{stem}.ckpt", "epoch=1\n.ckpt")  # fmt: skip


def cases() -> dict[str, Spoil]:
    """What is done, in words, and who does it."""
    return dict(_cases())


def _cases() -> Iterator[tuple[str, Spoil]]:
    files = ("config.json", "metrics.csv", "run.log", "report.md", ".lock", "checkpoint", "sidecar", "best.ckpt",
             "best.json", "last.ckpt", "last.json", "segment", "video", "curve")  # fmt: skip
    for kind, make in IN_PLACE.items():
        yield from ((f"{name}: {kind}", put(make, name)) for name in files)
    for kind, make in IN_PLACE_OF_FOLDERS.items():
        folders = ("checkpoints", checkpoint_set.SEGMENTS, "videos", "logs")
        yield from ((f"{name}/: {kind}", put(make, name, folder=True)) for name in folders)
    yield from ((f"a segment called {form!r}", segments_out(form)) for form in NAMES_OUT)
    for what, value in ODD.items():
        yield from ((f"sidecar: {key} {what}", in_json("sidecar", **{key: value})) for key in CLOCK)
    for key, odd in FORGED.items():
        # "segments of": a dict has a key once, and there are two ways to forge this one
        yield f"sidecar: {key} {odd!r}", in_json("sidecar", **{key.removesuffix(" of"): odd})
    for key, odd in CONFIG.items():
        yield f"config.json: {key} {str(odd)[:20]!r}", in_json("config.json", **{key: odd})
    for what, value in OUTCOMES.items():
        yield f"config.json: outcome {what}", in_json("config.json", outcome=value)
    yield from ((f"metrics.csv: {what}", content("metrics.csv", data)) for what, data in ROWS.items())
    yield from ((f".lock: {what}", content(".lock", data)) for what, data in LOCKS.items())
    for name in ("config.json", "sidecar"):
        yield from ((f"{name}: {what}", content(name, data)) for what, data in JSON.items())
    yield from ((f"best.ckpt -> {to!r}", link("best.ckpt", to)) for to in LINKS)
    yield from ((f"last.ckpt -> {to!r}", link("last.ckpt", to)) for to in LINKS)
    for folder in ("", "checkpoints", "checkpoints/segments", "videos", "logs"):
        yield f"litter in {folder or 'the run'}/ that is a link to a file", temporary(folder, VICTIM)
        yield f"litter in {folder or 'the run'}/ that is a link to a folder", temporary(folder, "")
    yield "videos/ is a folder of somebody's litter", outside_litter
