"""The folder of compiled kernels: one for each user, and in it one for each state of the sources.

A state is the sources (their names and contents), this processor, Numba, llvmlite and Python. The path of a checkout is
no part of it: a moved one, a copy, a second clone of the same sources find what was compiled. The files are run as they
are (machine code in pickles), so a folder that anybody else could write to is never used.
"""

import atexit
import fcntl
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path

import llvmlite  # type: ignore[import-untyped]
import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numba
from numba.core import config

from stride.utils.places import PROJECT, UNKNOWN, of_another, others_may_write

SOURCES = (
    "envs_fast",
    "envs_fast/bodies",
    "envs_fast/minatar",
    "envs_fast/minigrid",
    "agents/engines/fused_cpu/kernels",
)
ALONE = (  # files whose folder holds other things too: kernels, and the constants they take
    "agents/engines/fused_cpu/frame.py",
    "agents/engines/fused_cpu/workers.py",
    "agents/engines/plan/layout.py",
    "agents/engines/plan/numbers.py",
    "agents/experience/cuts.py",
    "agents/experience/finite_guard.py",
    "agents/experience/priorities.py",
    "agents/laprop.py",
    "agents/networks/heads.py",
    "agents/networks/normed.py",
    "agents/networks/squashed.py",
    "utils/counter_rng.py",
    "utils/simd_math.py",
)
STATE, GONE = re.compile("[0-9a-f]{16}"), re.compile(r"[0-9a-f]{16}\.gone\d+")
NEWEST, DAY, DAYS = 5, 86_400, 60  # states that stay; what was used within a day stays, what was not in 60 goes
LOCK = "compiling.lock"
PRIVATE = 0o700
PASSING = ".stride-for-one-process-"  # how a folder is called that goes with its process


def _features() -> frozenset[str]:
    """Names of the processor's instruction sets; NUMBA_CPU_FEATURES, where set, counts instead."""
    if config.CPU_FEATURES is not None:  # type: ignore[attr-defined]
        names = str(config.CPU_FEATURES).split(",")  # type: ignore[attr-defined]
        return frozenset(name[1:] for name in names if name.startswith("+"))
    return frozenset(name for name, has in llvm.get_host_cpu_features().items() if has)


NAME = str(config.CPU_NAME or llvm.get_host_cpu_name())  # type: ignore[attr-defined]
FEATURES = _features()


def state() -> str:
    """A hash of everything that machine code follows from. Numba looks at a kernel's file only, not at inlined ones."""
    switches = (config.ENABLE_AVX, config.OPT, config.BOUNDSCHECK, sys.flags.optimize)  # type: ignore[attr-defined]
    versions = (numba.__version__, llvmlite.__version__, sys.version)
    digest = hashlib.sha256(repr((NAME, sorted(FEATURES), switches, versions)).encode())
    folders = (sorted((PROJECT / folder).glob("*.py")) for folder in SOURCES)
    for path in chain(*folders, (PROJECT / file for file in ALONE)):
        digest.update(f"{path.relative_to(PROJECT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def root_of(environment: Mapping[str, str]) -> Path:
    """The folder of all states: what NUMBA_CACHE_DIR names, else the user's cache, else temporary files of the user.

    Where none of them is the user's alone, one that is deleted with this process.
    """
    if named := environment.get("NUMBA_CACHE_DIR"):
        return Path(named).absolute()
    homes = (environment.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache"))
    roots = [Path(home) / "stride" / "kernels" for home in homes if os.path.isabs(home)]
    with suppress(FileNotFoundError):  # no folder at all can be written to: whoever compiles will report it
        roots.append(Path(tempfile.gettempdir()) / f"stride-{os.geteuid()}" / "kernels")
    for root in roots:
        if _make_private(root):
            return root
    with suppress(FileNotFoundError):
        root = Path(tempfile.mkdtemp(prefix=PASSING))
        atexit.register(shutil.rmtree, root, ignore_errors=True)
        return root
    return roots[0]


def _make_private(root: Path) -> bool:
    """Whether this user alone can write to it and nobody can put another in its place; made where it is missing."""
    try:
        for folder in (*reversed(root.parents), root):
            if not folder.exists():
                folder.mkdir(mode=PRIVATE, exist_ok=True)
        real = root.resolve()
        parents = [os.stat(folder) for folder in {*root.parents, *real.parents}]
        status = os.lstat(root)
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        return False
    private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return private and os.access(root, os.W_OK | os.X_OK) and not any(map(_replaceable, parents))


def _replaceable(folder: os.stat_result) -> bool:
    """Whether others may rename what it holds; in /tmp the sticky bit forbids it."""
    if of_another(folder, UNKNOWN):
        return True
    return bool(others_may_write(folder)) and not folder.st_mode & stat.S_ISVTX


ROOT = root_of(os.environ)
FOLDER = ROOT / state()


def prune(root: Path, used: Path, now: float) -> None:
    """Delete states that are old or many, but not the one that is used, and none that others may be using."""
    ages = []
    for path in root.iterdir():
        if GONE.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)  # of a process that was killed at it
        elif STATE.fullmatch(path.name) and path != used:
            ages.append((now - path.stat().st_mtime, path))
    for rank, (age, path) in enumerate(sorted(ages), 1):
        if age > DAY and (rank >= NEWEST or age > DAYS * DAY):
            _remove(path)


def _remove(folder: Path) -> None:
    """Delete the folder, unless a process is compiling into it."""
    with open(folder / LOCK, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        gone = folder.with_name(f"{folder.name}.gone{os.getpid()}")  # whole under its name, or not there
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
