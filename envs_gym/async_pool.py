"""The parent's side of AsyncEnv's worker processes: starting, waiting with a limit, naming what went wrong, ending."""

import multiprocessing
import os
import signal
import sys
import time
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, NoReturn

from stride.envs_gym.async_worker import SharedBuffers, WorkerReply, WorkerSetup, WorkerTask, work
from stride.envs_gym.blame import EnvError, describe_exit, line_of_process
from stride.utils.child_process import nothing_from_here
from stride.utils.interrupted import ENDING

START = 300.0  # seconds in which a worker must have imported everything and built each next world
GRACE = 2.0  # seconds a worker has to end by itself
PRELOAD = ["torch", "stride.envs_gym.async_worker"]  # imported once by the fork server instead of by every worker
GONE = (EOFError, BrokenPipeError, ConnectionResetError)  # errors of a pipe whose other end is closed


class TracebackError(RuntimeError):
    """The traceback of another process, as text."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


@dataclass
class WorkerProcess:
    """One process, and what the parent knows of it."""

    index: int
    worlds: Sequence[int]
    process: BaseProcess
    pipe: Connection
    dump: Connection  # into which it writes the line that it hangs in
    deadline: float = 0.0  # for its next sign of life
    begun: int = 0  # steps that it had begun when the deadline was set
    asked: int = 0  # tasks of `send` that it has not answered

    def __str__(self) -> str:
        return f"worker {self.index} (pid {self.process.pid}, environments {self.worlds[0]} to {self.worlds[-1]})"

    def end(self, seconds: float) -> None:
        """Close its pipe, which ends it, and kill it where it does not notice in this time."""
        self.pipe.close()
        self.dump.close()
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.process.close()


class Pool:
    """Worker processes; the first failure closes the pool and is named.

    `restarts`: a process that dies or hangs is replaced instead; its reply then says that it was `lost`.
    """

    def __init__(
        self, setup: WorkerSetup, shared: SharedBuffers, groups: Sequence[Sequence[int]], timeout: float, restarts: bool
    ) -> None:
        """`groups`: the numbers of the worlds of each worker. `timeout`: seconds for one world's step or reset."""
        self.env_id = setup.env_id
        self._setup = setup
        self._shared = shared
        self._pulse = shared.pulse.numpy()
        self._failure = ""
        self.pids: list[int] = []
        self._workers: list[WorkerProcess] = []
        # runs when this object is collected, or at exit, or by close()
        self._end = weakref.finalize(self, end, os.getpid(), self._workers)
        self._restarts = False
        self._timeout = START
        for index, worlds in enumerate(groups):
            self._workers.append(self._start(index, worlds))
            self.pids.append(self._workers[-1].process.pid or 0)
        self._wait(range(len(groups)))
        self._restarts = restarts
        self._timeout = timeout

    def _start(self, index: int, worlds: Sequence[int]) -> WorkerProcess:
        pipe, child_pipe = multiprocessing.Pipe()
        dump, child_dump = multiprocessing.Pipe(duplex=False)
        arguments = (self._setup, worlds, self._shared, index, child_pipe, child_dump)
        has_server = "forkserver" in multiprocessing.get_all_start_methods()
        context: Any = multiprocessing.get_context("forkserver" if has_server else "spawn")
        if has_server:
            context.set_forkserver_preload(PRELOAD)
            with isolated():
                forkserver.ensure_running()
        # the server's processes ignore what it ignores; it imports for seconds, in which a signal is answered here
        with isolated(deaf=not has_server):
            process = context.Process(target=work, args=arguments, name=f"stride-worker-{index}", daemon=True)
            process.start()
        child_pipe.close()  # so that the worker's death ends the pipe
        child_dump.close()
        return WorkerProcess(index, worlds, process, pipe, dump)

    def run(self, tasks: Mapping[int, WorkerTask]) -> dict[int, WorkerReply]:
        """Have workers carry out a task each; their replies. EnvError where one failed, died or hangs."""
        self._check_open()
        replies = {}
        for index, task in tasks.items():
            try:
                self._workers[index].pipe.send(task)
            except (BrokenPipeError, ConnectionResetError):
                replies[index] = self._replace_dead(self._workers[index])
        return replies | self._wait(tasks.keys() - replies.keys())

    def send(self, index: int, task: WorkerTask) -> None:
        """Ask a worker and return at once; it answers in the order in which it was asked: `receive`."""
        self._check_open()
        worker = self._workers[index]
        if not worker.asked:
            self._renew(worker)
        worker.asked += 1
        with suppress(BrokenPipeError, ConnectionResetError):  # `receive` names what it died of
            worker.pipe.send(task)

    def receive(self) -> list[int]:
        """Wait for those that were sent a task; which have answered one, at least one. EnvError where one failed."""
        self._check_open()
        waiting = [worker for worker in self._workers if worker.asked]
        replies: dict[int, WorkerReply] = {}
        while not replies:
            replies = self._look(waiting)
        for index in replies:
            self._workers[index].asked -= 1
            self._renew(self._workers[index])
        return [*replies]

    def _check_open(self) -> None:
        if not self._end.alive:
            raise EnvError(f"the workers of {self.env_id} are gone: {self._failure or 'the environment was closed'}")

    def _wait(self, indices: Collection[int]) -> dict[int, WorkerReply]:
        """One reply of each of these workers."""
        replies: dict[int, WorkerReply] = {}
        waiting = [self._workers[index] for index in indices]
        for worker in waiting:
            self._renew(worker)
        while waiting:
            replies |= self._look(waiting)
            waiting = [worker for worker in waiting if worker.index not in replies]
        return replies

    def _look(self, waiting: Sequence[WorkerProcess]) -> dict[int, WorkerReply]:
        """The replies that are ready, after a wait for the first; none where a deadline passed meanwhile."""
        replies: dict[int, WorkerReply] = {}
        seconds = min(worker.deadline for worker in waiting) - time.monotonic()
        ready = connection.wait([worker.pipe for worker in waiting], max(0.0, seconds))
        now = time.monotonic()
        for worker in waiting:
            if worker.pipe in ready:
                replies[worker.index] = self._read(worker)
            elif not ready and worker.deadline <= now:
                # the limit is for one world's step: a worker that has begun another one since gets a new limit
                if self._begun(worker) == worker.begun:
                    line = line_of_process(worker.process.pid or 0, worker.dump)
                    problem = f"no answer for {self._timeout:g} seconds{self._in_world(worker)}{line}"
                    replies[worker.index] = self._replace(worker, f"{self.env_id}, {worker}: {problem}")
                self._renew(worker)
        return replies

    def _renew(self, worker: WorkerProcess) -> None:
        worker.deadline = time.monotonic() + self._timeout
        worker.begun = self._begun(worker)

    def _begun(self, worker: WorkerProcess) -> int:
        return int(self._pulse[worker.index, 1])

    def _in_world(self, worker: WorkerProcess) -> str:
        world = int(self._pulse[worker.index, 0])
        return f" in environment {world}" if world >= 0 else ""

    def _read(self, worker: WorkerProcess) -> WorkerReply:
        try:
            return self._receive(worker)
        except GONE:
            return self._replace_dead(worker)

    def _receive(self, worker: WorkerProcess) -> WorkerReply:
        reply: WorkerReply = worker.pipe.recv()
        if reply.error:
            message = f"{self.env_id}, environment {reply.failed} (worker {worker.index}): {reply.error}"
            self.fail(message, TracebackError(reply.trace))
        return reply

    def _replace_dead(self, worker: WorkerProcess) -> WorkerReply:
        """Name the error that is still in the broken pipe, else the death of the worker."""
        with suppress(*GONE):
            while True:
                self._receive(worker)
        worker.process.join(GRACE)
        problem = f"the worker {describe_exit(worker.process.exitcode)}{self._in_world(worker)}"
        return self._replace(worker, f"{self.env_id}, {worker}: {problem}")

    def _replace(self, worker: WorkerProcess, message: str) -> WorkerReply:
        """Start a new process, with new worlds, for one that is lost; EnvError where that is not wanted."""
        if not self._restarts:
            self.fail(message)
        worker.process.kill()
        worker.end(GRACE)
        new = self._workers[worker.index] = self._start(worker.index, worker.worlds)
        self.pids[worker.index] = new.process.pid or 0
        try:
            built = new.pipe.poll(START) and self._receive(new)
        except (EOFError, ConnectionResetError):
            built = False
        if not built:
            self.fail(f"{message}; the restarted worker could not make the environments")
        return WorkerReply(lost=message)

    def fail(self, message: str, cause: Exception | None = None) -> NoReturn:
        """End every worker; EnvError."""
        self._failure = message
        for worker in self._workers:
            worker.process.kill()  # nobody needs the others any more, and they may hang as well
        self._end()
        raise EnvError(message) from cause

    def close(self) -> None:
        """End every worker; a second call does nothing."""
        self._end()


@contextmanager
def isolated(deaf: bool = True) -> Iterator[None]:
    """Start processes that run neither the program's main file nor files beside it.

    `deaf`: they ignore ENDING signals, and so does this one meanwhile. A signal to all processes, as SLURM and
    `timeout` send it, is for the parent: it still needs its workers.
    """
    main = sys.modules["__main__"]
    with nothing_from_here():
        resource_tracker.ensure_running()  # first, as it unblocks SIGINT and SIGTERM when it starts
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING if deaf else ())
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        with nothing_from_here():
            yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def end(owner: int, workers: list[WorkerProcess]) -> None:
    """End all workers, in the process that owns them, and not in a fork of it."""
    if os.getpid() != owner:
        return
    for worker in workers:
        worker.pipe.close()  # all first, so that they end at the same time
    deadline = time.monotonic() + GRACE
    for worker in workers:
        worker.end(max(0.0, deadline - time.monotonic()))
