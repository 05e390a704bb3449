"""The one door to the files of a run: known names only, no link followed, nothing but regular files. No torch.

A run folder may come from anybody, so what lies in it is not believed to be what it is called. The last parts of a path
must have the exact form of a file that this program writes; every folder from the run's own down is opened without
following links; what is opened is a regular file of at most so many bytes. The links `best` and `last` of checkpoints/
are read, not followed: what they name must have the form of a checkpoint's name, and is opened beside them.
Whatever is otherwise is a UserError of one line that names the file, before anything was read or written.
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

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
KIND_NAMES = {
    stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFREG: "a file", stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket",
}  # fmt: skip


@contextmanager
def _opened(path: Path, root: Path, folders: tuple[str, ...]) -> Iterator[int]:
    """A descriptor of the folder; FileNotFoundError where it is missing."""
    folder_path = root
    with ExitStack() as opened:
        try:
            descriptor = os.open(root, FOLDER_FLAGS)
            opened.callback(os.close, descriptor)
            # each folder is opened inside the one before, never by its path: a link put there meanwhile leads nowhere
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
    """A descriptor of the folder that a run's file is in."""
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
    """The name behind `best` and `last`, any other name as it is, and its status; refused unless regular."""
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
    """The name of the file that the link `best` or `last` means; "" where there is none."""
    try:
        with _parent(path) as folder:
            link_status = _status_at(folder, path.name)
            if link_status and not stat.S_ISLNK(link_status.st_mode):
                raise UserError(f"{shown(path)} is not a link to a checkpoint")
            return _target(folder, path) if link_status else ""
    except FileNotFoundError:
        return ""


def status(path: Path) -> os.stat_result | None:
    """Size and times of a run's file, None where there is none; UserError where something else is in its place."""
    try:
        with _parent(path) as folder:
            return _resolved(folder, path)[1]
    except FileNotFoundError:
        return None


def exists(path: Path) -> bool:
    return status(path) is not None


def open_file(path: Path, most: int | None = None) -> io.BufferedReader:
    """A run's file to read, of at most `most` bytes (its form's own limit where that is less); the caller closes it.

    UserError where it is missing, not readable, a link, no regular file or larger; OSError where this process has no
    descriptor or memory left. Its contents are not looked at. One that is replaced meanwhile stays readable as it was;
    of one that grows more may be read than `most`.
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
    """A run's file, unbuffered, to read and write in place, made if it is not there.

    For what grows (metrics.csv, run.log) or is locked: a crash may leave half a line; `replacing` leaves the old file.
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
    """All of the file, as large as it was when it was opened; refused as by `open_file`."""
    with open_file(path, most) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def read_json(path: Path, most: int | None = None) -> Any:
    """The file's data, or one clear line when it is missing, damaged, or not a file."""
    try:
        return json.loads(read_bytes(path, most).decode("utf-8"))
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        raise UserError(f"{shown(path)} is not valid JSON: {' '.join(str(error).split())[:100]}") from error


@contextmanager
def replacing(path: Path, sync_name: bool = True) -> Iterator[BinaryIO]:
    """durable_file.replacing for a file of a run: readers see the old bytes or all of the new ones, never a part.

    Where the block or the disk fails nothing has changed; OSError where the disk has no room. Once it ends well the
    bytes survive a power cut, and so does the name unless `sync_name` is False.
    """
    with _parent(path) as folder:
        old_status = _status_at(folder, path.name)
        if old_status and not stat.S_ISREG(old_status.st_mode):
            raise _refused(path, old_status.st_mode)
        with replacing_in(folder, path.name, sync_name) as file:
            yield file


def write_text(path: Path, text: str) -> None:
    """Replace the file in one instant."""
    with replacing(path) as file:
        file.write(text.encode())


def write_json(path: Path, data: object, sync_name: bool = True) -> None:
    """Replace the file in one instant, as `replacing` does; TypeError for data that is not plain."""
    with replacing(path, sync_name) as file:
        file.write((json.dumps(data, indent=2) + "\n").encode())


def put(path: Path, text: str) -> bool:
    """Make a file whole, in one instant, unless one of its name is there: then False, and that one stays as it is."""
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
    """A file of one run into another, whole or not at all."""
    with open_file(source) as source_file, replacing(target) as target_file:
        shutil.copyfileobj(source_file, target_file, 1 << 20)


def point(link: Path, name: str) -> None:
    """Have `best` or `last` name a file beside it, in one instant; the folder is synced by the caller."""
    temporary_name = temporary(link).name
    with _parent(link) as folder:
        os.symlink(name, temporary_name, dir_fd=folder)
        try:
            os.replace(temporary_name, link.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(temporary_name, dir_fd=folder)
            raise


def rename(path: Path, name: str) -> None:
    """Give a file of a run another name beside it, over what has that name; FileNotFoundError where it is not there."""
    new_path = check(path.with_name(name))
    with _parent(path) as folder:
        _resolved(folder, path)
        os.replace(path.name, new_path.name, src_dir_fd=folder, dst_dir_fd=folder)


def touch(path: Path) -> None:
    """Give a file of a run the time that it is now for who keeps the folder; FileNotFoundError without one."""
    descriptor = _open(path, os.O_RDONLY)
    try:
        os.utime(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Delete a file of a run, if it is there; of a link the link."""
    with suppress(FileNotFoundError), _parent(path) as folder:
        os.unlink(path.name, dir_fd=folder)


def list_names(folder: Path) -> list[str]:
    """The sorted names of what lies in a run's folder or one of FOLDERS in it; [] where that is not there."""
    try:
        with _opened(folder, *below(folder)) as descriptor:
            return sorted(os.listdir(descriptor))
    except FileNotFoundError:
        return []


def make_folder(folder: Path) -> None:
    """Make a run's folder or one of FOLDERS in it, and those it lies in, where they are not there."""
    root, subfolders = below(folder)
    root.mkdir(parents=True, exist_ok=True)
    for depth, name in enumerate(subfolders):
        with _opened(folder, root, subfolders[:depth]) as parent, suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)


def sync_folder(folder: Path) -> None:
    """durable_file.sync_folder for a folder of a run."""
    with _opened(folder, *below(folder)) as descriptor:
        os.fsync(descriptor)


def sync(path: Path) -> None:
    """Make a run's file survive a power cut from now on; nothing where there is none."""
    if exists(path):
        with open_file(path) as file:
            os.fsync(file.fileno())


def sweep(folder: Path) -> int:
    """Delete what other processes left half-written in a folder of a run; for who holds its lock."""
    removed_count = 0
    for name in list_names(folder):
        name_match = TEMPORARY.fullmatch(name)
        if name_match and int(name_match[1]) != os.getpid():
            with _opened(folder, *below(folder)) as descriptor, suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(name, dir_fd=descriptor)
                removed_count += 1
    return removed_count


def check(path: Path) -> Path:
    """The path itself, for a library that insists on opening it: nothing is there, or a regular file."""
    status(path)
    return path


def check_folder(run: Path) -> None:
    """UserError if anything in a run's folder, where this program would write, is not what its name says."""
    for folder in ("", *FOLDERS):
        for name in list_names(run / folder):
            if any(file_form.name.fullmatch(name) and "/".join(file_form.folders) == folder for file_form in FORMS):
                status(run / folder / name)
