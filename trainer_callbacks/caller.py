"""The folder that a training was started from: paths are printed relative to it, though its world calls os.chdir."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_folders: list[str] = []  # of the trainings of this process that have begun and not ended


@contextmanager
def from_here() -> Iterator[None]:
    """Within, this folder is the caller's; afterwards the process is in it again."""
    _folders.append(os.getcwd())
    try:
        yield
    finally:
        go_back()
        _folders.pop()


def go_back() -> None:
    """To the caller's folder, once no world needs the one that it went to."""
    if _folders:
        with suppress(OSError):  # it is gone
            os.chdir(_folders[-1])


def from_caller(path: Path) -> str:
    """The path as the caller sees it."""
    return os.path.relpath(path, _folders[-1] if _folders else None)
