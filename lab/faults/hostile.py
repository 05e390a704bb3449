"""Loads malicious checkpoint files, with sidecars that match them, by every command that loads one.

    python -m lab.faults hostile
    python -m lab.faults damage --flips 500 --cuts 200

Nothing may be executed (the code in them would create a file "canary"), and each must be refused in one line.
"""

import io
import json
import os
import random
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lab.faults.rig import OPENING, TINY, Report, Tally, evenly, finish, refused_in_a_line, run_captured, undisturbed
from stride.agents.trained.loading import load_run, read_checkpoint
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir
from stride.utils.durable_file import write_json
from stride.utils.user_error import UserError


def encoded(value: object) -> bytes:
    """Return the opcodes that put a value on a pickle's stack; only str, int, list and tuple."""
    match value:
        case str():
            return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
        case int():
            return b"J" + struct.pack("<i", value)
        case list() | tuple():
            return b"(" + b"".join(map(encoded, value)) + (b"l" if isinstance(value, list) else b"t")
    raise TypeError(type(value))


def calls(module: str, name: str, *arguments: object) -> bytes:
    """Return a pickle that calls module.name(*arguments) when it is read."""
    return b"\x80\x02" + f"c{module}\n{name}\n".encode() + encoded(arguments) + b"R."


CALLED: dict[str, list[Any]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
PICKLES = {
    **{what: calls(*called) for what, called in CALLED.items()},
    "not a pickle": b"\xff" * 64,
    "endless": b"\x80\x02" + b"]" * 100,
    "deep": b"\x80\x02" + b"(" * 50_000 + b"t" * 50_000 + b".",
}


Entry = tuple[str | zipfile.ZipInfo, bytes, int]  # an entry of a zip: name, contents, compression


def rewritten(whole: bytes, change: Callable[[str, bytes], list[Entry]]) -> bytes:
    """Return a copy of a checkpoint's zip in which `change(name, data)` replaces each entry by a list of entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(buffer, "w") as new:
        for entry in old.infolist():
            for name, data, compression in change(entry.filename, old.read(entry)):
                new.writestr(name, data, compression)
    return buffer.getvalue()


def with_pickle(whole: bytes, data: bytes) -> bytes:
    """Return a copy of a checkpoint with another pickle in it."""
    return rewritten(whole, lambda name, old: [(name, data if name.endswith("data.pkl") else old, zipfile.ZIP_STORED)])


def link(target: str) -> zipfile.ZipInfo:
    """Return an entry that is a symbolic link (mode 120777)."""
    info = zipfile.ZipInfo("archive/data/9")
    info.external_attr = 0o120777 << 16
    info.comment = target.encode()
    return info


def files(whole: bytes, state: dict[str, Any], folder: Path) -> dict[str, Callable[[], bytes]]:
    """Return name -> function that makes the bytes of a malicious checkpoint; some take seconds.

    `whole` is a good checkpoint's file, `state` its contents.
    """

    def saved(content: object) -> bytes:
        out = io.BytesIO()
        torch.save(content, out)
        return out.getvalue()

    def extra(name: str | zipfile.ZipInfo, data: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
        more: list[Entry] = [(name, data, compression)]
        return rewritten(whole, lambda n, d: [(n, d, zipfile.ZIP_STORED), *(more if n.endswith("data.pkl") else [])])

    endless = torch.zeros(1).expand(1 << 40)  # 4 bytes in the file, 4 TiB when it is copied
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("pickle"))
    script = torch.jit.script(torch.nn.Linear(2, 2))
    torch.jit.save(script, str(folder / "script.pt"))
    legacy = io.BytesIO()
    torch.save(state, legacy, _use_new_zipfile_serialization=False)
    return {
        **{name: partial(with_pickle, whole, data) for name, data in PICKLES.items()},
        "bare pickle": lambda: PICKLES["os.system"],
        "legacy": lambda: legacy.getvalue(),
        "tar": lambda: tar.getvalue(),
        "TorchScript": lambda: (folder / "script.pt").read_bytes(),
        "a zip bomb": lambda: rewritten(whole, lambda n, d: [(n, d + b"\0" * (64 << 20), zipfile.ZIP_DEFLATED)]),
        "a repeated entry": lambda: extra("archive/data.pkl", PICKLES["os.system"]),
        "an entry with .. in its path": lambda: extra("../../canary", b"x"),
        "an entry with an absolute path": lambda: extra("/tmp/canary", b"x"),
        "an entry that is a link": lambda: extra(link("/etc/passwd"), b"/etc/passwd"),
        "code": lambda: extra("archive/code/__torch__.py", b"x"),
        "a nested zip": lambda: extra("archive/data/8", whole, zipfile.ZIP_DEFLATED),
        "a script before the archive": lambda: b"#!/bin/sh\ntouch canary\n" + with_pickle(whole, PICKLES["os.system"]),
        "huge header": lambda: struct.pack("<Q", 1 << 60) + b"{" * 1000,
        "a list": lambda: saved([1, 2, 3]),
        "an empty state": lambda: saved({}),
        "strings for tensors": lambda: saved({**state, "state_dict": dict.fromkeys(state["state_dict"], "x")}),
        "endless tensors": lambda: saved({**state, "state_dict": dict.fromkeys(state["state_dict"], endless)}),
    }  # fmt: skip


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    source = undisturbed(TINY, folder / "runs")
    here = folder / "here"
    here.mkdir()
    os.chdir(here)  # executed code would create the file canary here
    os.environ["STRIDE_RUNS"] = str(folder / "hostile")
    path = last_checkpoint(source)
    hostile = files(path.read_bytes(), read_checkpoint(path), folder)
    names, tally, executed = evenly(list(hostile), counts["files"]), Tally(), 0
    for name in names:
        data = hostile[name]()
        for title, command in OPENING.items():
            run = vouched_for(source, data, folder / "hostile")
            code, said = run_captured(command, run.id)
            tally.add(f"{name} on {title}", "" if code == 2 and refused_in_a_line(said) else f"{code} {said[-300:]!r}")
            executed += Path("canary").exists()
            Path("canary").unlink(missing_ok=True)
    lines = [
        f"{tally} attempts refused in one line: {len(names)} hostile checkpoint files, each with a sidecar that "
        f"matches it, opened by {', '.join(OPENING)}; **{executed}** executed code",
        f"files: {', '.join(names)}",
    ]
    return lines, tally.good and not executed


def vouched_for(whole: RunDir, data: bytes, root: Path) -> RunDir:
    """Copy a run, replace its checkpoints by `data`, and write sidecars with the right size and hash."""
    shutil.rmtree(root, ignore_errors=True)
    run = RunDir(shutil.copytree(whole.path, root / whole.id, symlinks=True))
    for path in run.checkpoints.glob("*=*.ckpt"):
        facts = checkpoint_set.facts_of(path)
        path.write_bytes(data)
        write_json(path.with_suffix(".json"), {**facts, **checkpoint_set.digest(path)})
    return run


def last_checkpoint(run: RunDir) -> Path:
    return run.checkpoints / f"{checkpoint_set.target(run.checkpoints / 'last.ckpt')}.ckpt"


def damage(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    """Flip bits and cut files: every damaged checkpoint must be noticed, and the one before it used."""
    run = undisturbed(TINY, folder / "runs")
    path, before, tally = last_checkpoint(run), checkpoint_set.names(run.checkpoints)[-2], Tally()
    contents, flips, cuts = path.read_bytes(), counts["flips"], counts["cuts"]
    for trial in range(flips + cuts):
        data = bytearray(contents)
        if trial < flips:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        else:
            del data[draw.randrange(len(contents)) :]
        path.write_bytes(data)
        chosen = checkpoint_set.select(run.checkpoints, "last", run.id)
        is_right = chosen.path.stem == before and any("damaged" in note for note in chosen.notes)
        tally.add(f"trial {trial}", "" if is_right and unread(path) else "loaded, or another taken")
    notes = load_run(str(run.path), "last").notes  # once completely, as play, inspect and publish load a run
    resume = finish(["--resume", "@last", "--max-timesteps", "2560"], folder / "runs")
    is_resumed = resume.code == 0 and f"using {before}" in resume.said and bool(notes)
    word = "continued" if is_resumed else "DID NOT continue"
    lines = [
        f"{tally} damaged files ({flips} with one flipped bit, {cuts} cut short) were refused before they were read; "
        "the previous checkpoint was used, and a message said so",
        f"train.py --resume and load_run (play, inspect, publish) {word} from that checkpoint",
    ]
    return lines, tally.good and is_resumed


def unread(path: Path) -> bool:
    """Whether the checkpoint is refused."""
    try:
        read_checkpoint(path)
    except UserError:
        return True
    return False
