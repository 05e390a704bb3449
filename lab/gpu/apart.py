"""Work in a process of its own: it may hang, crash or spoil the device, and only what it had not yet said is lost.

The process is forked, so that it starts with everything imported; who forks must never have touched the device.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from lab.gpu.parts import Found
from stride.utils.one_line import describe_error

Work = Callable[[], Iterator[Found]]

_fork = multiprocessing.get_context("fork")


class ApartError(Exception):
    """How the work broke off, in one line."""


def apart(work: Work, seconds: float) -> Iterator[Found]:
    """What `work` yields; ApartError where it raises, dies, or is not done in time. It leaves no process behind."""
    reader, writer = _fork.Pipe(duplex=False)
    child = _fork.Process(target=_say, args=(work, writer))
    child.start()
    writer.close()
    until = time.monotonic() + seconds
    try:
        while reader.poll(max(0.0, until - time.monotonic())):
            try:
                said = reader.recv()
            except EOFError:
                child.join(max(0.0, until - time.monotonic()))
                if child.exitcode:
                    raise ApartError(_death(child.exitcode)) from None
                return
            if isinstance(said, str):
                raise ApartError(said)
            yield said
        raise ApartError(f"stopped: not done within its {seconds:.0f} s")
    finally:
        _end(child)
        reader.close()


def _say(work: Work, writer: Connection) -> None:
    """The child's life."""
    os.setsid()  # what it starts is ended with it
    try:
        for found in work():
            writer.send(found)
    except BaseException as error:
        writer.send(describe_error(error))
        raise


def _end(child: BaseProcess) -> None:
    """With all that it has started."""
    assert child.pid is not None
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()  # also where it has no group of its own yet
    child.join()


def _death(code: int) -> str:
    return f"its process died by {signal.Signals(-code).name}" if code < 0 else f"its process ended with code {code}"
