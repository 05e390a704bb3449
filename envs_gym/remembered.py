"""Which folders hold the modules of the user's own that a run was trained with: in the user's state folder.

Not beside the run: what comes with a folder of runs must not say what is imported. A file for each run, of some 200
bytes, named by a hash of the run's resolved path and replaced as a whole, so that no writer waits for another. From
`stride` on no link is followed, and the folder must be the user's alone.
"""

import hashlib
import json
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from stride.utils.durable_file import replacing_in
from stride.utils.places import of_another, others_may_write

FOLDERS, PRIVATE = ("stride", "projects"), 0o700
MOST_BYTES = 1 << 16
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
log = logging.getLogger("stride")


def remember(run: Path, folders: Sequence[Path]) -> None:
    """That this run was trained with modules of these folders; a run goes on even where that cannot be written."""
    name, real = _key(run)
    if list(folders) == recall(run):
        return
    try:
        with _state(make=True) as state, replacing_in(state, name) as file:
            file.write(json.dumps({"run": real, "folders": [str(each.resolve()) for each in folders]}).encode())
    except OSError as error:
        told = f"where its modules lie is not remembered ({error.strerror or error})"
        log.warning("%s: give --project %s to play it or go on with it", told, folders[0])


def recall(run: Path) -> list[Path]:
    """What `remember` was told of the run, as absolute paths; [] where that was nothing."""
    name, real = _key(run)
    with suppress(OSError, ValueError, RecursionError), _state() as state:
        descriptor = os.open(name, FLAGS | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=state)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return []
            match json.loads(file.read(MOST_BYTES)):
                case {"run": str(known), "folders": [*folders]} if known == real:
                    return [Path(each) for each in folders if isinstance(each, str) and os.path.isabs(each)]
    return []


def _key(run: Path) -> tuple[str, str]:
    """The file's name, and the path that it is of."""
    real = str(run.resolve())
    return f"{hashlib.sha256(os.fsencode(real)).hexdigest()[:32]}.json", real


@contextmanager
def _state(make: bool = False) -> Iterator[int]:
    """A descriptor of the folder; OSError where there is none, or others may write to it."""
    homes = os.environ.get("XDG_STATE_HOME", ""), os.path.expanduser("~/.local/state")
    home = next((each for each in homes if os.path.isabs(each)), "")
    if not home:
        raise FileNotFoundError("there is no home folder")
    if make:
        os.makedirs(home, mode=PRIVATE, exist_ok=True)
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in FOLDERS:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, PRIVATE, dir_fd=descriptor)
            above, descriptor = descriptor, os.open(name, FLAGS | os.O_DIRECTORY, dir_fd=descriptor)
            os.close(above)
            found = os.fstat(descriptor)
            if why := of_another(found) or others_may_write(found):
                raise PermissionError(f"{home}/stride: {why}")
        yield descriptor
    finally:
        os.close(descriptor)
