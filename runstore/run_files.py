"""Open, read, write and delete files of a run. All other code uses this module for them, because a run may be hostile.

A run folder may come from anybody, so its files are not trusted. The name of each file must have the exact form of one
that this program writes (run_names). Each folder below the run's own is opened without following links. Only regular
files up to a size limit are opened. The links `best` and `last` in checkpoints/ are read, not followed: their target
must have the form of a checkpoint's name, and is opened beside them. Anything else raises a UserError of one line that
names the file, before a byte is read or written. No torch.
"""

import io
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from stride.runstore.run_names import CHECKPOINT, FOLDERS, FORMS, LINK, below, locate, shown
from stride.utils.durable_file import OUT_OF_HANDLES, TEMPORARY, replacing_in, temporary
from stride.utils.user_error import UserError

# flags of os.open that refuse links; O_NONBLOCK: opening a FIFO does not wait for its other end
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
KIND_NAMES = {
    stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFREG: "a file", stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket",
}  # fmt: skip


@contextmanager
def _opened(path: Path, root: Path, folders: tuple[str, ...]) -> Iterator[int]:
    """Yield a descriptor of root/folders[0]/folders[1]/...; FileNotFoundError if one of them is missing."""
    folder_path = root
    with ExitStack() as opened:
        try:
            descriptor = os.open(root, FOLDER_FLAGS)
            opened.callback(os.close, descriptor)
            # open each folder inside the one before, not by its path: nobody can exchange it for a link meanwhile
            for name in folders:
                folder_path /= name
                descriptor = os.open(name, FOLDER_FLAGS, dir_fd=descriptor)
                opened.callback(os.close, descriptor)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in OUT_OF_HANDLES:
                raise
            if folder_path.is_symlink() or not folder_path.is_dir():
                raise _refused(folder_path, os.lstat(folder_path).st_mode, "a folder") from error
            raise UserError(f"cannot read {shown(path)}: {error.strerror}") from error
        yield descriptor


@contextmanager
def _parent(path: Path) -> Iterator[int]:
    """Yield a descriptor of the folder that contains a file of a run."""
    location = locate(path)
    with _opened(path, location.root, location.folders) as descriptor:
        yield descriptor


def _refused(path: Path, mode: int, expected: str = "a file") -> UserError:
    kind = KIND_NAMES.get(stat.S_IFMT(mode), "of unknown kind")
    return UserError(f"{shown(path)} is {kind}, not {expected} of the run; it was not read or written")


def _status_at(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _resolved(folder: int, path: Path) -> tuple[str, os.stat_result | None]:
    """Return the name to open and its status (None: missing): the target of `best` or `last`, else the name itself.

    Raises UserError unless it is a regular file.
    """
    name = path.name
    file_status = _status_at(folder, name)
    if file_status and LINK.fullmatch(name) and stat.S_ISLNK(file_status.st_mode):
        name = _target(folder, path)
        file_status = _status_at(folder, name)
    if file_status and not stat.S_ISREG(file_status.st_mode):
        raise _refused(path.with_name(name), file_status.st_mode)
    return name, file_status


def _target(folder: int, path: Path) -> str:
    link_target = os.readlink(path.name, dir_fd=folder)
    target_stem, dot, suffix = link_target.rpartition(".")
    if not CHECKPOINT.fullmatch(target_stem) or dot + suffix != path.suffix:
        raise UserError(f"{shown(path)} points to {link_target[:80]!r}, which is not a checkpoint of this run")
    return link_target


def read_link(path: Path) -> str:
    """Return the name of the file that the link `best` or `last` points to; "" if there is no link."""
    try:
        with _parent(path) as folder:
            link_status = _status_at(folder, path.name)
            if link_status and not stat.S_ISLNK(link_status.st_mode):
                raise UserError(f"{shown(path)} is not a link to a checkpoint")
            return _target(folder, path) if link_status else ""
    except FileNotFoundError:
        return ""


def status(path: Path) -> os.stat_result | None:
    """Return size and times of a file of a run, None if it is missing; UserError if something else has its name."""
    try:
        with _parent(path) as folder:
            return _resolved(folder, path)[1]
    except FileNotFoundError:
        return None


def exists(path: Path) -> bool:
    return status(path) is not None


def open_file(path: Path, most: int | None = None) -> io.BufferedReader:
    """Open a file of a run for reading; the caller closes it. `most`: limit in bytes, if below that of its form.

    Raises UserError if the file is missing, unreadable, a link, not a regular file or too large; OSError if this
    process has no descriptors or memory left. The contents are not checked. If the file is replaced meanwhile, the old
    bytes stay readable; if it grows, a reader may get more than `most` bytes.
    """
    limit = locate(path).most
    try:
        file = os.fdopen(_open(path, os.O_RDONLY), "rb")
    except FileNotFoundError as error:
        raise UserError(f"{shown(path)} does not exist") from error
    except OSError as error:
        if error.errno in OUT_OF_HANDLES:
            raise
        raise UserError(f"cannot read {shown(path)}: {error.strerror}") from error
    if most is not None:
        limit = min(limit, most)
    file_size = os.fstat(file.fileno()).st_size
    if file_size > limit:
        file.close()
        raise UserError(f"{shown(path)} has {file_size:,} bytes, more than the limit of {limit:,} for this file")
    return file


def open_to_write(path: Path, append: bool = False) -> BinaryIO:
    """Open a file of a run, unbuffered, to read and write in place; create it if it is missing.

    For files that grow (metrics.csv, run.log) or are locked. A crash may leave half a line, unlike with `replacing`.
    """
    flags = os.O_RDWR | os.O_CREAT | (os.O_APPEND if append else 0)
    descriptor = _open(path, flags)
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise UserError(f"{shown(path)} is a hard link to a file elsewhere, so it was not written; copy the run")
    return os.fdopen(descriptor, "ab+" if append else "rb+", buffering=0)


def _open(path: Path, flags: int) -> int:
    with _parent(path) as folder:
        name, _ = _resolved(folder, path)
        descriptor = os.open(name, flags | FILE_FLAGS, 0o666, dir_fd=folder)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise _refused(path, mode)
    return descriptor


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """Return all bytes that the file had when it was opened; errors as in `open_file`."""
    with open_file(path, most) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def read_json(path: Path, most: int | None = None) -> Any:
    """Return the JSON value in the file; UserError, one line, if it is missing, damaged or not a file."""
    try:
        return json.loads(read_bytes(path, most).decode("utf-8"))
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        raise UserError(f"{shown(path)} is not valid JSON: {' '.join(str(error).split())[:100]}") from error


@contextmanager
def replacing(path: Path, sync_name: bool = True) -> Iterator[BinaryIO]:
    """Yield a file whose bytes replace the file at `path` when the block ends; readers see all old or all new bytes.

    If the block or the disk fails, nothing changes (OSError if the disk is full). After a normal end the bytes survive
    a power cut, and so does the name unless `sync_name` is False. Like durable_file.replacing, for a file of a run.
    """
    with _parent(path) as folder:
        old_status = _status_at(folder, path.name)
        if old_status and not stat.S_ISREG(old_status.st_mode):
            raise _refused(path, old_status.st_mode)
        with replacing_in(folder, path.name, sync_name) as file:
            yield file


def write_text(path: Path, text: str) -> None:
    """Replace the file by this text in one step."""
    with replacing(path) as file:
        file.write(text.encode())


def write_json(path: Path, data: object, sync_name: bool = True) -> None:
    """Replace the file by this JSON value in one step, as `replacing` does; TypeError if `data` is not plain data."""
    with replacing(path, sync_name) as file:
        file.write((json.dumps(data, indent=2) + "\n").encode())


def put(path: Path, text: str) -> bool:
    """Create a complete file in one step and return True; return False, and change nothing, if the name is taken."""
    temporary_name = temporary(path).name
    with _parent(path) as folder:
        descriptor = os.open(temporary_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary_name, path.name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            os.fsync(folder)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary_name, dir_fd=folder)
    return True


def copy(source: Path, target: Path) -> None:
    """Copy a file of one run to another run, completely or not at all."""
    with open_file(source) as source_file, replacing(target) as target_file:
        shutil.copyfileobj(source_file, target_file, 1 << 20)


def point(link: Path, name: str) -> None:
    """Make the link `best` or `last` point to a file beside it, in one step. The caller syncs the folder."""
    temporary_name = temporary(link).name
    with _parent(link) as folder:
        os.symlink(name, temporary_name, dir_fd=folder)
        try:
            os.replace(temporary_name, link.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(temporary_name, dir_fd=folder)
            raise


def rename(path: Path, name: str) -> None:
    """Rename a file of a run within its folder, replacing a file of that name; FileNotFoundError if it is missing."""
    new_path = check(path.with_name(name))
    with _parent(path) as folder:
        _resolved(folder, path)
        os.replace(path.name, new_path.name, src_dir_fd=folder, dst_dir_fd=folder)


def touch(path: Path) -> None:
    """Set a file's time to now, by the clock of the machine that stores it; FileNotFoundError if it is missing."""
    descriptor = _open(path, os.O_RDONLY)
    try:
        os.utime(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Delete a file of a run if it exists; of a link, the link itself."""
    with suppress(FileNotFoundError), _parent(path) as folder:
        os.unlink(path.name, dir_fd=folder)


def list_names(folder: Path) -> list[str]:
    """Return the sorted names in a run's folder or one of its FOLDERS; [] if that folder is missing."""
    try:
        with _opened(folder, *below(folder)) as descriptor:
            return sorted(os.listdir(descriptor))
    except FileNotFoundError:
        return []


def make_folder(folder: Path) -> None:
    """Create a run's folder or one of FOLDERS in it, and the folders above it, if they are missing."""
    root, subfolders = below(folder)
    root.mkdir(parents=True, exist_ok=True)
    for depth, name in enumerate(subfolders):
        with _opened(folder, root, subfolders[:depth]) as parent, suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder of a run survive a power cut (durable_file.sync_folder)."""
    with _opened(folder, *below(folder)) as descriptor:
        os.fsync(descriptor)


def sync(path: Path) -> None:
    """Make a file of a run survive a power cut; do nothing if it is missing."""
    if exists(path):
        with open_file(path) as file:
            os.fsync(file.fileno())


def sweep(folder: Path) -> int:
    """Delete half-written files of other processes in a folder of a run; return how many. The caller holds its lock."""
    removed_count = 0
    for name in list_names(folder):
        name_match = TEMPORARY.fullmatch(name)
        if name_match and int(name_match[1]) != os.getpid():
            with _opened(folder, *below(folder)) as descriptor, suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(name, dir_fd=descriptor)
                removed_count += 1
    return removed_count


def check(path: Path) -> Path:
    """Return the path if it is a regular file or missing, else raise UserError. For libraries that open files."""
    status(path)
    return path


def check_folder(run: Path) -> None:
    """Raise UserError if a name in a run's folder that this program would write to is not a regular file."""
    for folder in ("", *FOLDERS):
        for name in list_names(run / folder):
            if any(file_form.name.fullmatch(name) and "/".join(file_form.folders) == folder for file_form in FORMS):
                status(run / folder / name)
