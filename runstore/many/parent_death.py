"""Make a child process end when its parent ends, for whatever reason: Linux then sends it SIGTERM. No effect elsewhere.

Linux watches the thread that started the child, so start children in a thread that lives as long as they may.

    python runstore/many/parent_death.py PID COMMAND ...      becomes that command, tied to its parent, the process PID
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence

PR_SET_PDEATHSIG = 1  # of Linux's prctl
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None  # looked up now: after a fork that is not safe


def signal_at_parents_death(number: int) -> None:
    """Have this signal sent to this process when the thread that started it ends."""
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, number)


def die_with_parent(parent: int) -> None:
    """End this process when its parent ends, at once if the parent is dead already. Called in the child."""
    if _prctl is None:
        return
    signal_at_parents_death(signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGTERM)


def tied() -> Callable[[], None] | None:
    """Return a preexec_fn for Popen that ties the child to this process.

    Do not use it in a process with threads: locks that they hold during the fork stay locked in the child for ever.
    """
    if _prctl is None:
        return None
    parent = os.getpid()
    return lambda: die_with_parent(parent)


def wrapped(command: Sequence[str]) -> list[str]:
    """Return a command line that runs the command tied to this process; for processes with threads."""
    return [sys.executable, "-P", __file__, str(os.getpid()), *command]


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
