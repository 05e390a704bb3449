"""What one needs to know to repeat a run: the exact command, the code's state, versions and the machine."""

import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("torch", "lightning", "gymnasium", "numba", "numpy")


def git_hash() -> str:
    """The commit the code stands at, with `+changes` where it was edited since; "" outside a checkout."""
    try:
        commit = _git("rev-parse", "HEAD")
        changes = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")  # words change no result
    except (OSError, subprocess.SubprocessError):
        return ""
    return commit.strip() + ("+changes" if changes.strip() else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout


def provenance() -> dict[str, Any]:
    """Plain data for config.json."""
    return {
        "command": shlex.join(["python", Path(sys.argv[0]).name, *sys.argv[1:]]),
        "git_hash": git_hash(),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "host": {
            "system": f"{platform.system()} {platform.machine()}",
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        },
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
