"""Child processes: they import nothing from the present folder, and end with whoever started them. No torch.

For `python -c` and `python -m` the present folder comes before the standard library. So start multiprocessing its
servers, and many packages their processes.
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

PR_SET_PDEATHSIG = 1
VARIABLES = ("PYTHONSAFEPATH", "PYTHONPATH")


def import_nothing_from_here() -> None:
    """From now on; for a folder whose modules are not to be imported."""
    os.environ["PYTHONSAFEPATH"] = "1"
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if not IS_WHEEL and str(ROOT) not in paths:  # else train.py of a checkout would not find `stride`
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), *paths)))


@contextmanager
def nothing_from_here() -> Iterator[None]:
    """Only inside the block: a script that is started from a file would lose its own folder for good."""
    before = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    import_nothing_from_here()
    try:
        yield
    finally:
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(before)


def end_with_parent() -> None:
    """A child outlives neither its parent nor its fork server, not even inside a step that never returns."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = parent_process()
    assert parent is not None  # this is a child process
    threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
