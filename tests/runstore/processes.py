"""Small programs in processes of their own: whether they live, and waiting for what they do."""

import sys
import time
from collections.abc import Callable
from pathlib import Path


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Waits for the condition; AssertionError where it never comes."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def pids(path: Path) -> list[int]:
    """The numbers of the processes that have noted them there."""
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie waiting for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
