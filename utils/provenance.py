"""Collects what is needed to repeat a run: the exact command, the state of the code, versions and the machine."""

import hashlib
import os
import platform
import re
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

# folders and file types whose content decides a training's bits (source_hash)
CODE = ("utils", "runstore", "config", "envs_fast", "envs_gym", "agents", "trainer_callbacks")
SUFFIXES = (".py", ".cu", ".cuh")
# the command of the running call from Python, as a person would type it; () if this process is a command itself
_called: ContextVar[Sequence[str]] = ContextVar("_called", default=())
PACKAGES = ("torch", "lightning", "gymnasium", "numba", "numpy")


def git_hash() -> str:
    """Return the commit of the code, with `+changes` if files were edited since; "" outside a git checkout."""
    if IS_WHEEL:  # a repository around site-packages is another one
        return ""
    try:
        commit = _git("rev-parse", "HEAD")
        records = (":!docs", ":!evidence")  # folders that change no result
        changes = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *records)
    except (OSError, subprocess.SubprocessError):
        return ""
    return commit.strip() + ("+changes" if changes.strip() else "")


@cache
def source_hash(*more: str) -> str:
    """Return 16 digits of the SHA-256 of the code that decides a training's bits, and of the folders `more`.

    Unlike git_hash it needs no git checkout.
    """
    digest = hashlib.sha256()
    for folder in (*CODE, *more):
        for path in sorted(path for path in (PROJECT / folder).rglob("*") if path.suffix in SUFFIXES):
            digest.update(str(path.relative_to(PROJECT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def code_hash(module: str) -> str:
    """Return the hash of an imported module, or of the whole package that it belongs to; "" if it has no files."""
    package = vars(sys.modules[module.split(".")[0]])
    source_files = sorted(path for folder in package.get("__path__", ()) for path in Path(folder).rglob("*.py"))
    module_file = vars(sys.modules[module]).get("__file__")
    if not source_files and module_file:
        source_files = [Path(module_file)]
    digest = hashlib.sha256()
    for path in source_files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16] if source_files else ""


def _git(*arguments: str) -> str:
    completed = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, timeout=10, check=True)
    return completed.stdout


def provenance() -> dict[str, Any]:
    """Return command, commit, versions and machine as plain data, for a run's config.json."""
    return {
        "command": command(),
        "git_hash": git_hash(),
        "versions": versions(),
        "host": {
            "system": f"{platform.system()} {platform.machine()}",
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        },
    }


def processor() -> str:
    """Return the processor's name from /proc/cpuinfo, else from Python."""
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.M) if cpuinfo.is_file() else []
    return names[0] if names else platform.processor()


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that bits depend on; "" for one that is not installed."""
    found_versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found_versions[package] = version(package)
        except PackageNotFoundError:
            found_versions[package] = ""
    return found_versions


def command() -> str:
    """Return the command that was typed, or for a call from Python the one that a person would type."""
    return shlex.join(_called.get() or [*spelled(Path(sys.argv[0]).stem), *_single(sys.argv[1:])])


@contextmanager
def called(name: str, arguments: Sequence[str]) -> Iterator[None]:
    """Make `command()` return this command inside the block, for a call from Python."""
    previous_command = _called.set([*spelled(name), *arguments])
    try:
        yield
    finally:
        _called.reset(previous_command)


def _single(arguments: list[str]) -> list[str]:
    """Remove what a group adds to the arguments of its runs: --group NAME and --quiet."""
    if "--group" not in arguments:
        return arguments
    group_index = arguments.index("--group")
    return [word for word in (*arguments[:group_index], *arguments[group_index + 2 :]) if word != "--quiet"]
