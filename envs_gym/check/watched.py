"""Starts check-env in a process of its own and watches it: a process that hangs or dies is reported as a fault.

This module imports nothing heavy: only the new process imports torch and the environment.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from stride.envs_gym.blame import describe_exit, line_of_dump, line_of_process
from stride.envs_gym.check.finding import CheckResult, EnvFinding, finding
from stride.envs_gym.check.world import VERBS, Pulse
from stride.utils.child_process import nothing_from_here
from stride.utils.user_error import UserError

POLL_SECONDS, GRACE_SECONDS = 0.1, 2.0  # between two looks at the process; for it to end by itself
IMPORT_SECONDS = 300.0  # limit for all imports of the process
CheckRequest = tuple[str, dict[str, Any], int, float]  # (environment, its arguments, steps, seconds)
Show = Callable[[str, float], object]  # gets (part under way, "" before the first; seconds since the beginning)


def check(name: str, kwargs: Mapping[str, Any], steps: int, seconds: float, timeout: float, show: Show) -> CheckResult:
    """Check an environment and return the report; UserError for an unknown name.

    `timeout`: seconds after which a call of the environment counts as hanging. `show`: is called about ten times a
    second with the progress.
    """
    # a new interpreter: a plain fork would copy threads and locks of this process
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    return check_in(multiprocessing.get_context(method), (name, dict(kwargs), steps, seconds), timeout, show)


def check_in(context: Any, request: CheckRequest, timeout: float, show: Show) -> CheckResult:
    """Run a check in a process that this multiprocessing context starts; return the report."""
    pulse: Pulse = context.RawArray("q", 2)
    pipe, child_pipe = context.Pipe()
    dump, child_dump = context.Pipe(duplex=False)
    arguments = (dict(os.environ), request, pulse, child_pipe, child_dump)
    process = context.Process(target=_work, args=arguments, name="stride-check", daemon=True)
    with nothing_from_here():
        process.start()
    child_pipe.close()
    child_dump.close()
    try:
        return CheckWatch(CheckResult(request[0]), process, pulse, pipe, dump, timeout, show).result()
    finally:
        process.kill()
        process.join()
        pipe.close()
        dump.close()


def _work(variables: Mapping[str, str], request: CheckRequest, *shared: Any) -> None:
    """The main function of the new process; only it imports torch."""
    os.environ.clear()
    os.environ.update(variables)
    from stride.envs_gym.check.examine import CheckLimits, work

    name, kwargs, steps, seconds = request
    work(name, kwargs, CheckLimits(steps, seconds), *shared)


@dataclass
class CheckWatch:
    """Reads the messages of the checking process, and finds out whether it hangs or has died."""

    _result: CheckResult
    _process: BaseProcess
    _pulse: Pulse
    _pipe: Connection
    _dump: Connection
    _timeout: float
    _show: Show

    def result(self) -> CheckResult:
        """Watch the process to its end and return the report."""
        self._part = ""
        self._start = self._moved = time.monotonic()
        self._last_pulse = [0, 0]
        self._running = True
        while self._running:
            self._show(self._part, time.monotonic() - self._start)
            try:
                if self._pipe.poll(POLL_SECONDS):
                    self._read()
                else:
                    self._check_hanging()
            except (EOFError, ConnectionResetError):
                self._report_death()
        self._result.seconds = time.monotonic() - self._start
        return self._result

    def _read(self) -> None:
        """Read one message (kind, value) from examine.py and act on it."""
        kind, value = self._pipe.recv()
        self._moved = time.monotonic()
        if kind == "part":
            if not self._part:  # the clock starts here: imports of torch and the environment are not counted
                self._start = self._moved
            self._part = value
        elif kind == "finding":
            self._result.add(value)
        elif kind == "measurements":
            self._result.measurements = value
        elif kind == "echo":
            self._pipe.send(None)
        elif kind == "refused":
            raise UserError(value)
        elif kind == "broken":
            raise RuntimeError(f"the check itself failed, in {self._part!r}:\n{value}")
        elif kind == "end":
            self._result.stopped = value
            self._running = False

    def _check_hanging(self) -> None:
        """Report a hang if the count of calls has not changed for the time limit."""
        now = time.monotonic()
        count, verb = pulse = list(self._pulse)
        if pulse != self._last_pulse:
            self._last_pulse = pulse
            self._moved = now
        limit = self._timeout if self._part else IMPORT_SECONDS
        if verb and now - self._moved >= limit:
            line = line_of_process(self._process.pid or 0, self._dump)
            evidence = f"{VERBS[verb]}, call {count:,} of this check, did not return in {limit:g} seconds{line}"
            self._stop(finding("hangs", evidence))

    def _report_death(self) -> None:
        """Report a process that has died, with the call and the line that it was in."""
        self._process.join(GRACE_SECONDS)
        verb = VERBS[self._pulse[1]]
        call = verb or "none of its calls"
        name = "render-fails" if verb == "render" else "process-died"  # less serious: a training does not draw
        evidence = f"the process {describe_exit(self._process.exitcode)} in {call}{line_of_dump(self._dump)}"
        self._stop(finding(name, evidence))

    def _stop(self, last: EnvFinding) -> None:
        self._result.add(last)
        self._result.stopped = f"it stopped at {self._part or 'its import'!r}"
        self._running = False
