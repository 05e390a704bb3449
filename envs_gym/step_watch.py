"""Implements `step_timeout`: a thread checks whether a world hangs, and ends the run with an error that names it.

A world that hangs in Python code, or in a call that a signal interrupts (sleep, a lock, a socket), is an EnvError with
file and line. If it goes on after that, or hangs in machine code, the whole process ends with the same message and exit
code 1. One case is not found: machine code that hangs while it holds Python's lock (GIL) also stops this thread.
"""

import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self

from gymnasium import Env

from stride.envs_gym.blame import Blame, EnvError, of_stack

WAKE_SIGNAL = signal.SIGURG  # without a handler this signal does nothing
EXIT_SECONDS = 3.0  # from the EnvError to the end of the process, if the world still hangs
Position = tuple[int, int]  # (count of the `with` blocks so far, number of the world)

last_words: list[Callable[[str], str]] = []  # called before the process ends by force: message -> message to print
_watched: "weakref.WeakSet[WatchedBlame]" = weakref.WeakSet()


class WatchedBlame(Blame):
    """Blame with a time limit: another thread reads its position, and raises where that does not change."""

    def __init__(self, env_id: str, envs: Sequence[Env], seconds: float) -> None:
        super().__init__(env_id, envs)
        self.seconds = seconds
        self.turn = 0  # count of `with` blocks so far
        self.inside = False  # whether a `with` block is running
        self.hung: Position | None = None  # the position at which the time limit passed
        self._closed = threading.Event()
        if threading.current_thread() is threading.main_thread():  # only this thread can handle signals
            signal.signal(WAKE_SIGNAL, _raise_where_hung)
            _watched.add(self)
            threading.Thread(target=_watch, args=(weakref.ref(self), self._closed, seconds), daemon=True).start()

    def __enter__(self) -> Self:
        self.turn += 1
        self.inside = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.inside = False
        super().__exit__(kind, error, trace)

    def position(self) -> Position | None:
        """The running call; None between calls."""
        return (self.turn, self.world) if self.inside else None

    def error(self, frame: FrameType | None) -> EnvError:
        """Return the error for a call that hangs at this frame."""
        return self.accuse(f"no answer for {self.seconds:g} seconds (step_timeout)", of_stack(frame))

    def close(self) -> None:
        self._closed.set()


def make_blame(env_id: str, envs: Sequence[Env], seconds: float | None) -> Blame:
    """Return Blame for these worlds, with a time limit unless `seconds` is None."""
    return Blame(env_id, envs) if seconds is None else WatchedBlame(env_id, envs, seconds)


def _raise_where_hung(number: int, frame: FrameType | None) -> None:
    """Handle WAKE_SIGNAL in the main thread: raise if the call is still the one that hung."""
    for blame in list(_watched):
        if blame.hung is not None and blame.hung == blame.position():
            raise blame.error(frame)


def _watch(reference: "weakref.ref[WatchedBlame]", closed: threading.Event, seconds: float) -> None:
    """Run the watching thread until `closed` is set.

    It counts checks, not clock time: a process that was paused for a while must not count as hanging.
    """
    interval = min(seconds / 4, 1.0)
    previous: Position | None = None
    unchanged = 0  # checks in a row without a change
    main = threading.main_thread().ident
    assert main is not None  # the main thread runs
    while not closed.wait(interval):
        blame = reference()
        if blame is None:
            return
        position = blame.position()
        unchanged = unchanged + 1 if position is not None and position == previous else 0
        previous = position
        if unchanged * interval >= seconds + EXIT_SECONDS:
            _end(str(blame.error(sys._current_frames().get(main))))
        elif unchanged * interval >= seconds:
            blame.hung = position
            signal.pthread_kill(main, WAKE_SIGNAL)


def _end(message: str) -> None:
    """End the process at once with this error message."""
    for rewrite in last_words:
        message = rewrite(message)
    with suppress(OSError):
        os.write(2, f"error: {message}\n".encode())
    os._exit(1)
