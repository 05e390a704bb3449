"""`step_timeout`: a thread that looks at the worlds now and then, names the one that hangs, and ends the run.

A world that hangs in Python, or in a call that a signal can wake (sleeping, waiting for a lock or a socket), ends by an
EnvError with its file and line. One that goes on after that, or hangs in machine code, takes the process along, with
the same line and exit code 1. Machine code that hangs and keeps Python's lock stops this thread, too, unnoticed.
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

WAKE = signal.SIGURG  # ignored where nobody listens
HARD = 3.0  # seconds between the EnvError and the end of the process
Position = tuple[int, int]  # which time it is that worlds are stepped, and which world

last_words: list[Callable[[str], str]] = []  # called before the process ends by force: the line -> the line to print
_watched: "weakref.WeakSet[WatchedBlame]" = weakref.WeakSet()


class WatchedBlame(Blame):
    """Blame that another thread can ask where it is."""

    def __init__(self, env_id: str, envs: Sequence[Env], seconds: float) -> None:
        super().__init__(env_id, envs)
        self.seconds = seconds
        self.turn = 0
        self.inside = False
        self.hung: Position | None = None
        self._closed = threading.Event()
        if threading.current_thread() is threading.main_thread():  # signals can only be answered there
            signal.signal(WAKE, _raise_where_hung)
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
        """The step under way."""
        return (self.turn, self.world) if self.inside else None

    def error(self, frame: FrameType | None) -> EnvError:
        """The error of a step that hangs at this frame."""
        return self.accuse(f"no answer for {self.seconds:g} seconds (step_timeout)", of_stack(frame))

    def close(self) -> None:
        self._closed.set()


def make_blame(env_id: str, envs: Sequence[Env], seconds: float | None) -> Blame:
    """Blame for these worlds, watched where a limit is given."""
    return Blame(env_id, envs) if seconds is None else WatchedBlame(env_id, envs, seconds)


def _raise_where_hung(number: int, frame: FrameType | None) -> None:
    """In the main thread: raise, if it is still where it hung."""
    for blame in list(_watched):
        if blame.hung is not None and blame.hung == blame.position():
            raise blame.error(frame)


def _watch(reference: "weakref.ref[WatchedBlame]", closed: threading.Event, seconds: float) -> None:
    """Time is counted in looks, so that a process that was stopped for a while has not hung."""
    interval = min(seconds / 4, 1.0)
    previous: Position | None = None
    quiet = 0
    main = threading.main_thread().ident
    assert main is not None  # it runs
    while not closed.wait(interval):
        blame = reference()
        if blame is None:
            return
        position = blame.position()
        quiet = quiet + 1 if position is not None and position == previous else 0
        previous = position
        if quiet * interval >= seconds + HARD:
            _end(str(blame.error(sys._current_frames().get(main))))
        elif quiet * interval >= seconds:
            blame.hung = position
            signal.pthread_kill(main, WAKE)


def _end(line: str) -> None:
    for rewrite in last_words:
        line = rewrite(line)
    with suppress(OSError):
        os.write(2, f"error: {line}\n".encode())
    os._exit(1)
