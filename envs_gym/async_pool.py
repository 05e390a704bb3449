"""Starts, watches, replaces and ends AsyncEnv's worker processes; this is the parent's side.

The parent waits for answers with a time limit. Its errors name the worker, the world and the line of code.
"""

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

START_SECONDS = 300.0  # a new worker's limit for all imports, and again for each world that it makes
GRACE_SECONDS = 2.0  # time that a worker has to end by itself before it is killed
PRELOAD = ["torch", "stride.envs_gym.async_worker"]  # imported once by the fork server instead of by every worker
CLOSED_PIPE_ERRORS = (EOFError, BrokenPipeError, ConnectionResetError)  # the other end of the pipe is closed


class TracebackError(RuntimeError):
    """The traceback of another process, as text."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


@dataclass
class WorkerProcess:
    """One worker process, and the parent's record of it."""

    index: int
    worlds: Sequence[int]
    process: BaseProcess
    pipe: Connection  # tasks to the worker, replies back
    dump: Connection  # the worker writes its traceback into it when it is asked where it hangs
    deadline: float = 0.0  # time on the monotonic clock by which it must reply or begin another step
    begun: int = 0  # count of steps that it had begun when the deadline was set
    asked: int = 0  # tasks of `send` without a reply so far

    def __str__(self) -> str:
        return f"worker {self.index} (pid {self.process.pid}, environments {self.worlds[0]} to {self.worlds[-1]})"

    def end(self, seconds: float) -> None:
        """Close the worker's pipe, which ends it; kill it if it still runs after these seconds."""
        self.pipe.close()
        self.dump.close()
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.process.close()


class Pool:
    """All worker processes of one AsyncEnv. The first failure ends all of them with an EnvError.

    `restarts`: a process that dies or hangs is replaced instead; its reply then has the reason in `lost`.
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
        # runs when this object is garbage-collected, when Python exits, or by close()
        self._end = weakref.finalize(self, end, os.getpid(), self._workers)
        self._restarts = False
        self._timeout = START_SECONDS
        for index, worlds in enumerate(groups):
            self._workers.append(self._start(index, worlds))
            self.pids.append(self._workers[-1].process.pid or 0)
        self._wait(range(len(groups)))
        self._restarts = restarts
        self._timeout = timeout

    def _start(self, index: int, worlds: Sequence[int]) -> WorkerProcess:
        """Start the process of worker `index` with these worlds; its first reply says that they are made."""
        pipe, child_pipe = multiprocessing.Pipe()
        dump, child_dump = multiprocessing.Pipe(duplex=False)
        arguments = (self._setup, worlds, self._shared, index, child_pipe, child_dump)
        has_server = "forkserver" in multiprocessing.get_all_start_methods()
        context: Any = multiprocessing.get_context("forkserver" if has_server else "spawn")
        if has_server:
            context.set_forkserver_preload(PRELOAD)
            with isolated():
                forkserver.ensure_running()
        # processes of the fork server inherit the signals that it ignores; while it imports, for seconds, this process
        # must still answer signals
        with isolated(ignore_signals=not has_server):
            process = context.Process(target=work, args=arguments, name=f"stride-worker-{index}", daemon=True)
            process.start()
        child_pipe.close()  # so that the worker's death ends the pipe
        child_dump.close()
        return WorkerProcess(index, worlds, process, pipe, dump)

    def run(self, tasks: Mapping[int, WorkerTask]) -> dict[int, WorkerReply]:
        """Let workers do a task each and return their replies; EnvError where one raised, died or hangs."""
        self._check_open()
        replies = {}
        for index, task in tasks.items():
            try:
                self._workers[index].pipe.send(task)
            except (BrokenPipeError, ConnectionResetError):
                replies[index] = self._replace_dead(self._workers[index])
        return replies | self._wait(tasks.keys() - replies.keys())

    def send(self, index: int, task: WorkerTask) -> None:
        """Send a task to a worker and return at once; its replies come in the order of its tasks, by `receive`."""
        self._check_open()
        worker = self._workers[index]
        if not worker.asked:
            self._renew(worker)
        worker.asked += 1
        with suppress(BrokenPipeError, ConnectionResetError):  # `receive` reports why the worker died
            worker.pipe.send(task)

    def receive(self) -> list[int]:
        """Wait until at least one worker with a task of `send` has replied; return the numbers of those that have.

        EnvError where one raised, died or hangs.
        """
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
        """Wait for one reply of each of these workers."""
        replies: dict[int, WorkerReply] = {}
        waiting = [self._workers[index] for index in indices]
        for worker in waiting:
            self._renew(worker)
        while waiting:
            replies |= self._look(waiting)
            waiting = [worker for worker in waiting if worker.index not in replies]
        return replies

    def _look(self, waiting: Sequence[WorkerProcess]) -> dict[int, WorkerReply]:
        """Wait for the first reply and return all that are ready; replace or report workers past their deadline.

        The result is empty if a deadline passed but that worker had begun another step since.
        """
        replies: dict[int, WorkerReply] = {}
        seconds = min(worker.deadline for worker in waiting) - time.monotonic()
        ready = connection.wait([worker.pipe for worker in waiting], max(0.0, seconds))
        now = time.monotonic()
        for worker in waiting:
            if worker.pipe in ready:
                replies[worker.index] = self._read(worker)
            elif not ready and worker.deadline <= now:
                # the limit is for one world's step: a worker that has begun another step since gets a new limit
                if self._begun(worker) == worker.begun:
                    line = line_of_process(worker.process.pid or 0, worker.dump)
                    problem = f"no answer for {self._timeout:g} seconds{self._in_world(worker)}{line}"
                    replies[worker.index] = self._replace(worker, f"{self.env_id}, {worker}: {problem}")
                self._renew(worker)
        return replies

    def _renew(self, worker: WorkerProcess) -> None:
        """Set a new deadline for a worker."""
        worker.deadline = time.monotonic() + self._timeout
        worker.begun = self._begun(worker)

    def _begun(self, worker: WorkerProcess) -> int:
        """Return how many steps the worker has begun so far."""
        return int(self._pulse[worker.index, 1])

    def _in_world(self, worker: WorkerProcess) -> str:
        world = int(self._pulse[worker.index, 0])
        return f" in environment {world}" if world >= 0 else ""

    def _read(self, worker: WorkerProcess) -> WorkerReply:
        try:
            return self._receive(worker)
        except CLOSED_PIPE_ERRORS:
            return self._replace_dead(worker)

    def _receive(self, worker: WorkerProcess) -> WorkerReply:
        reply: WorkerReply = worker.pipe.recv()
        if reply.error:
            message = f"{self.env_id}, environment {reply.failed} (worker {worker.index}): {reply.error}"
            self.fail(message, TracebackError(reply.trace))
        return reply

    def _replace_dead(self, worker: WorkerProcess) -> WorkerReply:
        """Report an error that is still in the pipe of a dead worker; else replace the worker."""
        with suppress(*CLOSED_PIPE_ERRORS):
            while True:
                self._receive(worker)
        worker.process.join(GRACE_SECONDS)
        problem = f"the worker {describe_exit(worker.process.exitcode)}{self._in_world(worker)}"
        return self._replace(worker, f"{self.env_id}, {worker}: {problem}")

    def _replace(self, worker: WorkerProcess, message: str) -> WorkerReply:
        """Replace a lost process by one with new worlds; EnvError where `restarts` is off or the new one fails."""
        if not self._restarts:
            self.fail(message)
        worker.process.kill()
        worker.end(GRACE_SECONDS)
        new = self._workers[worker.index] = self._start(worker.index, worker.worlds)
        self.pids[worker.index] = new.process.pid or 0
        try:
            built = new.pipe.poll(START_SECONDS) and self._receive(new)
        except (EOFError, ConnectionResetError):
            built = False
        if not built:
            self.fail(f"{message}; the restarted worker could not make the environments")
        return WorkerReply(lost=message)

    def fail(self, message: str, cause: Exception | None = None) -> NoReturn:
        """End all workers and raise an EnvError with this message."""
        self._failure = message
        for worker in self._workers:
            worker.process.kill()  # the other workers are useless now, and may hang as well
        self._end()
        raise EnvError(message) from cause

    def close(self) -> None:
        """End all workers; a second call does nothing."""
        self._end()


@contextmanager
def isolated(ignore_signals: bool = True) -> Iterator[None]:
    """While this block runs, started processes import neither the program's main file nor files beside it.

    `ignore_signals`: started processes ignore ENDING signals, and this process postpones them while the block runs.
    SLURM and `timeout` send a signal to all processes, but only the parent may act on it: it still needs its workers.
    """
    main = sys.modules["__main__"]
    with nothing_from_here():
        resource_tracker.ensure_running()  # before the signals are blocked, as its start unblocks SIGINT and SIGTERM
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING if ignore_signals else ())
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        with nothing_from_here():
            yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def end(owner: int, workers: list[WorkerProcess]) -> None:
    """End all workers, but only in the process that started them (`owner`), not in a fork of it."""
    if os.getpid() != owner:
        return
    for worker in workers:
        worker.pipe.close()  # first all pipes, so that all workers end at the same time
    deadline = time.monotonic() + GRACE_SECONDS
    for worker in workers:
        worker.end(max(0.0, deadline - time.monotonic()))
