"""Signals that end a program, and what they raise: distinguished from what other people's code raises by itself.

A KeyboardInterrupt that an environment raises is no Ctrl-C; so where we listen, a Ctrl-C is an Interrupted.
In a training (`Interrupts`), work under way is finished if that is quick: the first signal is noted, and whoever works
looks at `number` between two iterations. After GRACE seconds, at once when nothing needs to be finished, or with a
second signal, Dropped is raised wherever the program is. After DEADLINE the process ends in any case: everything on the
disk is complete at any moment.

A thread that begins with the first signal watches the time and sends that signal again. No other signal is used: an
environment may have alarms of its own.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, Self

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C; docker, systemd, SLURM; a terminal that is closed
GRACE, SAVING, DEADLINE = 2.5, 3.5, 4.2  # seconds after the first signal
AGAIN, TICK = 0.25, 0.01  # seconds between two reminders, and between two looks at the clock


class Interrupted(BaseException):
    """Raised by a signal's handler; not an Exception, so that nothing on the way out takes it for an error."""


class CtrlC(Interrupted, KeyboardInterrupt):
    """A person's, not an environment's."""


class Dropped(Interrupted):
    """The work under way was given up."""


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


class Interrupts(Noted):
    """The signals of a training, from its first line to its last."""

    def __init__(self) -> None:
        super().__init__()
        self.patient = False  # whether an iteration is under way, which should be finished
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
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        self._inside = False  # from here on a signal changes nothing
        with self._lock:  # a reminder that is on its way arrives before the handlers change
            pass
        super().__exit__(*error)

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
            os.write(2, f"\n{self.name}: this iteration is finished and saved if that is quick ...\n".encode())

    def _watch(self) -> None:
        main = threading.main_thread().ident
        assert main is not None  # it runs
        while self._inside:
            now = time.monotonic()
            if now > self._first_at + DEADLINE:
                os._exit(128 + self.number)
            with self._lock:
                if self._inside and now > self._due:
                    # again and again: what is raised inside a finalizer is swallowed
                    self._due = now + AGAIN
                    self._reminding = True
                    signal.pthread_kill(main, self.number)
            time.sleep(TICK)
