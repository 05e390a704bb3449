"""Writes files so that they are complete or not there at all, and deletes what dead processes left behind. No torch.

A file is written in its folder under a temporary name with the process id, synced to disk and renamed; then the folder
is synced. So a reader, or a crash or a power cut, finds the old file or the new one, never half of one.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from stride.utils.user_error import UserError

OUT_OF_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO)  # nothing can be written
OUT_OF_HANDLES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # too few descriptors or memory; the file may be fine
TEMPORARY = re.compile(r"\..+\.(\d+)-[0-9a-f]{8}\.tmp")


def temporary(path: Path) -> Path:
    """Return the path to write to before it is renamed to `path`: hidden, in the same folder, a unique name."""
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


@contextmanager
def replacing(path: Path, sync_name: bool = True) -> Iterator[BinaryIO]:
    """Open a file to write; it replaces `path` when the block ends, and is deleted if the block raises an error.

    With `sync_name=False` the caller syncs the folder later, once for several files.
    """
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with replacing_in(folder, path.name, sync_name) as file:
            yield file
    finally:
        os.close(folder)


@contextmanager
def replacing_in(folder: int, name: str, sync_name: bool = True) -> Iterator[BinaryIO]:
    """Do what `replacing` does, in a folder given by its open descriptor."""
    temporary_name = temporary(Path(name)).name
    try:
        descriptor = os.open(temporary_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary_name, name, src_dir_fd=folder, dst_dir_fd=folder)
        if sync_name:
            os.fsync(folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary_name, dir_fd=folder)


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that its new and renamed files survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, data: object, sync_name: bool = True) -> None:
    """Replace the file in one instant."""
    text = json.dumps(data, indent=2) + "\n"
    with replacing(path, sync_name) as file:
        file.write(text.encode())


def read_json(path: Path) -> Any:
    """Return the data of a JSON file; UserError, one clear line, if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON: {error}") from error


def relink(link: Path, target: Path) -> None:
    """Make `link` a relative link to `target`, in one step, so that it always points to the old target or the new one.

    It is relative, so that the folder around both may be moved. The caller syncs the folder, once for all links.
    """
    new_link = temporary(link)
    new_link.symlink_to(os.path.relpath(target.absolute(), link.parent.absolute()))
    try:
        os.replace(new_link, link)
    except OSError:
        new_link.unlink()
        raise


def sweep(folder: Path) -> int:
    """Delete the temporary files of processes that no longer exist; return how many."""
    removed = 0
    for path in folder.iterdir():
        match = TEMPORARY.fullmatch(path.name)
        if not match or int(match[1]) == os.getpid() or not _gone(int(match[1])):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        removed += 1
    return removed


def check_room(folder: Path, needed: int) -> None:
    """Raise UserError unless the folder (or the nearest existing one above it) is writable and has `needed` bytes."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    probe = existing / f".probe.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        probe.write_bytes(b"\0" * 4096)
        probe.unlink(missing_ok=True)  # another process that resumes the run may have swept it
        free = shutil.disk_usage(existing).free
    except OSError as error:
        probe.unlink(missing_ok=True)
        raise UserError(f"cannot write in {existing}: {error.strerror}; set STRIDE_RUNS to another folder") from error
    if free < needed:
        raise UserError(
            f"{existing} has {free / 2**20:,.0f} MiB free, this run needs {needed / 2**20:,.0f} for two checkpoints; "
            "free some space, or set STRIDE_RUNS to another folder"
        )


def _gone(pid: int) -> bool:
    """Say whether no process has this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False
