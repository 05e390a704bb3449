"""Runs commands side by side and yields each as it finishes; what the commands are is the caller's business.

On Linux trainings are forked from a server that has imported what each of them needs (multiprocessing's fork server);
other commands, and trainings elsewhere, where forking what has loaded torch is not safe, are started as processes.

A command does not outlive the process that started it: Linux sends it SIGTERM when that process dies, however it dies.
macOS has nothing of the kind: there a parent that is killed by SIGKILL leaves its commands to run to their end.
"""

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from subprocess import DEVNULL, STDOUT, Popen, TimeoutExpired
from types import ModuleType

from stride.utils import child_end, places, quick_start
from stride.utils.child_path import nothing_from_here
from stride.utils.closed_pipe import nowhere, outlive_readers
from stride.utils.interrupted import ENDING

TRAIN = places.program("train")  # commands that begin so are forked
SERVED = "stride.commands.train_served"  # imported by the server; its `command(arguments)` is what a fork runs
SERVER = "STRIDE_FORK_SERVER"  # to the server alone: the process that started it
TAIL = 4000  # bytes of output that a Finished has
POLL = 0.05  # seconds between looks at the children
GRACE = 5.0  # seconds a child has to end by itself once it was asked to
SERVER_DIED = 255  # the exit code that multiprocessing gives where the server died and took it along
LOST = 128 + signal.SIGTERM  # what we say then: the fork is sent SIGTERM, saves, and its own code is not known
server_id = 0  # in the server and its forks: the server's pid


@dataclass(frozen=True)
class Finished:
    """One command that ended."""

    index: int  # in the list of commands
    returncode: int
    output_tail: str  # the end of what it wrote to stdout and stderr


def run_all(
    commands: Sequence[Sequence[str]],
    workers: int,
    env: Mapping[str, str] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
    stop: Callable[[], object] = lambda: False,
    began: Callable[[int], object] = lambda index: None,
) -> Generator[Finished, None, None]:
    """At most `workers` commands at a time, each with `env` added to our environment, in the order they finish.

    `commands` may grow while this runs: the consumer of a Finished may append what is to follow it. A single command is
    not worth a server.

    `began` is called with the index of each as it is started. `meanwhile` is called again and again while nothing
    finishes, some twenty times a second. Once `stop` is true, no more commands are started, and those that run are
    asked to end, then killed.

    Ctrl-C, an error, or closing this generator ends the children (and theirs) before it passes on.
    """
    started = 0
    running: dict[int, Child] = {}
    deadline = 0.0  # until which those that were asked to end may live
    environment = {**os.environ, **(env or {})}
    fork = len(commands) > 1
    try:
        while running or (started < len(commands) and not deadline):
            while started < len(commands) and not deadline and len(running) < max(1, workers):
                running[started] = Child(commands[started], environment, os.getcwd(), fork)
                began(started)
                started += 1
            ended = [index for index, child in running.items() if child.code() is not None]
            for index in ended:
                yield running.pop(index).finished(index)
            if not deadline and stop():
                deadline = time.monotonic() + GRACE
                _signal_all(running.values(), signal.SIGTERM)
            elif deadline and time.monotonic() > deadline:
                _signal_all(running.values(), signal.SIGKILL)
            if not ended:
                meanwhile()
                time.sleep(POLL)
    finally:
        end_all(running.values())


class Child:
    """A command that runs in a session of its own, and the file that its output goes to.

    In a session of its own a Ctrl-C reaches it once, from us, with all that it has started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: str, fork: bool = True) -> None:
        """`fork`: by the server, where the command is a training."""
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # closed by finished or close
        process: Popen[bytes] | ForkServerProcess | None = None
        if fork and sys.platform == "linux" and [*command[: len(TRAIN)]] == TRAIN:
            process = _forked([*command[len(TRAIN) :]], environment, folder, self._output.fileno())
        self._process = process or _started(command, environment, folder, self._output.fileno())

    def code(self) -> int | None:
        """The exit code, -N where signal N ended it; None while it runs."""
        if isinstance(self._process, Popen):
            return self._process.poll()
        return LOST if self._process.exitcode == SERVER_DIED else self._process.exitcode

    def signal(self, number: int) -> None:
        """To it, where it lives, and to what it has started."""
        if self.code() is not None:
            return
        pid = self._process.pid
        assert pid is not None  # it was started
        with suppress(ProcessLookupError):
            try:
                os.killpg(pid, number)
            except ProcessLookupError:  # it has no session of its own yet
                os.kill(pid, number)

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it has ended by then."""
        if isinstance(self._process, Popen):
            with suppress(TimeoutExpired):
                self._process.wait(seconds)
        else:
            self._process.join(seconds)
        return self.code() is not None

    def end(self, seconds: float) -> None:
        """Ask it to end within these seconds, then kill it."""
        self.signal(signal.SIGTERM)
        if not self.wait(max(0.0, seconds)):
            self.signal(signal.SIGKILL)
            self.wait()

    def finished(self, index: int) -> Finished:
        """The result of a child that has ended; its output is closed."""
        code = self.code()
        assert code is not None
        with self._output as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            return Finished(index, code, file.read().decode(errors="replace"))

    def close(self) -> None:
        self._output.close()


def _started(command: Sequence[str], environment: Mapping[str, str], folder: str, output: int) -> Popen[bytes]:
    """In a process of its own."""
    tied = [sys.executable, "-P", child_end.__file__, str(os.getpid()), *command]
    return Popen(tied, env=environment, cwd=folder, stdin=DEVNULL, stdout=output, stderr=STDOUT, start_new_session=True)


def _forked(arguments: list[str], environment: Mapping[str, str], folder: str, output: int) -> ForkServerProcess | None:
    """A training, forked by the server; None where that dies while it imports."""
    start_server(environment)
    with Connection(os.dup(output), readable=False) as file, _without_main(), suppress(OSError, EOFError):
        process = multiprocessing.get_context("forkserver").Process(
            target=_run_in_fork, args=(SERVED, arguments, dict(environment), folder, file)
        )
        process.start()
        return process
    return None


def start_server(environment: Mapping[str, str]) -> None:
    """Have the server import what trainings need, if it does not already; this returns at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, SERVED])
    before = dict(os.environ)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # the server inherits this, until it has left our group
    try:
        set_variables({**environment, SERVER: str(os.getpid())})
        with nothing_from_here(), _without_main():
            resource_tracker.ensure_running()  # first, as it unblocks SIGINT and SIGTERM when it starts
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
            forkserver.ensure_running()
    finally:
        set_variables(before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _become_server(parent: int) -> None:
    """In the server, before it imports what takes seconds: it leaves the session of its parent, and ends with it."""
    global server_id
    server_id = os.getpid()
    os.setsid()
    child_end.stop_with_parent(parent)
    _redirect((0, 1, 2), nowhere())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def check_server() -> None:
    """When SERVED has imported everything: a lock that a thread holds would stay locked in each fork."""
    assert threading.active_count() == 1, threading.enumerate()


def _run_in_fork(
    module: str, arguments: list[str], environment: Mapping[str, str], folder: str, output: Connection
) -> None:
    """Set up the fork as a process of its own would be, then train."""
    os.setsid()
    child_end.stop_with_parent(server_id)
    _redirect((1, 2), output.fileno())
    output.close()
    set_variables(environment)
    os.chdir(folder)
    sys.argv = [TRAIN[-1], *arguments]
    outlive_readers()
    quick_start.leave(import_module(module).command(arguments))


def _redirect(descriptors: Sequence[int], file: int) -> None:
    """These are the open file from now on."""
    for descriptor in descriptors:
        os.dup2(file, descriptor)


def set_variables(environment: Mapping[str, str]) -> None:
    """Our environment is this one from now on; what stays is not touched, as other threads may read it."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in environment.items() if os.environ.get(name) != value})


@contextmanager
def _without_main() -> Iterator[None]:
    """Within, what multiprocessing starts does not run the main file of this program."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _signal_all(children: Iterable[Child], number: int) -> None:
    for child in children:
        child.signal(number)


def end_all(children: Iterable[Child]) -> None:
    """Ask every child to end, then kill it; their output is closed."""
    children = list(children)
    _signal_all(children, signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    for child in children:
        child.end(deadline - time.monotonic())
        child.close()


if SERVER in os.environ:
    _become_server(int(os.environ.pop(SERVER)))
