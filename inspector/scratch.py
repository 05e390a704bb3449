"""The folder that is served: made for one process, deleted with it, or by the next one where it was killed."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "stride-inspect-"
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch() -> Iterator[Path]:
    """An empty folder that is gone when the block ends; a lock on it says that its process lives."""
    sweep()
    folder, descriptor = _claimed()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():  # something was still being written there
            shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def sweep() -> int:
    """Delete the folders of processes that were killed; -> how many."""
    swept = 0
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, a link, or gone by now
            descriptor = os.open(path, FOLDER)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
                    swept += 1
            finally:
                os.close(descriptor)
    return swept


def _claimed() -> tuple[Path, int]:
    """A new folder and the descriptor that holds its lock; again where somebody swept it before it was locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        try:
            descriptor = os.open(folder, FOLDER)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
                return folder, descriptor
        except OSError:
            pass
        os.close(descriptor)
