"""Makes stdout and stderr safe to write to, and writes the events that other programs read from stdout.

Output that cannot be written is dropped, and the error is stored in `losses`: the reader left (`| head -1`), the stream
was closed (`>&-`, or by a library), the disk is full, or it is a non-blocking pipe that nobody reads.
An event is a line of JSON; docs/events.md describes them.
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

PATIENCE = 2.0  # seconds to wait for a stream that would block; after the first loss there is no waiting
VERSION = 1  # of the content of events; keys may be added, none changes its meaning
FAILED, INTERRUPTED = "failed", "interrupted"
losses: dict[str, OSError] = {}  # "stdout" or "stderr" -> the first error because of which output was dropped
listeners: list[Callable[[str], None]] = []  # functions that get a message at the first loss of each stream


class Outlet(io.FileIO):
    """A file descriptor to write to. Output that cannot be written is dropped; the next write is tried again."""

    def __init__(self, number: int, stream: str) -> None:
        """`number`: the descriptor; `stream`: its name in messages, such as "stdout"."""
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
        """Write bytes and return how many; OSError if none can be written."""
        # if the descriptor was closed, another file may have its number now: but Python opens files as not inheritable,
        # while the standard streams are inheritable
        if os.get_inheritable(self.fileno()) != self._inherited:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        while (written := super().write(data)) is None:
            poll = select.poll()
            poll.register(self.fileno(), select.POLLOUT)
            if self._stream in losses or not poll.poll(1000 * PATIENCE):
                raise BlockingIOError(errno.EAGAIN, "it would block")
        return written


class OutletText(io.TextIOWrapper):
    """A text stream on top of an Outlet."""

    def close(self) -> None:
        """Flush only: an environment or library that closes sys.stdout must not close it for all code."""
        self.flush()


def loss(stream: str) -> str:
    """Return a line that says why output to this stream was dropped."""
    return f"{stream}: {losses[stream].strerror}; output that cannot be printed there is dropped"


def outlive_readers() -> None:
    """Make stdout and stderr Outlets; entry points call this before they print anything.

    A stream that was closed (`>&-`) becomes /dev/null: else the next file that is opened would get its number, and
    printed text would go into that file. SIGPIPE stays ignored, as Python sets it: a socket that the other side closes
    must not end the process.
    """
    losses.clear()
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(nowhere(), True)  # gets the lowest free number, which is this one
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  (it stays)
    sys.stdout = _lasting(sys.stdout, "stdout", 1)
    sys.stderr = _lasting(sys.stderr, "stderr", 2)


def nowhere() -> int:
    """Open /dev/null for reading and writing; return the descriptor."""
    return os.open(os.devnull, os.O_RDWR)


def _lasting(stream: TextIO | None, name: str, number: int) -> TextIO:
    """Return a text stream with an Outlet below it; `stream` is None if it was closed when Python started."""
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
    """Return one event as a line of JSON; NaN and infinities become null."""
    return json.dumps(_jsonable({"event": event, "version": VERSION, "time": round(time.time(), 3), **details}))


def _jsonable(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    return [_jsonable(item) for item in value] if isinstance(value, list | tuple) else value


class Events:
    """Writes events to a stream, even if nobody reads them."""

    def __init__(self, stream: io.RawIOBase) -> None:
        self.over = False  # whether the event "end" was written
        self._stream = stream

    def emit(self, event: str, **details: object) -> None:
        self.over = event == "end"
        self._stream.write(f"{event_line(event, **details)}\n".encode())

    def end(self, result: str, error: str | None = None) -> None:
        """Write the last event, "end", unless it was written already."""
        if not self.over:
            self.emit("end", result=result, error=error)


@contextmanager
def only_events(*expected: type[Exception]) -> Iterator[Events]:
    """Reserve stdout for events inside the block: what an environment or a library prints goes to stderr.

    The last event is always `end`. If the block raises, the event has the error's text (with the name of its class
    unless it is one of `expected`), and the error is raised again.
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
