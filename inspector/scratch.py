"""The folder that is served: made for one process, deleted at its end, or by the next one where it was killed."""

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
    """An empty folder that is deleted when the block ends; a lock on it shows that its process lives."""
    sweep()
    folder, descriptor = _locked_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():  # something was still being written there
            shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def sweep() -> int:
    """Delete the folders of processes that were killed; returns their number."""
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


def _locked_folder() -> tuple[Path, int]:
    """A new folder and the descriptor that holds its lock; another one where that was deleted meanwhile."""
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
