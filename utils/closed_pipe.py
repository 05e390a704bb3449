"""Standard streams that never end a program: what cannot be written to stdout or stderr is dropped, and noted.

The reader left (`| head -1`), the stream was closed (`>&-`, or by a library), the disk behind it is full, or it is a
pipe that does not wait and nobody reads it.
"""

import errno
import io
import os
import select
import sys
from collections.abc import Callable
from typing import Any, TextIO

PATIENCE = 2.0  # seconds for a stream that would block, until the first time that was not enough
losses: dict[str, OSError] = {}  # by stream, the first error that something was dropped for
listeners: list[Callable[[str], None]] = []  # called with a line at the first loss of each stream


class Outlet(io.FileIO):
    """A descriptor to write to. What cannot be written is dropped, and the next write is tried again."""

    def __init__(self, number: int, stream: str) -> None:
        """`stream`: how the descriptor is called in a message."""
        super().__init__(number, "w", closefd=False)
        self._stream, self._inherited = stream, os.get_inheritable(number)

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = left.nbytes
        try:
            while left:
                left = left[self._write(left) :]
        except OSError as error:
            if self._stream not in losses:
                losses[self._stream] = error
                for tell in listeners:
                    tell(loss(self._stream))
        return size

    def _write(self, data: memoryview) -> int:
        """How many bytes were written; OSError where none can be."""
        # a number that was closed may be another file's by now; Python opens none that is inherited, as streams are
        if os.get_inheritable(self.fileno()) != self._inherited:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        while (written := super().write(data)) is None:
            room = select.poll()
            room.register(self.fileno(), select.POLLOUT)
            if self._stream in losses or not room.poll(1000 * PATIENCE):
                raise BlockingIOError(errno.EAGAIN, "it would block")
        return written


class Text(io.TextIOWrapper):
    """Characters for an Outlet."""

    def close(self) -> None:
        """Only a flush: whoever closes sys.stdout, such as a world, does not close it for everybody."""
        self.flush()


def loss(stream: str) -> str:
    """Why not all was written to this stream, in a line."""
    return f"{stream}: {losses[stream].strerror}; what cannot be printed there is dropped"


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
    sys.stdout, sys.stderr = _lasting(sys.stdout, "stdout", 1), _lasting(sys.stderr, "stderr", 2)


def nowhere() -> int:
    """An open file that reads as empty and keeps nothing."""
    return os.open(os.devnull, os.O_RDWR)


def _lasting(stream: TextIO | None, name: str, number: int) -> TextIO:
    if stream is None:  # so it was when Python began
        stream = open(number, "w", closefd=False)  # noqa: SIM115  (it stays)
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    raw = Outlet(stream.fileno(), name)
    return Text(
        # python -u
        raw if stream.write_through else io.BufferedWriter(raw),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
