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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from stride.runstore.run_names import CHECKPOINT, FOLDERS, FORMS, LINK, FilePlace, below, locate, shown
from stride.utils.durable_file import OUT_OF_HANDLES, TEMPORARY, replacing_in, temporary
from stride.utils.user_error import UserError

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@contextmanager
def _opened(path: Path, root: Path, folders: tuple[str, ...]) -> Iterator[int]:
    """A descriptor of the folder; FileNotFoundError where it is not there."""
    here, descriptor = root, -1
    try:
        descriptor = os.open(root, FOLDER)
        # each folder is opened inside the one before and never by its path: a link put there meanwhile leads nowhere
        for name in folders:
            here, above = here / name, descriptor
            descriptor = os.open(name, FOLDER, dir_fd=above)
            os.close(above)
    except FileNotFoundError:
        _close(descriptor)
        raise
    except OSError as error:
        _close(descriptor)
        if error.errno in OUT_OF_HANDLES:
            raise
        if here.is_symlink() or not here.is_dir():
            raise _refused(here, os.lstat(here).st_mode, "a folder") from error
        raise UserError(f"cannot read {shown(path)}: {error.strerror}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


def _refused(path: Path, mode: int, wanted: str = "a file") -> UserError:
    kinds = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFREG: "a file", stat.S_IFIFO: "a FIFO"}
    kinds |= {stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
    kind = kinds.get(stat.S_IFMT(mode), "of no known kind")
    return UserError(f"{shown(path)} is {kind}, not {wanted} of the run: it was neither read nor written")


def _look(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _meant(folder: int, place: FilePlace, path: Path) -> tuple[str, os.stat_result | None]:
    """The name behind `best` and `last`, any other name as it is, and what lies there; refused unless regular."""
    name, status = place.name, _look(folder, place.name)
    if status and LINK.fullmatch(name) and stat.S_ISLNK(status.st_mode):
        name = _target(folder, name, path)
        status = _look(folder, name)
    if status and not stat.S_ISREG(status.st_mode):
        raise _refused(path.with_name(name), status.st_mode)
    return name, status


def _target(folder: int, name: str, path: Path) -> str:
    link_target = os.readlink(name, dir_fd=folder)
    stem, dot, suffix = link_target.rpartition(".")
    if not CHECKPOINT.fullmatch(stem) or dot + suffix != path.suffix:
        raise UserError(f"{shown(path)} points at {link_target[:80]!r}, which is not a checkpoint of this run")
    return link_target


def read_link(path: Path) -> str:
    """The name of the file that the link `best` or `last` means; "" where there is none."""
    place = locate(path)
    try:
        with _opened(path, place.root, place.folders) as folder:
            status = _look(folder, place.name)
            if status and not stat.S_ISLNK(status.st_mode):
                raise UserError(f"{shown(path)} is not a link to a checkpoint")
            return _target(folder, place.name, path) if status else ""
    except FileNotFoundError:
        return ""


def status(path: Path) -> os.stat_result | None:
    """Size and times of a run's file, None where there is none; UserError where something else is in its place."""
    place = locate(path)
    try:
        with _opened(path, place.root, place.folders) as folder:
            return _meant(folder, place, path)[1]
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
    place = locate(path)
    try:
        file = os.fdopen(_open(path, place, os.O_RDONLY), "rb")
    except FileNotFoundError as error:
        raise UserError(f"{shown(path)} does not exist") from error
    except OSError as error:
        if error.errno in OUT_OF_HANDLES:
            raise
        raise UserError(f"cannot read {shown(path)}: {error.strerror}") from error
    size, most = os.fstat(file.fileno()).st_size, min(place.most, most if most is not None else place.most)
    if size > most:
        file.close()
        raise UserError(f"{shown(path)} has {size:,} bytes, more than the {most:,} that are read of such a file")
    return file


def open_to_write(path: Path, append: bool = False) -> BinaryIO:
    """A run's file, unbuffered, to read and write in place, made if it is not there.

    For what grows (metrics.csv, run.log) or is locked: a crash may leave half a line; `replacing` leaves the old file.
    """
    flags = os.O_RDWR | os.O_CREAT | (os.O_APPEND if append else 0)
    descriptor = _open(path, locate(path), flags)
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise UserError(f"{shown(path)} is also a file elsewhere (a hard link), so it was not written; copy the run")
    return os.fdopen(descriptor, "ab+" if append else "rb+", buffering=0)


def _open(path: Path, place: FilePlace, flags: int) -> int:
    with _opened(path, place.root, place.folders) as folder:
        name, _ = _meant(folder, place, path)
        descriptor = os.open(name, flags | PLAIN, 0o666, dir_fd=folder)
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
    place = locate(path)
    with _opened(path, place.root, place.folders) as folder:
        status = _look(folder, place.name)
        if status and not stat.S_ISREG(status.st_mode):
            raise _refused(path, status.st_mode)
        with replacing_in(folder, place.name, sync_name) as file:
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
    place = locate(path)
    beside = temporary(path).name
    with _opened(path, place.root, place.folders) as folder:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            os.link(beside, place.name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            os.fsync(folder)
        except FileExistsError:
            return False
        finally:
            os.unlink(beside, dir_fd=folder)
    return True


def copy(source: Path, target: Path) -> None:
    """A file of one run into another, whole or not at all."""
    with open_file(source) as old, replacing(target) as new:
        shutil.copyfileobj(old, new, 1 << 20)


def point(link: Path, name: str) -> None:
    """Have `best` or `last` name a file beside it, in one instant; the folder is synced by the caller."""
    place = locate(link)
    beside = temporary(link).name
    with _opened(link, place.root, place.folders) as folder:
        os.symlink(name, beside, dir_fd=folder)
        try:
            os.replace(beside, place.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(beside, dir_fd=folder)
            raise


def rename(path: Path, name: str) -> None:
    """Give a file of a run another name beside it, over what has that name; FileNotFoundError where it is not there."""
    old, new = locate(path), locate(path.with_name(name))
    with _opened(path, old.root, old.folders) as folder:
        for place in (old, new):
            _meant(folder, place, path.with_name(place.name))
        os.replace(old.name, new.name, src_dir_fd=folder, dst_dir_fd=folder)


def touch(path: Path) -> None:
    """Give a file of a run the time that it is now for who keeps the folder; FileNotFoundError without one."""
    descriptor = _open(path, locate(path), os.O_RDONLY)
    try:
        os.utime(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Delete a file of a run, if it is there; of a link the link."""
    place = locate(path)
    with suppress(FileNotFoundError), _opened(path, place.root, place.folders) as folder:
        os.unlink(place.name, dir_fd=folder)


@contextmanager
def _opened_folder(folder: Path) -> Iterator[int]:
    """A run's folder, or one of FOLDERS in it."""
    with _opened(folder, *below(folder)) as descriptor:
        yield descriptor


def list_names(folder: Path) -> list[str]:
    """The sorted names of what lies in a run's folder or one of FOLDERS in it; [] where that is not there."""
    try:
        with _opened_folder(folder) as descriptor:
            return sorted(os.listdir(descriptor))
    except FileNotFoundError:
        return []


def make_folder(folder: Path) -> None:
    """Make a run's folder or one of FOLDERS in it, and those it lies in, where they are not there."""
    root, ways = below(folder)
    root.mkdir(parents=True, exist_ok=True)
    for depth, name in enumerate(ways):
        with _opened(folder, root, ways[:depth]) as above, suppress(FileExistsError):
            os.mkdir(name, dir_fd=above)


def sync_folder(folder: Path) -> None:
    """durable_file.sync_folder for a folder of a run."""
    with _opened_folder(folder) as descriptor:
        os.fsync(descriptor)


def sync(path: Path) -> None:
    """Make a run's file survive a power cut from now on; nothing where there is none."""
    if exists(path):
        with open_file(path) as file:
            os.fsync(file.fileno())


def sweep(folder: Path) -> int:
    """Delete what other processes left half-written in a folder of a run; for who holds its lock."""
    swept = 0
    for name in list_names(folder):
        match = TEMPORARY.fullmatch(name)
        if match and int(match[1]) != os.getpid():
            with _opened_folder(folder) as descriptor, suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(name, dir_fd=descriptor)
                swept += 1
    return swept


def check(path: Path) -> Path:
    """The path itself, for a library that insists on opening it: nothing is there, or a regular file."""
    status(path)
    return path


def check_folder(run: Path) -> None:
    """UserError if anything in a run's folder, where this program would write, is not what its name says."""
    for folder in ("", *FOLDERS):
        for name in list_names(run / folder):
            if any(form.name.fullmatch(name) and "/".join(form.folders) == folder for form in FORMS):
                status(run / folder / name)
