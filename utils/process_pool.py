"""Runs commands side by side and yields each as it finishes; what the commands are is the caller's business."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple

TAIL = 4000  # bytes of output kept
POLL = 0.05  # seconds between looks at the children
GRACE = 5.0  # seconds a child has to end by itself once it was asked to


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
) -> Generator[Finished, None, None]:
    """At most `workers` commands at a time, each with `env` added to our environment, in the order they finish.

    `meanwhile` is called again and again while nothing finishes, some twenty times a second.

    Ctrl-C, an error, or closing this generator ends the children (and theirs) before it passes on.
    """
    waiting = list(enumerate(commands))[::-1]
    running: dict[int, Child] = {}
    try:
        while waiting or running:
            while waiting and len(running) < max(1, workers):
                index, command = waiting.pop()
                running[index] = _start(command, {**os.environ, **(env or {})})
            ended = [index for index, child in running.items() if child.process.poll() is not None]
            for index in ended:
                child = running.pop(index)
                yield Finished(index, child.process.returncode, _tail(child.output))
            if not ended:
                meanwhile()
                time.sleep(POLL)
    finally:
        _end(list(running.values()))


def _start(command: Sequence[str], env: Mapping[str, str]) -> Child:
    """In a session of its own, so that a Ctrl-C reaches the child once, from us, with all it has started."""
    output = tempfile.TemporaryFile()  # noqa: SIM115  # closed by _tail or _end
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )
    return Child(process, output)


def _tail(output: IO[bytes]) -> str:
    with output:
        output.seek(max(0, output.seek(0, os.SEEK_END) - TAIL))
        return output.read().decode(errors="replace")


def _end(children: list[Child]) -> None:
    """Ask every child to end, then make it."""
    alive = [child.process for child in children if child.process.poll() is None]
    for process in alive:
        os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    for process in alive:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for child in children:
        child.output.close()
