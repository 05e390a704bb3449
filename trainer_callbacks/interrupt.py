"""Ctrl-C and SIGTERM, from the first line of a run to its last: what is under way is finished if that is quick.

The first signal is noted; whoever works looks at `number` between two iterations. After GRACE seconds, at once when
nothing worth finishing is under way, or with a second signal, Dropped is raised wherever the program stands. After
DEADLINE the process ends whatever it does: everything on the disk is whole at any moment.
"""

import os
import signal
import threading
import time
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE, SAVING, DEADLINE = 2.5, 3.5, 4.2  # seconds after the first signal


class Dropped(BaseException):
    """The work under way was given up; not an Exception, so that nothing on the way out takes it for an error."""


class Interrupts:
    """`with Interrupts() as interrupts:` listens; `number` is the signal that came, 0 while there was none."""

    def __init__(self) -> None:
        self.number = 0
        self.patient = False  # whether an iteration is under way, which is worth finishing
        self._began = 0.0
        self._handlers: dict[int, Any] = {}

    @property
    def name(self) -> str:
        return "Ctrl-C" if self.number == signal.SIGINT else "SIGTERM"

    def __enter__(self) -> Self:
        self._handlers = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)}
        signal.signal(signal.SIGALRM, self._alarm)
        self.listen()
        return self

    def listen(self) -> None:
        """Take the signals (again: Lightning puts a handler of its own on SIGTERM)."""
        for number in SIGNALS:
            signal.signal(number, self._note)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def reached(self) -> None:
        """An iteration is over: what remains until DEADLINE is for writing it down."""
        if self.number:
            self._wake_in(SAVING - (time.monotonic() - self._began))

    def given_up(self) -> None:
        """Dropped has arrived: no more alarms while files are closed."""
        self.patient = True
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _note(self, number: int, frame: FrameType | None) -> None:
        second = bool(self.number)
        if not second:
            self.number, self._began = number, time.monotonic()
            watch = threading.Timer(DEADLINE, self._end)
            watch.daemon = True
            watch.start()
        if second or not self.patient:
            self._alarm(number, frame)
        with suppress(OSError):  # nobody may read it; print may not be used where it may just have been interrupted
            os.write(2, f"\n{self.name}: this iteration is finished and saved if that is quick ...\n".encode())
        self._wake_in(GRACE)

    def _wake_in(self, seconds: float) -> None:
        # again and again: what is raised inside a finalizer is swallowed
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01), 0.25)

    def _alarm(self, number: int, frame: FrameType | None) -> NoReturn:
        self._wake_in(0.25)
        raise Dropped

    def _end(self) -> None:
        if self._handlers:  # still inside
            os._exit(128 + self.number)
