"""Ctrl-C, SIGTERM and SIGHUP, from the first line of a run to its last: what is under way is finished if it is quick.

The first signal is noted; whoever works looks at `number` between two iterations. After GRACE seconds, at once when
nothing worth finishing is under way, or with a second signal, Dropped is raised wherever the program stands. After
DEADLINE the process ends whatever it does: everything on the disk is whole at any moment.

A thread that begins with the first signal watches the time and sends that signal again. No other signal is taken: what
an environment does with its own alarms is its business.
"""

import math
import os
import signal
import threading
import time
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

from stride.utils.interrupted import ENDING, Interrupted, name_of

SIGNALS = ENDING
GRACE, SAVING, DEADLINE = 2.5, 3.5, 4.2  # seconds after the first signal
AGAIN, TICK = 0.25, 0.01  # seconds between two reminders, and between two looks at the clock


class Dropped(Interrupted):
    """The work under way was given up."""


class Interrupts:
    """`with Interrupts() as interrupts:` listens; `number` is the signal that came, 0 while there was none."""

    def __init__(self) -> None:
        self.number = 0
        self.patient = False  # whether an iteration is under way, which is worth finishing
        self._began, self._due = 0.0, math.inf  # when the first signal came, and when Dropped is to be raised
        self._handlers: dict[int, Any] = {}
        self._inside, self._reminding, self._lock = False, False, threading.Lock()

    @property
    def name(self) -> str:
        return name_of(self.number)

    def __enter__(self) -> Self:
        self._handlers = {number: signal.getsignal(number) for number in SIGNALS}
        self._inside = True
        self.listen()
        return self

    def listen(self) -> None:
        """Take the signals (again: Lightning puts a handler of its own on SIGTERM); `nohup` ignores SIGHUP for us."""
        for number in SIGNALS:
            if self._handlers.get(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside = False  # from here on a signal changes nothing
        with self._lock:  # a reminder that is on its way arrives before the handlers change
            pass
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def iteration_done(self) -> None:
        """An iteration is over: what remains until DEADLINE is for writing it down."""
        if self.number:
            self._due = self._began + SAVING

    def stop_reminding(self) -> None:
        """Dropped has arrived: no more reminders while files are closed."""
        self.patient, self._due = True, math.inf

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self._inside:
            return
        reminded, self._reminding = self._reminding, False
        if reminded and self._due == math.inf:  # it was on its way when Dropped arrived
            return
        if self.number:  # again: a person's, or the watching thread's
            self._due = min(self._due, time.monotonic() + AGAIN)
            raise Dropped
        self.number, self._began = number, time.monotonic()
        self._due = self._began + (GRACE if self.patient else AGAIN)
        threading.Thread(target=self._watch, daemon=True).start()
        if not self.patient:
            raise Dropped
        with suppress(OSError):  # nobody may read it; print may not be used where it may just have been interrupted
            os.write(2, f"\n{self.name}: this iteration is finished and saved if that is quick ...\n".encode())

    def _watch(self) -> None:
        main = threading.main_thread().ident
        assert main is not None  # it runs
        while self._inside:
            now = time.monotonic()
            if now > self._began + DEADLINE:
                os._exit(128 + self.number)
            with self._lock:
                if self._inside and now > self._due:
                    # again and again: what is raised inside a finalizer is swallowed
                    self._due, self._reminding = now + AGAIN, True
                    signal.pthread_kill(main, self.number)
            time.sleep(TICK)
