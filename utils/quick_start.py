"""A command without the waits at both ends: no garbage is collected while modules load, none is taken apart at exit.

Imported before everything else. Loading makes a million objects that stay: the garbage collector would walk through
them again and again, and taking them apart when the process ends costs as much as loading torch.
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
_to_undo: list[Callable[[], object]] = []  # what holds only while modules load


def loading(text: str = "") -> None:
    """Imports come now: a Ctrl-C among them has nothing to save, and ends without a traceback. The text is printed."""
    if text and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        print(text, end="", flush=True)
        _to_undo.append(partial(print, "\r" + " " * len(text), end="\r", flush=True))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _to_undo.append(partial(signal.signal, signal.SIGINT, signal.default_int_handler))


def paused() -> None:
    """Work comes between two imports: a Ctrl-C is heard again."""
    while _to_undo:
        _to_undo.pop()()


def loaded() -> None:
    """Everything is imported: collect garbage again, but never look at what exists by now."""
    paused()
    gc.freeze()
    gc.enable()


def leave(code: int) -> NoReturn:
    """End the process: what was registered for its end is done, and nothing is taken apart."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
