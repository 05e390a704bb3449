"""What programs read of a command: an event a line, JSON on stdout, and nothing else there; docs/events.md says what
each holds."""

import io
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout

from stride.utils.closed_pipe import Outlet
from stride.utils.one_line import describe_error, one_line

VERSION = 1  # of what events hold; keys may be added to it, none changes its meaning
FAILED, INTERRUPTED = "failed", "interrupted"


def line(event: str, **facts: object) -> str:
    """One event; a number that JSON does not know is null."""
    told = {"event": event, "version": VERSION, "time": round(time.time(), 3), **facts}
    return json.dumps(_plain(told))


def _plain(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


class Events:
    """Where they are said; whether anybody reads them makes no difference."""

    def __init__(self, stream: io.RawIOBase) -> None:
        self.over = False  # the last one was said
        self._stream = stream

    def say(self, event: str, **facts: object) -> None:
        self.over = event == "end"
        self._stream.write(f"{line(event, **facts)}\n".encode())

    def end(self, result: str, error: str | None = None) -> None:
        """The last one, of a command that cannot tell more."""
        if not self.over:
            self.say("end", result=result, error=error)


@contextmanager
def only_events(*told: type[Exception]) -> Iterator[Events]:
    """Stdout for events alone: what anybody else prints there meanwhile, a world or a library, goes to stderr.

    The last event is `end`, whatever happens; an error goes on. Those `told` speak for themselves, others by name.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            events = Events(Outlet(kept, "stdout"))
            try:
                yield events
                events.end(INTERRUPTED)
            except BaseException as error:
                words = one_line(str(error)) if isinstance(error, told) else describe_error(error)
                events.end(INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED, words)
                raise
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
