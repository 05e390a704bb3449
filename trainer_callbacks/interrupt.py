"""Handle Ctrl-C, SIGTERM and SIGHUP during a training: finish the present iteration if that is quick, then stop.

The handler stores the first signal in `number`; the training looks at it between two iterations. Dropped is raised
wherever the program is: GRACE seconds later, at a second signal, or at once if no iteration is under way. The process
ends after DEADLINE in any case. Files on disk are complete at any moment, so nothing is damaged.

A thread that starts with the first signal watches the time and sends the same signal again. It uses no other signal,
because an environment may have alarms of its own.
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

# Seconds after the first signal: the iteration has to end, its checkpoint has to be saved, the process is ended
GRACE, SAVING, DEADLINE = 2.5, 3.5, 4.2
REMIND_SECONDS, LOOK_SECONDS = 0.25, 0.01  # between two reminders, and between two looks at the clock
LAST_WORDS_SECONDS = 1.0  # how long `last_words` may take before the process is ended


class Dropped(Interrupted):
    """Raised by a signal: the present work was given up."""


class Interrupts(Noted):
    """A context manager that handles the signals of a training inside its `with` block."""

    def __init__(self) -> None:
        super().__init__()
        self.patient = False  # whether an iteration is under way, which should be finished
        self.last_words: Callable[[], None] | None = None  # called in another thread before the process ends by force
        self._first_at = 0.0  # time.monotonic() of the first signal
        self._due = math.inf  # time.monotonic() from which on Dropped is to be raised
        self._inside = False  # whether the program is in the `with` block
        self._reminding = False  # whether the next signal comes from our thread, not from a person
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return name_of(self.number)

    def __enter__(self) -> Self:
        self._inside = True
        self._unraisable = sys.unraisablehook
        sys.unraisablehook = self._on_unraisable
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        self._inside = False  # from here on a signal changes nothing
        with self._lock:  # wait for a reminder that is just being sent: it must arrive before the handlers change
            pass
        sys.unraisablehook = self._unraisable
        super().__exit__(*error)

    def _on_unraisable(self, lost: "sys.UnraisableHookArgs") -> None:
        """Print nothing if Python ignores a Dropped, in a finalizer or just after a fork: it is raised again soon."""
        if not isinstance(lost.exc_value, Dropped):
            self._unraisable(lost)

    def iteration_done(self) -> None:
        """Allow the time until SAVING for the checkpoint: after a signal, the iteration has now ended."""
        if self.number:
            self._due = self._first_at + SAVING

    def stop_reminding(self) -> None:
        """Send no more reminders while files are closed: Dropped has arrived."""
        self.patient = True
        self._due = math.inf

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: store the first one, raise Dropped if it is due."""
        if not self._inside:
            return
        reminded = self._reminding
        self._reminding = False
        if reminded and self._due == math.inf:  # a reminder sent just before Dropped arrived
            return
        if self.number:  # not the first signal: from a person again, or a reminder of our thread
            self._due = min(self._due, time.monotonic() + REMIND_SECONDS)
            raise Dropped
        self.number = number
        self._first_at = time.monotonic()
        self._due = self._first_at + (GRACE if self.patient else REMIND_SECONDS)
        threading.Thread(target=self._watch, daemon=True).start()
        if not self.patient:
            raise Dropped
        # not print: this handler may have interrupted a print; OSError if stderr is closed
        with suppress(OSError):
            os.write(2, f"\n{self.name}: finishing and saving this iteration, if that is quick ...\n".encode())

    def _watch(self) -> None:
        """Send reminders from `_due` on, and end the process after DEADLINE; runs in its own thread."""
        main = threading.main_thread().ident
        assert main is not None  # the main thread is running
        while self._inside:
            now = time.monotonic()
            if now > self._first_at + DEADLINE:
                if self.last_words:
                    # in a thread, so that it cannot delay the end: machine code may hold what it needs
                    reporter = threading.Thread(target=self.last_words, daemon=True)
                    reporter.start()
                    reporter.join(LAST_WORDS_SECONDS)
                if self._inside:
                    os._exit(128 + self.number)
            with self._lock:
                if self._inside and now > self._due:
                    # repeatedly, because Python ignores what is raised inside a finalizer
                    self._due = now + REMIND_SECONDS
                    self._reminding = True
                    signal.pthread_kill(main, self.number)
            time.sleep(LOOK_SECONDS)
