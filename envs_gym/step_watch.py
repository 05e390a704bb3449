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

import gymnasium

from stride.envs_gym.blame import Blame, EnvError, of_stack

WAKE = signal.SIGURG  # ignored where nobody listens
HARD = 3.0  # seconds between the EnvError and the end of the process
Position = tuple[int, int]  # which time it is that worlds are stepped, and which world

last_words: list[Callable[[str], str]] = []  # before the process ends by force: the line -> what to say
_watched: "weakref.WeakSet[WatchedBlame]" = weakref.WeakSet()


class WatchedBlame(Blame):
    """Blame that leaves a trace of where it is."""

    def __init__(self, env_id: str, envs: Sequence[gymnasium.Env], seconds: float) -> None:
        super().__init__(env_id, envs)
        self.seconds, self.turn, self.inside = seconds, 0, False
        self.hung: Position | None = None
        self._closed = threading.Event()
        if threading.current_thread() is threading.main_thread():  # only there signals can be answered
            signal.signal(WAKE, _answer)
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

    def now(self) -> Position | None:
        """What is under way."""
        return (self.turn, self.world) if self.inside else None

    def error(self, frame: FrameType | None) -> EnvError:
        """What to say of the step that hangs at this frame."""
        return self.accuse(f"no answer for {self.seconds:g} seconds (step_timeout)", of_stack(frame))

    def close(self) -> None:
        """Look no more."""
        self._closed.set()


def blame(env_id: str, envs: Sequence[gymnasium.Env], seconds: float | None) -> Blame:
    """For these worlds, watched where a limit is given."""
    return Blame(env_id, envs) if seconds is None else WatchedBlame(env_id, envs, seconds)


def _answer(number: int, frame: FrameType | None) -> None:
    """In the main thread: raise where it stands, if it still stands there."""
    for each in list(_watched):
        if each.hung is not None and each.hung == each.now():
            raise each.error(frame)


def _watch(found: "weakref.ref[WatchedBlame]", closed: threading.Event, seconds: float) -> None:
    """Time is counted in looks, so that a process that was stopped for a while has not hung."""
    tick = min(seconds / 4, 1.0)
    seen: Position | None = None
    quiet = 0
    main = threading.main_thread().ident
    assert main is not None  # it runs
    while not closed.wait(tick):
        each = found()
        if each is None:
            return
        now = each.now()
        quiet = quiet + 1 if now is not None and now == seen else 0
        seen = now
        if quiet * tick >= seconds + HARD:
            _end(str(each.error(sys._current_frames().get(main))))
        elif quiet * tick >= seconds:
            each.hung = now
            signal.pthread_kill(main, WAKE)


def _end(line: str) -> None:
    for write in last_words:
        line = write(line)
    with suppress(OSError):
        os.write(2, f"error: {line}\n".encode())
    os._exit(1)
