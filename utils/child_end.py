"""How a process ends with the one that started it, however that ends: Linux sends it a signal then.

It is the thread that starts the process whose end counts, so processes are started by a thread that lasts.

    python utils/child_end.py PID COMMAND ...      becomes that command, tied to its parent, the process PID
"""

import ctypes
import os
import signal
import sys
import threading
from multiprocessing import parent_process
from multiprocessing.connection import wait

PR_SET_PDEATHSIG = 1


def signal_at_parents_death(number: int) -> None:
    """From now on this process is sent that signal once the thread that started it has ended; elsewhere nothing is."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def stop_with_parent(parent: int) -> None:
    """From now on, at once if the process `parent` is dead already, this process is asked to end (SIGTERM)."""
    signal_at_parents_death(signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGTERM)


def end_with_parent() -> None:
    """A child of multiprocessing outlives neither its parent nor its fork server, not even in a step that hangs."""
    signal_at_parents_death(signal.SIGKILL)
    parent = parent_process()
    assert parent is not None  # this is a child process
    threading.Thread(target=_watch, args=(parent.sentinel,), daemon=True).start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


if __name__ == "__main__":
    stop_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
