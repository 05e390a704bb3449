"""Runs commands side by side and yields each as it finishes; what the commands are is the caller's business.

A command does not outlive whoever started it: Linux sends it SIGTERM when that process dies, however it dies. macOS has
nothing of the kind: there a parent that is killed by SIGKILL leaves its commands to run to their end.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, NamedTuple

from stride.runstore.many.nursery import Fork, GoneError, nursery_of
from stride.runstore.many.parent_death import tied, wrapped

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

    process: subprocess.Popen[bytes] | Fork
    output: IO[bytes]

    @property
    def code(self) -> int:
        """Exit code of a child that has ended."""
        return_code = self.process.returncode
        assert return_code is not None
        return return_code


def run_all(
    commands: Sequence[Sequence[str]],
    workers: int,
    env: Mapping[str, str] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
    stop: Callable[[], object] = lambda: False,
    began: Callable[[int], object] = lambda index: None,
    program: Sequence[str] = (),
) -> Generator[Finished, None, None]:
    """At most `workers` commands at a time, each with `env` added to our environment, in the order they finish.

    `commands` may grow while this runs: whoever is told of an end may append what is to follow it.

    `began` is told the place of each as it is started. `meanwhile` is called again and again while nothing finishes,
    some twenty times a second. Once `stop` says so, nothing more is begun, and what runs is asked to end, then made to.

    `program`: with which every command begins, and which can be a nursery: where there are several commands it imports
    what they need once and forks for each.

    Ctrl-C, an error, or closing this generator ends the children (and theirs) before it passes on.
    """
    started_count = 0
    running: dict[int, Child] = {}
    deadline = 0.0  # until which those that were asked to end may live
    program = program if len(commands) > 1 else ()
    start = Start({**os.environ, **(env or {})}, program, commands[0][len(program) :] if commands else ())
    try:
        while running or (started_count < len(commands) and not deadline):
            while started_count < len(commands) and not deadline and len(running) < max(1, workers) and start.settled:
                running[started_count] = start(commands[started_count])
                began(started_count)
                started_count += 1
            ended = [index for index, child in running.items() if child.process.poll() is not None]
            for index in ended:
                child = running.pop(index)
                yield Finished(index, child.code, tail_of(child.output))
            if not deadline and stop():
                deadline = time.monotonic() + GRACE
                _signal(list(running.values()), signal.SIGTERM)
            elif deadline and time.monotonic() > deadline:
                _signal(list(running.values()), signal.SIGKILL)
            if not ended:
                meanwhile()
                time.sleep(POLL)
    finally:
        end_all(list(running.values()))
        start.close()


class Start:
    """How a command is started: forked by a nursery where there is one, else as a process of its own."""

    def __init__(
        self,
        env: Mapping[str, str],
        program: Sequence[str] = (),
        words: Sequence[str] = (),
        cwd: str | None = None,
        threads: bool = False,
    ) -> None:
        """`program` begins what a nursery forks, and `words` are what its first command says beside; `threads`: this
        process has some."""
        self._env, self._program, self._cwd, self._threads = env, [*program], cwd, threads
        self._nursery = nursery_of(program, words, env, cwd) if program and sys.platform == "linux" else None

    @property
    def settled(self) -> bool:
        """Whether nothing is gained by waiting."""
        return self._nursery is None or self._nursery.settled

    def __call__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> Child:
        """In a group of its own, so that a Ctrl-C reaches the child once, from us, with all it has started; `env`: its
        own, in place of everybody's."""
        env = self._env if env is None else env
        output = tempfile.TemporaryFile()  # noqa: SIM115  # closed by tail_of or end_all
        if self._nursery and [*command[: len(self._program)]] == self._program:
            with suppress(GoneError):
                return Child(self._nursery.fork(command[len(self._program) :], output.fileno(), env), output)
        process = subprocess.Popen(
            wrapped(command) if self._threads else command, env=env, cwd=self._cwd, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=None if self._threads else tied(),
        )  # fmt: skip
        return Child(process, output)

    def close(self) -> None:
        if self._nursery:
            self._nursery.close()


def tail_of(output: IO[bytes]) -> str:
    with output:
        output.seek(max(0, output.seek(0, os.SEEK_END) - TAIL))
        return output.read().decode(errors="replace")


def _signal(children: Sequence[Child], number: int) -> None:
    """To those that live, and to what they started."""
    for child in children:
        if child.process.poll() is None:
            with suppress(ProcessLookupError):  # a fork that has ended without our having heard of it
                os.killpg(child.process.pid, number)


def end_all(children: Sequence[Child], keep: bool = False) -> None:
    """Ask every child to end, then make it; `keep`: their output is read afterwards."""
    _signal(children, signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    for child in children:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal([child], signal.SIGKILL)
            child.process.wait()
        if not keep:
            child.output.close()
