"""Standard streams that never end a program, and the events that programs read from stdout.

What cannot be written to stdout or stderr is dropped, and noted: the reader left (`| head -1`), the stream was closed
(`>&-`, or by a library), the disk behind it is full, or it is a pipe that does not wait and nobody reads it.
An event is a line of JSON; docs/events.md says what each holds.
"""

import errno
import io
import json
import math
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

from stride.utils.user_error import describe_error, one_line

PATIENCE = 2.0  # seconds for a stream that would block, until the first time that was not enough
VERSION = 1  # of what events hold; keys may be added to it, none changes its meaning
FAILED, INTERRUPTED = "failed", "interrupted"
losses: dict[str, OSError] = {}  # by stream, the first error that something was dropped for
listeners: list[Callable[[str], None]] = []  # called with a line at the first loss of each stream


class Outlet(io.FileIO):
    """A descriptor to write to. What cannot be written is dropped, and the next write is tried again."""

    def __init__(self, number: int, stream: str) -> None:
        """`stream`: how the descriptor is called in a message."""
        super().__init__(number, "w", closefd=False)
        self._stream = stream
        self._inherited = os.get_inheritable(number)

    def write(self, data: Any) -> int:
        remaining = memoryview(data).cast("B")
        size = remaining.nbytes
        try:
            while remaining:
                remaining = remaining[self._write(remaining) :]
        except OSError as error:
            if self._stream not in losses:
                losses[self._stream] = error
                for listener in listeners:
                    listener(loss(self._stream))
        return size

    def _write(self, data: memoryview) -> int:
        """How many bytes were written; OSError where none can be."""
        # a number that was closed may be another file's by now; Python opens none that is inherited, as streams are
        if os.get_inheritable(self.fileno()) != self._inherited:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        while (written := super().write(data)) is None:
            poll = select.poll()
            poll.register(self.fileno(), select.POLLOUT)
            if self._stream in losses or not poll.poll(1000 * PATIENCE):
                raise BlockingIOError(errno.EAGAIN, "it would block")
        return written


class OutletText(io.TextIOWrapper):
    """Characters for an Outlet."""

    def close(self) -> None:
        """Only a flush: whoever closes sys.stdout, such as a world, does not close it for everybody."""
        self.flush()


def loss(stream: str) -> str:
    """Why not everything was written to this stream, in a line."""
    return f"{stream}: {losses[stream].strerror}; output that cannot be printed there is dropped"


def outlive_readers() -> None:
    """For the entry points, before anything is printed: stdout and stderr become Outlets.

    What was closed (`>&-`) is /dev/null from here on: else the next file that is opened would take its number, and what
    is printed would go there. The signal stays ignored, as Python has it: a socket that its peer closes must not end
    the process.
    """
    losses.clear()
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(nowhere(), True)  # the lowest number that is free is this one
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  (it stays)
    sys.stdout = _lasting(sys.stdout, "stdout", 1)
    sys.stderr = _lasting(sys.stderr, "stderr", 2)


def nowhere() -> int:
    """An open file that reads as empty and keeps nothing."""
    return os.open(os.devnull, os.O_RDWR)


def _lasting(stream: TextIO | None, name: str, number: int) -> TextIO:
    """The stream on an Outlet; None where it was closed when Python began."""
    if stream is None:
        stream = open(number, "w", closefd=False)  # noqa: SIM115  (it stays)
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    raw = Outlet(stream.fileno(), name)
    unbuffered = stream.write_through  # python -u
    return OutletText(
        raw if unbuffered else io.BufferedWriter(raw),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=unbuffered,
    )


def event_line(event: str, **details: object) -> str:
    """One event; a number that JSON does not know is null."""
    return json.dumps(_jsonable({"event": event, "version": VERSION, "time": round(time.time(), 3), **details}))


def _jsonable(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    return [_jsonable(item) for item in value] if isinstance(value, list | tuple) else value


class Events:
    """Writes events to a stream; whether anybody reads them makes no difference."""

    def __init__(self, stream: io.RawIOBase) -> None:
        self.over = False  # the last one was written
        self._stream = stream

    def emit(self, event: str, **details: object) -> None:
        self.over = event == "end"
        self._stream.write(f"{event_line(event, **details)}\n".encode())

    def end(self, result: str, error: str | None = None) -> None:
        """The last one, of a command that has no more to report."""
        if not self.over:
            self.emit("end", result=result, error=error)


@contextmanager
def only_events(*expected: type[Exception]) -> Iterator[Events]:
    """Stdout for events alone: what anybody else prints there meanwhile, a world or a library, goes to stderr.

    The last event is `end`, whatever happens, and an error is raised again. Its text is that of an `expected` error,
    with the name of the class for any other.
    """
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            events = Events(Outlet(stdout, "stdout"))
            try:
                yield events
                events.end(INTERRUPTED)
            except BaseException as error:
                text = one_line(str(error)) if isinstance(error, expected) else describe_error(error)
                events.end(INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED, text)
                raise
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)
