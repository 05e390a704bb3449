"""Runs commands side by side and yields each as it finishes; what the commands are is the caller's business.

A command does not outlive whoever started it: Linux sends it SIGTERM when that process dies, however it dies. macOS has
nothing of the kind: there a parent that is killed by SIGKILL leaves its commands to run to their end.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple

TAIL = 4000  # bytes of output kept
POLL = 0.05  # seconds between looks at the children
GRACE = 5.0  # seconds a child has to end by itself once it was asked to
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Finished:
    """One command that ended."""

    index: int  # its place in the list of commands
    returncode: int
    output_tail: str  # the end of what it wrote to stdout and stderr


class Child(NamedTuple):
    """A running command and the file its output goes to."""

    process: subprocess.Popen[bytes]
    output: IO[bytes]


def run_all(
    commands: Sequence[Sequence[str]],
    workers: int,
    env: Mapping[str, str] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
    stop: Callable[[], object] = lambda: False,
    began: Callable[[int], object] = lambda index: None,
) -> Generator[Finished, None, None]:
    """At most `workers` commands at a time, each with `env` added to our environment, in the order they finish.

    `began` is told the place of each as it is started. `meanwhile` is called again and again while nothing finishes,
    some twenty times a second. Once `stop` says so, nothing more is begun, and what runs is asked to end, then made to.

    Ctrl-C, an error, or closing this generator ends the children (and theirs) before it passes on.
    """
    waiting = list(enumerate(commands))[::-1]
    running: dict[int, Child] = {}
    deadline = 0.0  # until which those that were asked to end may live
    try:
        while waiting or running:
            while waiting and len(running) < max(1, workers):
                index, command = waiting.pop()
                running[index] = _start(command, {**os.environ, **(env or {})})
                began(index)
            ended = [index for index, child in running.items() if child.process.poll() is not None]
            for index in ended:
                child = running.pop(index)
                yield Finished(index, child.process.returncode, _tail(child.output))
            if not deadline and stop():
                deadline, waiting = time.monotonic() + GRACE, []
                _signal(list(running.values()), signal.SIGTERM)
            elif deadline and time.monotonic() > deadline:
                _signal(list(running.values()), signal.SIGKILL)
            if not ended:
                meanwhile()
                time.sleep(POLL)
    finally:
        _end(list(running.values()))


def _start(command: Sequence[str], env: Mapping[str, str]) -> Child:
    """In a session of its own, so that a Ctrl-C reaches the child once, from us, with all it has started."""
    output = tempfile.TemporaryFile()  # noqa: SIM115  # closed by _tail or _end
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        preexec_fn=_tie(),
    )  # fmt: skip
    return Child(process, output)


def _tie() -> Callable[[], None] | None:
    """For a child, before it becomes its command: SIGTERM is to come when the parent dies, at once if it is dead.

    It is the thread that starts the child whose end counts, so commands are run by a thread that lasts.
    """
    if sys.platform != "linux":
        return None
    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl  # looked up here: after a fork as little as possible is done

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)

    return tie


def _tail(output: IO[bytes]) -> str:
    with output:
        output.seek(max(0, output.seek(0, os.SEEK_END) - TAIL))
        return output.read().decode(errors="replace")


def _signal(children: Sequence[Child], number: int) -> None:
    """To those that live, and to what they started."""
    for child in children:
        if child.process.poll() is None:
            os.killpg(child.process.pid, number)


def _end(children: list[Child]) -> None:
    """Ask every child to end, then make it."""
    _signal(children, signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    for child in children:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal([child], signal.SIGKILL)
            child.process.wait()
        child.output.close()
