"""A process that ends with whoever started it, however that ends: Linux sends it SIGTERM then. Elsewhere nothing does.

It is the thread that starts the process whose end counts, so processes are started by a thread that lasts.

    python runstore/many/parent_death.py PID COMMAND ...      becomes that command, tied to its parent, the process PID
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence

PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None  # looked up here: after a fork little is done


def signal_at_parents_death(number: int) -> None:
    """From now on this process is sent that signal once the thread that started it has ended."""
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, number)


def die_with_parent(parent: int) -> None:
    """From now on, at once if `parent` is dead already. To be called by the process itself."""
    if _prctl is None:
        return
    signal_at_parents_death(signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGTERM)


def tied() -> Callable[[], None] | None:
    """A preexec_fn for Popen that ties a child to us, before it becomes its command. Not for a process with threads:
    what they held when it was forked stays locked in the child, which may wait for it for ever."""
    if _prctl is None:
        return None
    parent = os.getpid()
    return lambda: die_with_parent(parent)


def wrapped(command: Sequence[str]) -> list[str]:
    """The command, tied to us, for processes with threads."""
    return [sys.executable, "-P", __file__, str(os.getpid()), *command]


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
