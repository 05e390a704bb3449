"""Ctrl-C, SIGTERM and SIGHUP in a training, from its first line to its last: quick work under way is finished.

The first signal is noted; whoever works looks at `number` between two iterations. After GRACE seconds, at once when
nothing needs to be finished, or with a second signal, Dropped is raised wherever the program is. After DEADLINE the
process ends in any case: everything on the disk is complete at any moment, and `last_words` may add a line.

A thread that begins with the first signal watches the time and sends that signal again. No other signal is used: an
environment may have alarms of its own.
"""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Self

from stride.utils.interrupted import Interrupted, Noted, name_of

GRACE, SAVING, DEADLINE = 2.5, 3.5, 4.2  # seconds after the first signal
AGAIN, TICK = 0.25, 0.01  # seconds between two reminders, and between two looks at the clock
SPEAKING = 1.0  # seconds for the last words, where machine code does not let go of the work


class Dropped(Interrupted):
    """The work under way was given up."""


class Interrupts(Noted):
    """The signals of a training, from its first line to its last."""

    def __init__(self) -> None:
        super().__init__()
        self.patient = False  # whether an iteration is under way, which should be finished
        self.last_words: Callable[[], None] | None = None  # called from another thread before the process ends by force
        self._first_at = 0.0  # when the first signal came
        self._due = math.inf  # when Dropped is to be raised
        self._inside = False
        self._reminding = False
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return name_of(self.number)

    def __enter__(self) -> Self:
        self._inside = True
        self._unraisable = sys.unraisablehook
        sys.unraisablehook = self._swallowed
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        self._inside = False  # from here on a signal changes nothing
        with self._lock:  # a reminder that is on its way arrives before the handlers change
            pass
        sys.unraisablehook = self._unraisable
        super().__exit__(*error)

    def _swallowed(self, lost: "sys.UnraisableHookArgs") -> None:
        """Dropped inside a finalizer, or between a fork and the line after it, is raised again soon: no line for it."""
        if not isinstance(lost.exc_value, Dropped):
            self._unraisable(lost)

    def iteration_done(self) -> None:
        """An iteration is over: what remains until DEADLINE is for writing it down."""
        if self.number:
            self._due = self._first_at + SAVING

    def stop_reminding(self) -> None:
        """Dropped has arrived: no more reminders while files are closed."""
        self.patient = True
        self._due = math.inf

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self._inside:
            return
        reminded = self._reminding
        self._reminding = False
        if reminded and self._due == math.inf:  # it was on its way when Dropped arrived
            return
        if self.number:  # again: a person's, or the watching thread's
            self._due = min(self._due, time.monotonic() + AGAIN)
            raise Dropped
        self.number = number
        self._first_at = time.monotonic()
        self._due = self._first_at + (GRACE if self.patient else AGAIN)
        threading.Thread(target=self._watch, daemon=True).start()
        if not self.patient:
            raise Dropped
        with suppress(OSError):  # nobody may read it; print may not be used where it may just have been interrupted
            os.write(2, f"\n{self.name}: finishing and saving this iteration, if that is quick ...\n".encode())

    def _watch(self) -> None:
        main = threading.main_thread().ident
        assert main is not None  # it runs
        while self._inside:
            now = time.monotonic()
            if now > self._first_at + DEADLINE:
                if self.last_words:
                    speaker = threading.Thread(target=self.last_words, daemon=True)
                    speaker.start()
                    speaker.join(SPEAKING)
                if self._inside:
                    os._exit(128 + self.number)
            with self._lock:
                if self._inside and now > self._due:
                    # again and again: what is raised inside a finalizer is swallowed
                    self._due = now + AGAIN
                    self._reminding = True
                    signal.pthread_kill(main, self.number)
            time.sleep(TICK)
