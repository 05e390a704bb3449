"""One process trains a run at a time: a file in its folder says which, and a dead owner's claim is taken over.

A process is known by its number, the moment it started and the boot it belongs to, so that a number that was given
out again, or a reboot, is not mistaken for the owner. Where there is no /proc the number alone has to do.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from utils import run_files
from utils.user_error import UserError

NAME, MOST = ".lock", 4096
BOOT = Path("/proc/sys/kernel/random/boot_id")


class RunInTrainingError(UserError):
    """Another process is training this run."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Owns the run in `folder` for the length of the block; UserError where it is being trained or not writable.

    Only against those that ask, on this machine: who reads a run is not kept out, and a lock that a process of another
    machine holds, on a disk they share, looks like a dead one's.
    """
    path = folder / NAME
    try:
        _claim(path, folder.name)
    except OSError as error:
        raise UserError(f"cannot write in {folder}: {error.strerror}") from error
    try:
        yield
    finally:
        run_files.remove(path)


def owner(folder: Path) -> dict[str, Any] | None:
    """The living process that trains the run, None where there is none."""
    try:
        return _living(run_files.read_bytes(folder / NAME))
    except UserError:
        return None


def _claim(path: Path, run_id: str) -> None:
    """Write our name into the lock, unless a living process stands there; who reads and writes holds it meanwhile."""
    while True:
        with run_files.open_to_write(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _same(file.fileno(), path):  # its owner has just let go of it
                continue
            other = _living(file.read(MOST))
            if other is not None:
                raise RunInTrainingError(f"{run_id} is being trained by process {other['pid']}; stop that one first")
            file.seek(0)
            file.truncate(0)
            file.write(json.dumps(identity(os.getpid())).encode())
            os.fsync(file.fileno())
            return


def _same(descriptor: int, path: Path) -> bool:
    there = run_files.status(path)
    return there is not None and os.path.samestat(os.fstat(descriptor), there)


def _living(text: bytes) -> dict[str, Any] | None:
    """Who is named in a lock, if that very process still lives; a torn or empty lock belongs to nobody."""
    try:
        claim = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(claim, dict) or type(claim.get("pid")) is not int or claim["pid"] <= 0:
        return None
    return claim if claim == identity(claim["pid"]) else None


def identity(pid: int) -> dict[str, Any]:
    """What tells this process from every other one; {} where there is none of this number."""
    boot = BOOT.read_text().strip() if BOOT.exists() else ""
    try:
        # behind the name in brackets, which may hold anything: state is field 3, the start in clock ticks field 22
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return {} if boot else _without_proc(pid)
    except OSError:
        return {}
    return {} if fields[0] in "ZX" else {"pid": pid, "boot": boot, "started": int(fields[19])}


def stopped(pid: int) -> bool:
    """Whether a process was halted, by Ctrl-Z, SIGSTOP or a debugger, and waits to be let go on."""
    return _standing(pid)[:1] in (["T"], ["t"])


def started_by(pid: int, parent: int) -> bool:
    """Whether it is this process, or one that it started."""
    return pid == parent or _standing(pid)[1:2] == [str(parent)]


def _standing(pid: int) -> list[str]:
    """What the system tells of a process behind its name: state, parent, ..; [] where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _without_proc(pid: int) -> dict[str, Any]:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return {}
    except PermissionError:
        pass
    return {"pid": pid, "boot": "", "started": 0}
