"""Makes the temporary folder whose files the inspector serves, and deletes it when the inspector ends.

If the process was killed, the next inspector deletes the folder. A lock on a folder shows that its process still runs.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "stride-inspect-"
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield an empty folder that is deleted when the block ends."""
    sweep()
    folder, descriptor = _locked_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():  # something was still being written there, so try again
            shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def sweep() -> int:
    """Delete the folders of processes that were killed; return their number."""
    swept = 0
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # still locked, another user's, a link, or already deleted
            descriptor = os.open(path, FOLDER_FLAGS)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
                    swept += 1
            finally:
                os.close(descriptor)
    return swept


def _locked_folder() -> tuple[Path, int]:
    """Return a new folder and the file descriptor that holds its lock.

    Another inspector's `sweep` may delete the folder before it is locked; then a new one is made."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        try:
            descriptor = os.open(folder, FOLDER_FLAGS)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
                return folder, descriptor
        except OSError:
            pass
        os.close(descriptor)
