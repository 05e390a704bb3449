"""Signals that end a program, and what they raise: distinguished from what other people's code raises by itself.

A KeyboardInterrupt that an environment raises is no Ctrl-C; so where we listen, a Ctrl-C is an Interrupted.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, Self

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C; docker, systemd, SLURM; a terminal that is closed


class Interrupted(BaseException):
    """Raised by a signal's handler; not an Exception, so that nothing on the way out takes it for an error."""


class CtrlC(Interrupted, KeyboardInterrupt):
    """A person's, not an environment's."""


def name_of(number: int) -> str:
    """The name that a person uses for the signal."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def by_signal(error: BaseException) -> bool:
    """Whether a signal may have raised it; a KeyboardInterrupt only where Python's own handler listens."""
    python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, Interrupted) or (isinstance(error, KeyboardInterrupt) and python)


@contextmanager
def ctrl_c() -> Iterator[None]:
    """Within, a Ctrl-C raises CtrlC; where somebody else listens, or in a thread, nothing changes."""
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
    """`with Noted() as noted:` takes the signals that end a program; `number` is the first that came, 0 before it.

    What is ignored stays so: `nohup` keeps a closed terminal from the program.
    """

    def __init__(self) -> None:
        self.number = 0
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._handlers = {number: signal.getsignal(number) for number in ENDING}
        self.listen()
        return self

    def listen(self) -> None:
        """Take the signals (again: Lightning puts a handler of its own on SIGTERM)."""
        for number in ENDING:
            if self._handlers.get(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def __exit__(self, *error: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number
