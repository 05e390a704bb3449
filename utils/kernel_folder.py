"""The folder of compiled kernels: one for each user, in it one for each state of what kernels are made of.

A state is the sources (their names and contents), this processor, Numba, llvmlite and Python. Where a checkout lies is
no part of it: a moved one, a copy, a second clone of the same sources find what was compiled. What lies there is run as
it is (machine code in pickles), so a folder that anybody else could write to is never taken.
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
import numba
from numba.core import config

from stride.utils.places import PROJECT
from stride.utils.private_folder import UNKNOWN, of_another, others_may_write
from stride.utils.processor import FEATURES, NAME

SOURCES = ("envs_fast", "agents/engines/fused_cpu/kernels")
ALONE = (  # files whose folder holds other things too: kernels, and the constants they take
    "agents/engines/fused_cpu/frame.py",
    "agents/engines/fused_cpu/workers.py",
    "agents/engines/plan/layout.py",
    "agents/engines/plan/numbers.py",
    "agents/experience/cuts.py",
    "agents/experience/finite_guard.py",
    "agents/experience/priorities.py",
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


def state() -> str:
    """Of everything that machine code follows from. Numba looks at a kernel's own file only, not at what it inlines."""
    switches = (config.ENABLE_AVX, config.OPT, config.BOUNDSCHECK, sys.flags.optimize)  # type: ignore[attr-defined]
    versions = (numba.__version__, llvmlite.__version__, sys.version)
    digest = hashlib.sha256(repr((NAME, sorted(FEATURES), switches, versions)).encode())
    folders = (sorted((PROJECT / folder).glob("*.py")) for folder in SOURCES)
    for path in chain(*folders, (PROJECT / file for file in ALONE)):
        digest.update(f"{path.relative_to(PROJECT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def root_of(environment: Mapping[str, str]) -> Path:
    """The folder of all states: what NUMBA_CACHE_DIR names, else the user's cache, else temporary files of the user.

    Where none of them is the user's alone, one that goes with this process.
    """
    if named := environment.get("NUMBA_CACHE_DIR"):
        return Path(named).absolute()
    homes = (environment.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache"))
    roots = [Path(home) / "stride" / "kernels" for home in homes if os.path.isabs(home)]
    with suppress(FileNotFoundError):  # nowhere at all: who compiles will say so
        roots.append(Path(tempfile.gettempdir()) / f"stride-{os.geteuid()}" / "kernels")
        if not any(map(_make_private, roots)):
            roots = [Path(tempfile.mkdtemp(prefix=PASSING))]
            atexit.register(shutil.rmtree, roots[0], ignore_errors=True)
    return next(filter(_make_private, roots), roots[0])


def _make_private(root: Path) -> bool:
    """Whether one may write there and nobody else can, nor put another in its place; made where it is missing."""
    try:
        for folder in (*reversed(root.parents), root):
            if not folder.exists():
                folder.mkdir(mode=PRIVATE, exist_ok=True)
        real = root.resolve()
        above = [os.stat(folder) for folder in {*root.parents, *real.parents}]
        found = os.lstat(root)
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        return False
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return own and os.access(root, os.W_OK | os.X_OK) and not any(map(_replaceable, above))


def _replaceable(folder: os.stat_result) -> bool:
    """Whether others may rename what lies in it; in /tmp the sticky bit forbids it."""
    if of_another(folder, UNKNOWN):
        return True
    return bool(others_may_write(folder)) and not folder.st_mode & stat.S_ISVTX


ROOT = root_of(os.environ)
FOLDER = ROOT / state()


def prune(root: Path, used: Path, now: float) -> None:
    """States that are old or many go, but the one that is used, and none that others may be using."""
    ages = []
    for path in root.iterdir():
        if GONE.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)  # of a process that was killed at it
        elif STATE.fullmatch(path.name) and path != used:
            ages.append((now - path.stat().st_mtime, path))
    for place, (age, path) in enumerate(sorted(ages), 1):
        if age > DAY and (place >= NEWEST or age > DAYS * DAY):
            _remove(path)


def _remove(folder: Path) -> None:
    """Unless a process is compiling into it."""
    with open(folder / LOCK, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        gone = folder.with_name(f"{folder.name}.gone{os.getpid()}")  # whole under its name, or not there
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
