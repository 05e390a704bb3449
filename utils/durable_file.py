"""Files that are complete or not there at all, and how to delete what processes that died left behind. No torch.

A file is written in its folder under a name that says who writes it, synced, renamed, and its folder synced: a
reader, a crash or a power cut sees the old file or the new one.
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

OUT_OF_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO)
OUT_OF_HANDLES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # this process is short of them; the file may be sound
TEMPORARY = re.compile(r"\..+\.(\d+)-[0-9a-f]{8}\.tmp")


def temporary(path: Path) -> Path:
    """Where this process writes what will be `path`: hidden, beside it, of a name nobody else takes."""
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


@contextmanager
def replacing(path: Path, sync_name: bool = True) -> Iterator[BinaryIO]:
    """A file to write; it takes the place of `path` when the block ends well, and leaves nothing where it does not.

    Without `sync_name` the caller syncs the folder, once for all that it puts there.
    """
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with replacing_in(folder, path.name, sync_name) as file:
            yield file
    finally:
        os.close(folder)


@contextmanager
def replacing_in(folder: int, name: str, sync_name: bool = True) -> Iterator[BinaryIO]:
    """As `replacing`, in a folder that is open already."""
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
    """Names in the folder survive a power cut from here on."""
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
    """The file's data, or one clear line when it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON: {error}") from error


def relink(link: Path, target: Path) -> None:
    """Point `link` at `target` in one instant, relatively, so that moving the common folder breaks nothing.

    The folder is synced by the caller, once for all links.
    """
    new_link = temporary(link)
    new_link.symlink_to(os.path.relpath(target.absolute(), link.parent.absolute()))
    try:
        os.replace(new_link, link)
    except OSError:
        new_link.unlink()
        raise


def sweep(folder: Path) -> int:
    """Delete what was being written in the folder by processes that are gone."""
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
    """UserError unless the folder (or the nearest above that exists) can be written to and has `needed` bytes."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    probe = existing / f".probe.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        probe.write_bytes(b"\0" * 4096)
        probe.unlink(missing_ok=True)  # whoever resumes the run may have swept it
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
    """Whether no process of this number is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False
