"""Chooses the folder of compiled kernels: one for each user, and in it one folder for each state of the sources.

A state is a hash of the sources (names and contents), the processor, and the versions of Numba, llvmlite and Python.
The path of the checkout does not count, so a moved checkout or a second clone finds the compiled kernels. The files are
executed as they are (machine code in pickles), so a folder that another user could write to is never used.
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

SOURCES = (  # folders with kernels: all their *.py count
    "envs_fast",
    "envs_fast/bodies",
    "envs_fast/minatar",
    "envs_fast/minigrid",
    "agents/engines/fused_cpu/kernels",
)
ALONE = (  # single files of other folders, with kernels or constants of kernels
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
STATE, GONE = re.compile("[0-9a-f]{16}"), re.compile(r"[0-9a-f]{16}\.gone\d+")  # names of folders: kept, being deleted
KEPT_STATES = 5  # the newest ones stay
DAY = 86_400  # seconds; a state that was used within a day stays
MAX_UNUSED_DAYS = 60  # after this time even one of the newest is deleted
LOCK = "compiling.lock"  # in the folder of a state; locked while a process compiles into it
PRIVATE = 0o700  # mode of a folder that only its owner may enter
PASSING = ".stride-for-one-process-"  # how the name of a folder begins that is deleted when its process ends


def _features() -> frozenset[str]:
    """Return the names of the processor's instruction sets, or those in NUMBA_CPU_FEATURES if it is set."""
    if config.CPU_FEATURES is not None:  # type: ignore[attr-defined]
        names = str(config.CPU_FEATURES).split(",")  # type: ignore[attr-defined]
        return frozenset(name[1:] for name in names if name.startswith("+"))
    return frozenset(name for name, has in llvm.get_host_cpu_features().items() if has)


NAME = str(config.CPU_NAME or llvm.get_host_cpu_name())  # type: ignore[attr-defined]
FEATURES = _features()


def state() -> str:
    """Return a hash of everything that machine code depends on, 16 digits.

    All source files count, because a kernel contains inlined functions of other files; Numba checks only its own file.
    """
    switches = (config.ENABLE_AVX, config.OPT, config.BOUNDSCHECK, sys.flags.optimize)  # type: ignore[attr-defined]
    versions = (numba.__version__, llvmlite.__version__, sys.version)
    digest = hashlib.sha256(repr((NAME, sorted(FEATURES), switches, versions)).encode())
    folders = (sorted((PROJECT / folder).glob("*.py")) for folder in SOURCES)
    for path in chain(*folders, (PROJECT / file for file in ALONE)):
        digest.update(f"{path.relative_to(PROJECT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def root_of(environment: Mapping[str, str]) -> Path:
    """Return the folder of all states: NUMBA_CACHE_DIR, else in the user's cache, else in the temporary folder.

    If other users could write to each of them, return a new folder that is deleted when this process ends.
    """
    if named := environment.get("NUMBA_CACHE_DIR"):
        return Path(named).absolute()
    homes = (environment.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache"))
    roots = [Path(home) / "stride" / "kernels" for home in homes if os.path.isabs(home)]
    with suppress(FileNotFoundError):  # no folder is writable: compiling will report it
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
    """Make the folder if it is missing; say whether only this user can write to it, and nobody else can replace it."""
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
    """Say whether other users may rename the files in a folder; in /tmp the sticky bit forbids it."""
    if of_another(folder, UNKNOWN):
        return True
    return bool(others_may_write(folder)) and not folder.st_mode & stat.S_ISVTX


ROOT = root_of(os.environ)
FOLDER = ROOT / state()


def prune(root: Path, used: Path, now: float) -> None:
    """Delete the folders of old states, but not `used` and none that was used within a day. `now`: Unix time."""
    ages = []
    for path in root.iterdir():
        if GONE.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)  # a process was killed while it deleted this one
        elif STATE.fullmatch(path.name) and path != used:
            ages.append((now - path.stat().st_mtime, path))
    for rank, (age, path) in enumerate(sorted(ages), 1):
        if age > DAY and (rank >= KEPT_STATES or age > MAX_UNUSED_DAYS * DAY):
            _remove(path)


def _remove(folder: Path) -> None:
    """Delete the folder, unless a process is compiling into it."""
    with open(folder / LOCK, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        gone = folder.with_name(f"{folder.name}.gone{os.getpid()}")  # renamed first, so that nobody finds half a state
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
