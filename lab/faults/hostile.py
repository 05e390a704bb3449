"""Checkpoint files made to harm, with sidecars that vouch for them, on every command that loads one.

    python -m lab.faults hostile

Nothing may be executed (a canary file would appear, or a process or a connection), and each is refused in one line.
"""

import contextlib
import io
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

from lab.faults.rig import OPENING, TINY, evenly, finish, last_run, refused_in_a_line
from stride.agents.trained.loading import read_checkpoint
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir
from stride.utils.durable_file import write_json

CANARY = "touch canary"


def encoded(value: object) -> bytes:
    """The opcodes that put a value on a pickle's stack; texts, whole numbers and lists are all that is needed."""
    match value:
        case str():
            return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
        case int():
            return b"J" + struct.pack("<i", value)
        case list() | tuple():
            return b"(" + b"".join(map(encoded, value)) + (b"l" if isinstance(value, list) else b"t")
    raise TypeError(type(value))


def calls(module: str, name: str, *arguments: object) -> bytes:
    """A pickle that calls module.name(*arguments) where it is read."""
    return b"\x80\x02" + f"c{module}\n{name}\n".encode() + encoded(arguments) + b"R."


PICKLES = {
    "os.system": calls("os", "system", CANARY),
    "posix.system": calls("posix", "system", CANARY),
    "subprocess.Popen": calls("subprocess", "Popen", ["touch", "canary"]),
    "builtins.eval": calls("builtins", "eval", "__import__('os').system('touch canary')"),
    "builtins.exec": calls("builtins", "exec", "open('canary', 'w')"),
    "builtins.open": calls("builtins", "open", "canary", "w"),
    "builtins.__import__": calls("builtins", "__import__", "antigravity"),
    "builtins.getattr": calls("builtins", "getattr", "x", "__class__"),
    "runpy.run_path": calls("runpy", "run_path", "evil.py"),
    "importlib": calls("importlib", "import_module", "evil"),
    "pty.spawn": calls("pty", "spawn", "touch canary"),
    "webbrowser.open": calls("webbrowser", "open", "http://127.0.0.1:9/"),
    "socket": calls("socket", "create_connection", ("127.0.0.1", 9)),
    "shutil.rmtree": calls("shutil", "rmtree", "here"),
    "torch.load": calls("torch", "load", "evil.pt"),
    "torch.hub.load": calls("torch.hub", "load", "evil/evil", "evil"),
    "torch.jit.load": calls("torch.jit", "load", "evil.pt"),
    "numpy.load": calls("numpy", "load", "evil.npy"),
    "operator.attrgetter": calls("operator", "attrgetter", "__globals__"),
    "functools.partial": calls("functools", "partial", "print"),
    "code": calls("types", "CodeType", 0),
    "pathlib.Path": calls("pathlib", "PosixPath", "/etc/passwd"),
    "pickle.loads": calls("pickle", "loads", "x"),
    "ctypes": calls("ctypes", "CDLL", "evil.so"),
    "no pickle": b"\xff" * 64,
    "endless": b"\x80\x02" + b"]" * 100,
    "deep": b"\x80\x02" + b"(" * 50_000 + b"t" * 50_000 + b".",
}


Entry = tuple[str | zipfile.ZipInfo, bytes, int]  # of a zip: its name, what is in it, how that is compressed


def rewritten(whole: bytes, change: Callable[[str, bytes], list[Entry]]) -> bytes:
    """A copy of a checkpoint's zip, each entry as `change` has it: (name or ZipInfo, data, compression)."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            for name, data, compression in change(entry.filename, old.read(entry)):
                new.writestr(name, data, compression)
    return out.getvalue()


def with_pickle(whole: bytes, data: bytes) -> bytes:
    return rewritten(whole, lambda name, old: [(name, data if name.endswith("data.pkl") else old, zipfile.ZIP_STORED)])


def link(target: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("archive/data/9")
    info.external_attr = 0o120777 << 16
    info.comment = target.encode()
    return info


def files(whole: bytes, state: dict[str, Any], folder: Path) -> dict[str, Callable[[], bytes]]:
    """name -> what makes the bytes of a file that looks like a checkpoint; some take seconds."""

    def saved(content: object) -> bytes:
        out = io.BytesIO()
        torch.save(content, out)
        return out.getvalue()

    def extra(name: str | zipfile.ZipInfo, data: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
        kept = zipfile.ZIP_STORED
        first = "data.pkl"
        return rewritten(
            whole, lambda n, d: [(n, d, kept), *([(name, data, compression)] if n.endswith(first) else [])]
        )

    endless = torch.zeros(1).expand(1 << 40)  # 4 bytes in the file, 4 TiB to who copies it
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
        "bomb": lambda: rewritten(whole, lambda n, d: [(n, d + b"\0" * (64 << 20), zipfile.ZIP_DEFLATED)]),
        "an entry twice": lambda: extra("archive/data.pkl", PICKLES["os.system"]),
        "a climbing entry": lambda: extra("../../canary", b"x"),
        "an absolute entry": lambda: extra("/tmp/canary", b"x"),
        "a linked entry": lambda: extra(link("/etc/passwd"), b"/etc/passwd"),
        "code": lambda: extra("archive/code/__torch__.py", b"x"),
        "a zip inside": lambda: extra("archive/data/8", whole, zipfile.ZIP_DEFLATED),
        "a script before": lambda: b"#!/bin/sh\ntouch canary\n" + with_pickle(whole, PICKLES["os.system"]),
        "huge header": lambda: struct.pack("<Q", 1 << 60) + b"{" * 1000,
        "a list": lambda: saved([1, 2, 3]),
        "an empty state": lambda: saved({}),
        "strings for tensors": lambda: saved({**state, "state_dict": dict.fromkeys(state["state_dict"], "x")}),
        "endless tensors": lambda: saved({**state, "state_dict": dict.fromkeys(state["state_dict"], endless)}),
    }  # fmt: skip


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    root = folder / "runs"
    ended = finish(TINY, root)
    whole_run = last_run(root)
    assert ended.code == 0 and whole_run is not None, ended.said
    here = folder / "here"
    here.mkdir()
    os.chdir(here)  # where a canary would appear
    os.environ["STRIDE_RUNS"] = str(folder / "hostile")
    stem = checkpoint_set.target(whole_run.checkpoints / "last.ckpt")
    path = whole_run.checkpoints / f"{stem}.ckpt"
    hostile = files(path.read_bytes(), read_checkpoint(path), folder)
    names = evenly(list(hostile), counts["files"])
    refused = total = 0
    executed = []
    for name in names:
        data = hostile[name]()
        for what, command in OPENING.items():
            total += 1
            code, said = attacked(whole_run, data, command, folder / "hostile")
            good = code == 2 and refused_in_a_line(said)
            refused += good
            if not good:
                print(f"{name} on {what}: {code} {said[-300:]!r}", flush=True)
            if Path("canary").exists():
                executed.append(f"{name} on {what}")
                Path("canary").unlink()
    lines = [
        f"**{refused} of {total}** refused in one line: {len(names)} hostile checkpoint files, each with a sidecar "
        f"that vouches for it, on {', '.join(OPENING)}",
        f"**{len(executed)} executed** {', '.join(executed)}",
        f"files: {', '.join(names)}",
    ]
    return lines, refused == total and not executed


def attacked(whole: RunDir, data: bytes, command: Callable[[str], int], root: Path) -> tuple[int, str]:
    """A copy of the run whose checkpoints are all that file; what the command said of it."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(whole.path, root / whole.id, symlinks=True)
    run = RunDir(root / whole.id)
    for path in run.checkpoints.glob("*=*.ckpt"):
        facts = checkpoint_set.facts_of(path)
        path.write_bytes(data)
        write_json(path.with_suffix(".json"), {**facts, **checkpoint_set.digest(path)})
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        code = command(run.id)
    return code, said.getvalue().strip()
