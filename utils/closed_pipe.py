"""Standard streams that outlive whoever read them: after `| head -1` or `>&-` a program goes on, unheard."""

import errno
import io
import os
import stat
import sys
from typing import Any, TextIO


class Outlet(io.FileIO):
    """A descriptor to write to; once nobody reads the other end, what is written is dropped."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):  # EIO: the terminal was closed
                raise
            return memoryview(data).nbytes


def outlive_readers() -> None:
    """For the entry points, before anything is printed: stdout and stderr, if pipes or terminals, become Outlets.

    What was closed (`>&-`) is /dev/null from here on: else the next file that is opened would take its number, and what
    is printed would go there. The signal stays ignored, as Python has it: a socket that its peer closes must not end
    the process.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(nowhere(), True)  # the lowest number that is free is this one
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  (it stays)
    sys.stdout, sys.stderr = _lasting(sys.stdout, 1), _lasting(sys.stderr, 2)


def nowhere() -> int:
    """An open file that reads as empty and keeps nothing."""
    return os.open(os.devnull, os.O_RDWR)


def _lasting(stream: TextIO | None, number: int) -> TextIO:
    if stream is None:  # so it was when Python began
        return open(number, "w", closefd=False)
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    mode = os.fstat(stream.fileno()).st_mode
    if not stat.S_ISFIFO(mode) and not stat.S_ISCHR(mode):
        return stream
    stream.flush()
    raw = Outlet(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=stream.line_buffering
    )
