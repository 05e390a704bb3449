"""Makes child processes safe: they import no module from the present folder, and end when their parent ends. No torch.

`python -c` and `python -m` search the present folder before the standard library, so that a file random.py there would
be imported. multiprocessing starts its servers that way, and many packages their processes.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.connection import wait

from stride.utils.places import IS_WHEEL, ROOT

PR_SET_PDEATHSIG = 1  # option of prctl(2): the kernel sends a signal to this process when its parent ends
VARIABLES = ("PYTHONSAFEPATH", "PYTHONPATH")  # environment variables that decide where a child searches modules


def import_nothing_from_here() -> None:
    """Stop all child processes that start from now on from importing modules of the present folder."""
    os.environ["PYTHONSAFEPATH"] = "1"
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if not IS_WHEEL and str(ROOT) not in paths:  # else a child of train.py in a checkout would not find `stride`
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), *paths)))


@contextmanager
def nothing_from_here() -> Iterator[None]:
    """Do `import_nothing_from_here` inside the block only.

    For library code: a user's script would else lose the folder of its own modules in all children that it starts.
    """
    before = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    import_nothing_from_here()
    try:
        yield
    finally:
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(before)


def end_with_parent() -> None:
    """Call in a child process: it is killed when its parent or its fork server ends, even inside a step that hangs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = parent_process()
    assert parent is not None  # this is a child process
    threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    """Wait until the process of the sentinel ends, then end this one at once."""
    wait([sentinel])
    os._exit(1)
