"""One process trains a run at a time: a file in its folder says which, and a dead owner's claim is taken over.

A process is known by its number, the moment it started and the boot it belongs to, so that a number that was given
out again, or a reboot, is not mistaken for the owner. Where there is no /proc the number alone has to do.

Of a process elsewhere, on another machine or in another container, nothing can be seen but the file's age: its owner
renews it every RENEWAL seconds, and it is dead once it has not for LEASE seconds. Whoever was taken for dead and is
not, because it was halted or cut off, finds so before it commits anything (`check`).

A lock from the future, where a clock went back, is watched for one lease: nobody's if it was not renewed by then.
"""

import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from stride.runstore import run_files
from stride.utils.user_error import UserError

NAME, CLOCK, MAX_LOCK_BYTES = ".lock", ".clock", 4096
BOOT_ID_FILE, PID_NAMESPACE = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
LEASE, RENEWAL = 120.0, 10.0  # seconds; the first is STRIDE_LEASE's, the same on all machines that share a folder
MISSING_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # no lock is there
MIN_RENEWALS = 4  # at least so many in a lease, however short
LOST_EXIT_CODE = 75  # exit code, EX_TEMPFAIL: another process owns the run now; begun again it goes on from there

_held: dict[Path, "_HeldLock"] = {}  # by folder, the locks of this process
_future_locks: dict[Path, tuple[float, float]] = {}  # by lock from the future, its time and since when it was seen


class RunInTrainingError(UserError):
    """Another process is training this run."""


class LockLostError(RuntimeError):
    """Another process took this one for dead and trains the run now; exit code LOST, and nothing more is written."""

    exit_code = LOST_EXIT_CODE


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Owns the run in `folder` for the length of the block; UserError where it is being trained or not writable.

    Only against those that ask: who reads a run is not kept out.
    """
    path, period = folder / NAME, min(RENEWAL, lease() / MIN_RENEWALS)
    try:
        claim = _claim(path, folder.name)
    except OSError as error:
        raise UserError(f"cannot write in {folder}: {error.strerror}") from error
    held_lock = _held[folder] = _HeldLock(path, claim, period)
    try:
        yield
    finally:
        held_lock.release()
        if _held.get(folder) is held_lock:
            del _held[folder]


def check(folder: Path) -> None:
    """LockLostError if the run was locked by this process and is another's now; OSError where that cannot be read."""
    if (held_lock := _held.get(folder)) and not held_lock.is_ours():
        raise LockLostError(
            f"{folder.name} now belongs to another process: this process did not renew its lock for {lease():g} s, "
            "so it stops writing"
        )


def check_now_and_then(folder: Path) -> None:
    """Like `check`, but the file is read at most once in a while: for callers that ask thousands of times a second."""
    if (held_lock := _held.get(folder)) and held_lock.is_doubtful():
        check(folder)


def owner(folder: Path) -> dict[str, Any] | None:
    """The living process that trains the run, None where there is none; of one elsewhere by the clock of this machine,
    as a reader writes nothing into a run."""
    path = folder / NAME
    try:
        return _living_owner(run_files.read_bytes(path), lambda: _age_by_own_clock(path))
    except UserError:
        return None


def is_here(claim: dict[str, Any]) -> bool:
    """Whether a lock's owner is a process of this machine and container, which can be looked at by its number."""
    machine = _location()
    field_name = "space" if machine["boot"] else "host"
    return claim.get("boot") == machine["boot"] and claim.get(field_name, machine[field_name]) == machine[field_name]


def lease() -> float:
    """Seconds after which the lock of a process elsewhere is nobody's."""
    text = os.environ.get("STRIDE_LEASE", "")
    try:
        seconds = float(text) if text else LEASE
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UserError(f"STRIDE_LEASE must be a number of seconds above 0, for example {LEASE:g}, not {text!r}")
    return seconds


class _HeldLock:
    """A lock of this process, which a thread renews until it is let go."""

    def __init__(self, path: Path, claim: dict[str, Any], period: float) -> None:
        self.path, self.claim, self.period = path, claim, period
        self._confirmed, self._released = _now(), threading.Event()
        threading.Thread(target=self._renew, name="renews the lock", daemon=True).start()

    def is_ours(self) -> bool:
        """Whether the lock holds our claim; not where it is missing. OSError where that cannot be read."""
        try:
            if json.loads(run_files.read_bytes(self.path)) != self.claim:
                return False
        except UserError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno not in MISSING_ERRNOS:
                raise OSError(cause.errno, f"the disk cannot be read: {cause.strerror}", str(self.path)) from error
            return False
        except (ValueError, RecursionError):
            return False
        self._confirmed = _now()
        return True

    def is_doubtful(self) -> bool:
        """Whether the renewing thread was not heard for twice its time: the process was halted, or the disk away."""
        return _now() - self._confirmed > 2 * self.period

    def release(self) -> None:
        self._released.set()
        with suppress(OSError, UserError):  # what stays is nobody's once this process has ended
            if self.is_ours():
                run_files.remove(self.path)

    def _renew(self) -> None:
        while not self._released.wait(self.period):
            with suppress(OSError, UserError):  # a disk that is away for a moment
                if self.is_ours():
                    run_files.touch(self.path)


def _now() -> float:
    """Seconds that go on while a machine sleeps, where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _claim(path: Path, run_id: str) -> dict[str, Any]:
    """Write our name into the lock, unless a living process stands there; who reads and writes holds it meanwhile."""
    while True:
        with run_files.open_to_write(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_same_file(file.fileno(), path):  # its owner has just let go of it
                continue
            if living_claim := _living_owner(
                file.read(MAX_LOCK_BYTES), partial(_age_by_folder_clock, path.with_name(CLOCK), file)
            ):
                raise RunInTrainingError(f"{run_id} is being trained by {_owner_text(living_claim)}")
            own_claim = identity(os.getpid()) | _location()
            file.seek(0)
            file.truncate(0)
            file.write(json.dumps(own_claim).encode())
            os.fsync(file.fileno())
            return own_claim


def _owner_text(claim: dict[str, Any]) -> str:
    process = f"process {claim['pid']}"
    if is_here(claim):
        return f"{process}; stop that one first"
    machine = claim.get("host", "another machine")
    return f"{process} on {machine}; stop that one first, or wait {lease():g} s if it is gone"


def _age_by_folder_clock(clock: Path, lock: BinaryIO) -> float:
    """Seconds since a lock was renewed by the clock of whoever keeps the folder, who gives the times to files: those of
    machines may disagree.

    A lock from the future gets the time of now, so that its lease ends like any other unless its owner renews it.
    """
    with run_files.open_to_write(clock) as file:
        file.write(b".")
        os.fsync(file.fileno())
        current_time = os.fstat(file.fileno()).st_mtime
    run_files.remove(clock)
    seconds_ago = current_time - os.fstat(lock.fileno()).st_mtime
    if seconds_ago < 0:
        os.utime(lock.fileno())
    return seconds_ago


def _age_by_own_clock(path: Path) -> float:
    """Seconds since a lock was renewed by the clock of this machine; of one from the future since it was seen first."""
    lock_status = run_files.status(path)
    renewed = lock_status.st_mtime if lock_status else 0.0
    if (seconds_ago := time.time() - renewed) >= 0:
        return seconds_ago
    if path not in _future_locks or _future_locks[path][0] != renewed:
        _future_locks[path] = renewed, _now()
    return _now() - _future_locks[path][1]


def _location() -> dict[str, str]:
    """Where this process runs: boot, container and the machine's name."""
    try:
        namespace = os.readlink(PID_NAMESPACE)
    except OSError:
        namespace = ""
    return {"boot": _boot(), "space": namespace, "host": socket.gethostname()}


def _boot() -> str:
    return BOOT_ID_FILE.read_text().strip() if BOOT_ID_FILE.exists() else ""


def _is_same_file(descriptor: int, path: Path) -> bool:
    path_status = run_files.status(path)
    return path_status is not None and os.path.samestat(os.fstat(descriptor), path_status)


def _living_owner(text: bytes, seconds_ago: Callable[[], float]) -> dict[str, Any] | None:
    """The process that a lock names, if that very process still lives; a torn or empty lock names none.

    `age`: seconds since it was renewed, which is asked only of one elsewhere.
    """
    try:
        claim = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(claim, dict) or type(claim.get("pid")) is not int or claim["pid"] <= 0:
        return None
    if not is_here(claim):
        return claim if seconds_ago() < lease() else None
    process = identity(claim["pid"])
    return claim if process and process == {key: claim.get(key) for key in process} else None


def identity(pid: int) -> dict[str, Any]:
    """Values that identify this process among all; {} where no process has this number."""
    boot = _boot()
    process_fields = _process_fields(pid)
    if process_fields:
        is_alive, started = process_fields[0] not in "ZX", int(process_fields[19])
    else:
        is_alive, started = not boot and _pid_exists(pid), 0
    return {"pid": pid, "boot": boot, "started": started} if is_alive else {}


def stopped(pid: int) -> bool:
    """Whether a process was halted, by Ctrl-Z, SIGSTOP or a debugger, and waits to be let go on."""
    return _process_fields(pid)[:1] in (["T"], ["t"])


def started_by(pid: int, parent: int) -> bool:
    """Whether it is this process, or one that it started."""
    return pid == parent or _process_fields(pid)[1:2] == [str(parent)]


def _process_fields(pid: int) -> list[str]:
    """Fields of /proc/PID/stat behind the process's name: state, parent, ..; [] where it is gone.

    The name is in brackets and may hold anything; the state is the file's field 3, the start in clock ticks field 22.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _pid_exists(pid: int) -> bool:
    """Whether a process has this number, for systems without /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
