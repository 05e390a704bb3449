"""A check in a process of its own, and who waits for it: one that hangs or dies is named like any other fault.

Light: what is to be checked, and torch, are only imported by that process.
"""

import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from stride.envs_gym.blame import is_users, shown
from stride.envs_gym.check.catalogue import finding
from stride.envs_gym.check.finding import Finding, Result
from stride.envs_gym.check.world import VERBS, Pulse
from stride.utils.child_process import nothing_from_here
from stride.utils.user_error import UserError

LOOK, ANSWER, GRACE = 0.1, 1.0, 2.0  # seconds: between two looks; to say where it hangs; to end by itself
IMPORT = 300.0  # in which everything must have been imported
LINE = re.compile(r'File "([^"]+)", line (\d+)')
Asked = tuple[str, dict[str, Any], int, float]  # the environment, its arguments, steps, seconds
Show = Callable[[str, float], object]  # the part under way, "" before the first, and seconds since the beginning


def check(words: str, kwargs: Mapping[str, Any], steps: int, seconds: float, timeout: float, show: Show) -> Result:
    """Everything there is to say of an environment; UserError where there is none of that name.

    `timeout`: seconds after which a call of its code that has not come back is said to hang.
    """
    # a new interpreter: this process may hold threads and locks that a plain fork would copy
    lasting = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver") if lasting else multiprocessing.get_context("spawn")
    request = words, dict(kwargs), steps, seconds
    return check_in(context, request, timeout, show)


def check_in(context: Any, request: Asked, timeout: float, show: Show) -> Result:
    """The same in a process of this context of multiprocessing."""
    pulse: Any = context.RawArray("q", 2)
    ours, theirs = context.Pipe()
    last, dying = context.Pipe(duplex=False)
    work = dict(os.environ), request, pulse, theirs, dying
    process = context.Process(target=_work, args=work, name="stride-check", daemon=True)
    with nothing_from_here():
        process.start()
    theirs.close()
    dying.close()
    try:
        return Watch(request[0], process, pulse, ours, last, timeout, show).result()
    finally:
        process.kill()
        process.join()
        ours.close()
        last.close()


def _work(variables: Mapping[str, str], request: Asked, *shared: Any) -> None:
    """In the new process: there torch may be imported."""
    os.environ.clear()
    os.environ.update(variables)
    from stride.envs_gym.check.examine import Limits, Request, work

    words, kwargs, steps, seconds = request
    work(Request(words, kwargs, Limits(steps, seconds)), *shared)


class Watch:
    """Reads what the process tells, and looks whether it still moves."""

    def __init__(
        self,
        words: str,
        process: BaseProcess,
        pulse: Pulse,
        pipe: Connection,
        last_words: Connection,
        timeout: float,
        show: Show,
    ) -> None:
        self._result = Result(words)
        self._process, self._pulse, self._pipe, self._last_words = process, pulse, pipe, last_words
        self._timeout, self._show = timeout, show
        self._part, self._begun = "", time.monotonic()
        self._seen, self._moved = (0, 0), self._begun

    def result(self) -> Result:
        going = True
        while going:
            self._show(self._part, time.monotonic() - self._begun)
            try:
                going = self._read() if self._pipe.poll(LOOK) else not self._hangs()
            except (EOFError, ConnectionResetError):
                self._died()
                going = False
        self._result.seconds = time.monotonic() - self._begun
        return self._result

    def _read(self) -> bool:
        """One message; whether there will be more."""
        told = self._pipe.recv()
        self._moved = time.monotonic()
        if told.kind == "part":
            self._part = told.part
        elif told.kind == "found":
            self._result.add(told.finding)
        elif told.kind == "facts":
            self._result.facts = told.facts
        elif told.kind == "echo":
            self._pipe.send(None)
        elif told.kind == "refused":
            raise UserError(told.text)
        elif told.kind == "broken":
            raise RuntimeError(f"the check itself failed, in {self._part!r}:\n{told.text}")
        elif told.kind == "end":
            self._result.stopped = told.text
            return False
        return True

    def _hangs(self) -> bool:
        now, count, verb = time.monotonic(), self._pulse[0], self._pulse[1]
        if (count, verb) != self._seen:
            self._seen, self._moved = (count, verb), now
        limit = IMPORT if not self._part else self._timeout
        if not verb or now - self._moved < limit:
            return False
        where = self._ask_where()
        seen = f"{VERBS[verb]}, call {count:,} of this check, gave no answer for {limit:g} seconds{where}"
        self._end(finding("hangs", seen))
        return True

    def _ask_where(self) -> str:
        """The line that runs, of the user's code if any is: answered by the process even inside machine code."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid or 0, signal.SIGUSR1)
        return self._line() if self._last_words.poll(ANSWER) else ""

    def _line(self) -> str:
        time.sleep(LOOK)  # it is written piece by piece
        text = os.read(self._last_words.fileno(), 1 << 16).decode(errors="replace")
        lines = [(file, int(number)) for file, number in LINE.findall(text)]
        own = [line for line in lines if is_users(line[0])]
        return f" ({shown(*own[0])})" if own else ""

    def _died(self) -> None:
        self._process.join(GRACE)
        code = self._process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        verb = VERBS[self._pulse[1]]
        where = self._line() if self._last_words.poll(0) else ""
        name = "render-fails" if verb == "render" else "process-died"  # a training draws nothing
        self._end(finding(name, f"the process {how} in {verb or 'none of its calls'}{where}"))

    def _end(self, last: Finding) -> None:
        self._result.add(last)
        self._result.stopped = f"it did not get past {self._part or 'its import'!r}"
