"""Standard streams that outlive whoever read them: after `| head -1` a program goes on, and nobody hears of it."""

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

    The signal stays ignored, as Python has it: a socket that its peer closes must not end the process.
    """
    sys.stdout, sys.stderr = _lasting(sys.stdout), _lasting(sys.stderr)


def _lasting(stream: TextIO) -> TextIO:
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
