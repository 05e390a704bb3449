"""Handles the signals that end a program, and tells a real Ctrl-C from a KeyboardInterrupt that user code raises.

An environment may raise KeyboardInterrupt by itself. So while our handler is installed, a real Ctrl-C raises CtrlC.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, Self

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C; docker, systemd, SLURM; a terminal that is closed


class Interrupted(BaseException):
    """Raised by a signal handler. Not an Exception, so that `except Exception` does not catch it."""


class CtrlC(Interrupted, KeyboardInterrupt):
    """Raised when a person presses Ctrl-C."""


def name_of(number: int) -> str:
    """Return the name of a signal for people: "Ctrl-C", or "SIGTERM"."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def by_signal(error: BaseException) -> bool:
    """Say whether a signal may have raised the error; a KeyboardInterrupt only if Python's handler is installed."""
    python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, Interrupted) or (isinstance(error, KeyboardInterrupt) and python)


@contextmanager
def ctrl_c() -> Iterator[None]:
    """Make a Ctrl-C raise CtrlC inside the block. In a thread, or if another handler is installed, change nothing."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    raise CtrlC


class Noted:
    """`with Noted() as noted:` records the signals that end a program instead of ending it.

    `noted.number` is the first signal that came, 0 before that. Signals that were ignored stay ignored, such as SIGHUP
    under `nohup`.
    """

    def __init__(self) -> None:
        self.number = 0
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._handlers = {number: signal.getsignal(number) for number in ENDING}
        self.listen()
        return self

    def listen(self) -> None:
        """Install the handlers; call it again after Lightning has installed its own for SIGTERM."""
        for number in ENDING:
            if self._handlers.get(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def __exit__(self, *error: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number
