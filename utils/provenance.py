"""What one needs to know to repeat a run: the exact command, the code's state, versions and the machine."""

import hashlib
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from stride.utils.places import IS_WHEEL, PROJECT, spelled

CODE = ("utils", "runstore", "config", "envs_fast", "envs_gym", "agents", "trainer_callbacks")
SUFFIXES = (".py", ".cu", ".cuh")  # a CUDA source is compiled where it is needed
_called: ContextVar[Sequence[str]] = ContextVar("_called", default=())  # what a program asks for, in words
PACKAGES = ("torch", "lightning", "gymnasium", "numba", "numpy")


def git_hash() -> str:
    """The commit the code stands at, with `+changes` where it was edited since; "" outside a checkout."""
    if IS_WHEEL:  # whatever repository its site-packages may lie in is another
        return ""
    try:
        commit = _git("rev-parse", "HEAD")
        changes = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")  # words change no result
    except (OSError, subprocess.SubprocessError):
        return ""
    return commit.strip() + ("+changes" if changes.strip() else "")


@cache
def source_hash() -> str:
    """The first 16 digits of the SHA-256 of all code that a training can run, with or without a git checkout."""
    digest = hashlib.sha256()
    for folder in CODE:
        for path in sorted(path for path in (PROJECT / folder).rglob("*") if path.suffix in SUFFIXES):
            digest.update(str(path.relative_to(PROJECT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def code_hash(module: str) -> str:
    """The same of an imported module, or of the whole package that it lies in; "" where there are no files of it."""
    package, own = (sys.modules[name].__dict__ for name in (module.split(".")[0], module))
    files = sorted(path for place in package.get("__path__", ()) for path in Path(place).rglob("*.py"))
    files = files or [Path(own["__file__"])] if own.get("__file__") else files
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16] if files else ""


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout


def provenance() -> dict[str, Any]:
    """Plain data for config.json."""
    return {
        "command": command(),
        "git_hash": git_hash(),
        "versions": versions(),
        "host": {
            "system": f"{platform.system()} {platform.machine()}",
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        },
    }


def versions() -> dict[str, str]:
    """Of Python and of the packages that bits rest on; "" for one that is not installed."""
    return {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}


def command() -> str:
    """What was typed, or what a person would type for what a program asks for."""
    called = _called.get()
    return shlex.join(called or [*spelled(Path(sys.argv[0]).stem), *_asked(sys.argv[1:])])


@contextmanager
def called(name: str, words: Sequence[str]) -> Iterator[None]:
    """While a program calls what a person would type as a command."""
    before = _called.set([*spelled(name), *words])
    try:
        yield
    finally:
        _called.reset(before)


def _asked(words: list[str]) -> list[str]:
    """What a person would type for this run alone: a group names itself to each of its runs, and keeps them quiet."""
    if "--group" not in words:
        return words
    place = words.index("--group")
    return [word for word in (*words[:place], *words[place + 2 :]) if word != "--quiet"]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
