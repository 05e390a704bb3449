"""The lock that lets one process at a time train a run: the file .lock in its folder names the owner.

A dead owner's lock is taken over. The owner is identified by its process id, its start time and the boot, so that a
reused process id or a reboot is not mistaken for it. Without /proc only the process id is compared.

Of a process on another machine or in another container, only the file's age can be seen: the owner renews the file
every RENEWAL seconds, and counts as dead after LEASE seconds without renewal. An owner that was only suspended or cut
off notices that it lost the lock before it writes anything (`check`).

If a lock's time is in the future, because a clock was set back, it is watched for one lease, then free.
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
LEASE, RENEWAL = 120.0, 10.0  # seconds; STRIDE_LEASE changes the first, on all machines that share a folder
MISSING_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # errors of reading that mean: there is no lock file
MIN_RENEWALS = 4  # renewals within a lease, even if the lease is short
LOST_EXIT_CODE = 75  # EX_TEMPFAIL: another process owns the run now; the same command continues it later

_held: dict[Path, "_HeldLock"] = {}  # run folder -> the lock that this process holds
_future_locks: dict[Path, tuple[float, float]] = {}  # lock with a future time -> (its time, when it was first seen)


class RunInTrainingError(UserError):
    """Another process is training this run."""


class LockLostError(RuntimeError):
    """Another process took over this run, because this one seemed dead. This process must not write any more."""

    exit_code = LOST_EXIT_CODE


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of the run in `folder` inside the block; UserError if it is being trained or cannot be written to.

    Only processes that ask for the lock are kept out; anybody may read the run.
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
    """Raise LockLostError if this process locked the run but another owns it now; OSError if that cannot be read."""
    if (held_lock := _held.get(folder)) and not held_lock.is_ours():
        raise LockLostError(
            f"{folder.name} now belongs to another process: this process did not renew its lock for {lease():g} s, "
            "so it stops writing"
        )


def check_now_and_then(folder: Path) -> None:
    """Call `check`, but only if the last confirmation is old. Cheap enough for thousands of calls a second."""
    if (held_lock := _held.get(folder)) and held_lock.is_doubtful():
        check(folder)


def owner(folder: Path) -> dict[str, Any] | None:
    """Return the lock's contents ({"pid": 123, "boot": ..}) if a living process trains the run, else None.

    The age of a lock from another machine is measured by this machine's clock: a reader writes nothing into a run.
    """
    path = folder / NAME
    try:
        return _living_owner(run_files.read_bytes(path), lambda: _age_by_own_clock(path))
    except UserError:
        return None


def is_here(claim: dict[str, Any]) -> bool:
    """Whether the lock's owner runs on this machine and in this container, where its process can be looked up."""
    machine = _location()
    field_name = "space" if machine["boot"] else "host"
    return claim.get("boot") == machine["boot"] and claim.get(field_name, machine[field_name]) == machine[field_name]


def lease() -> float:
    """Return the seconds without renewal after which a lock from another machine is free."""
    text = os.environ.get("STRIDE_LEASE", "")
    try:
        seconds = float(text) if text else LEASE
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UserError(f"STRIDE_LEASE must be a number of seconds above 0, for example {LEASE:g}, not {text!r}")
    return seconds


class _HeldLock:
    """A lock that this process holds; a thread renews it every `period` seconds until `release`."""

    def __init__(self, path: Path, claim: dict[str, Any], period: float) -> None:
        self.path, self.claim, self.period = path, claim, period
        self._confirmed, self._released = _now(), threading.Event()
        threading.Thread(target=self._renew, name="renews the lock", daemon=True).start()

    def is_ours(self) -> bool:
        """Whether the lock file still contains our claim; False if it is missing. OSError if it cannot be read."""
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
        """Whether the last confirmation is older than two periods: the process was suspended, or the disk was away."""
        return _now() - self._confirmed > 2 * self.period

    def release(self) -> None:
        self._released.set()
        with suppress(OSError, UserError):  # a lock that stays is free once this process has ended
            if self.is_ours():
                run_files.remove(self.path)

    def _renew(self) -> None:
        while not self._released.wait(self.period):
            with suppress(OSError, UserError):  # the disk may be away for a moment
                if self.is_ours():
                    run_files.touch(self.path)


def _now() -> float:
    """Return seconds of a clock that also counts while the machine sleeps, if the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _claim(path: Path, run_id: str) -> dict[str, Any]:
    """Write this process into the lock file, return what was written; RunInTrainingError if a living process owns it.

    flock keeps other processes out between reading and writing.
    """
    while True:
        with run_files.open_to_write(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_same_file(file.fileno(), path):  # its owner deleted it just now
                continue
            age = partial(_age_by_folder_clock, path.with_name(CLOCK), file)
            if living_claim := _living_owner(file.read(MAX_LOCK_BYTES), age):
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
    """Return seconds since the lock was renewed, by the clock of the machine that stores the folder.

    Clocks of machines may disagree, so the current time is that of a file written now (`clock`) in the same folder. A
    lock with a future time gets the current time: then its lease ends like any other unless its owner renews it.
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
    """Return seconds since the lock was renewed, by this machine's clock; for a future time, since first seen."""
    lock_status = run_files.status(path)
    renewed = lock_status.st_mtime if lock_status else 0.0
    if (seconds_ago := time.time() - renewed) >= 0:
        return seconds_ago
    if path not in _future_locks or _future_locks[path][0] != renewed:
        _future_locks[path] = renewed, _now()
    return _now() - _future_locks[path][1]


def _location() -> dict[str, str]:
    """Return where this process runs: boot, container ("space") and the machine's name."""
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
    """Return the process that a lock's bytes name if that same process still lives, else None; also for a damaged lock.

    `seconds_ago` returns the lock's age; it is called only for a process on another machine.
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
    """Return what identifies a process: pid, boot and start in clock ticks; {} if no process has this id."""
    boot = _boot()
    process_fields = _process_fields(pid)
    if process_fields:
        is_alive, started = process_fields[0] not in "ZX", int(process_fields[19])
    else:
        is_alive, started = not boot and _pid_exists(pid), 0
    return {"pid": pid, "boot": boot, "started": started} if is_alive else {}


def stopped(pid: int) -> bool:
    """Whether the process is suspended by Ctrl-Z, SIGSTOP or a debugger."""
    return _process_fields(pid)[:1] in (["T"], ["t"])


def started_by(pid: int, parent: int) -> bool:
    """Whether `pid` is the process `parent` or a child of it."""
    return pid == parent or _process_fields(pid)[1:2] == [str(parent)]


def _process_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the process's name: [state, parent, ..]; [] if there is none.

    The name is in brackets and may contain anything. In the file, the state is field 3, the start in clock ticks 22.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _pid_exists(pid: int) -> bool:
    """Whether a process has this id, for systems without /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
