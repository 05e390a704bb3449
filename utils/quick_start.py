"""Makes a command start and end faster: no garbage collection while modules load, no freeing of objects at exit.

Import it before everything else. Loading makes a million objects that stay. The garbage collector would check them
again and again, and to free them when the process ends takes as long as loading torch.
"""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import NoReturn

gc.disable()
_to_undo: list[Callable[[], object]] = []  # functions that undo what `loading` did


def loading(text: str = "") -> None:
    """Call before heavy imports: Ctrl-C ends the process at once, without a traceback; a terminal shows `text`."""
    if text and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        print(text, end="", flush=True)
        _to_undo.append(partial(print, "\r" + " " * len(text), end="\r", flush=True))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _to_undo.append(partial(signal.signal, signal.SIGINT, signal.default_int_handler))


def paused() -> None:
    """Call before other work between two imports: Ctrl-C raises KeyboardInterrupt again, and the text is removed."""
    while _to_undo:
        _to_undo.pop()()


def loaded() -> None:
    """Call when everything is imported: collect garbage again, but never check the objects that exist now."""
    paused()
    gc.freeze()
    gc.enable()


def leave(code: int) -> NoReturn:
    """End the process: run the atexit functions and flush the streams, but free no objects."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
