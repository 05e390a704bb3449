"""The parent's side of AsyncEnv's worker processes: starting, waiting with a limit, naming what went wrong, ending."""

import multiprocessing
import os
import selectors
import signal
import time
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess, SpawnProcess
from typing import NoReturn

import torch

from envs_gym.async_worker import Answer, Shared, Task, WorkerSetup, work
from envs_gym.blame import EnvError

START = 300.0  # seconds in which a worker must have imported everything and built each next world
GRACE = 2.0  # seconds a worker has to end by itself
PRELOAD = ["torch", "gymnasium", "numba"]  # imported once by the fork server instead of by every worker
Process = ForkServerProcess | SpawnProcess


class TracebackError(RuntimeError):
    """Where it happened: the traceback of another process, as text."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


class Pool:
    """Worker processes and what each has been asked; the first failure closes the pool and is named."""

    def __init__(self, setup: WorkerSetup, shared: Shared, shares: Sequence[Sequence[int]], timeout: float) -> None:
        self.env_id, self.shares, self.timeout = setup.env_id, shares, START
        self._pulse = shared.pulse.numpy()
        self._busy = [0] * len(shares)  # worlds asked of each worker and not answered
        self._deadline, self._seen = [0.0] * len(shares), [0] * len(shares)
        self._failure = ""
        self.pids: list[int] = []
        self.processes: list[Process] = []
        self._pipes: list[Connection] = []
        self._selector = selectors.DefaultSelector()
        # runs when this object is collected, or at exit, or by close()
        self._end = weakref.finalize(self, end, os.getpid(), self.processes, self._pipes, self._selector)
        for place, worlds in enumerate(shares):
            self._start(setup._replace(worlds=worlds), shared, place)
        while any(self._busy):
            self.receive()
        self.timeout = timeout

    def _start(self, setup: WorkerSetup, shared: Shared, place: int) -> None:
        pipe, theirs = multiprocessing.Pipe()
        arguments = (setup, shared, place, theirs)
        name = f"stride-worker-{place}"
        process: Process
        if "forkserver" in multiprocessing.get_all_start_methods():
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(PRELOAD)
            process = context.Process(target=work, args=arguments, name=name, daemon=True)
        else:
            process = multiprocessing.get_context("spawn").Process(target=work, args=arguments, name=name, daemon=True)
        process.start()
        theirs.close()  # so that the worker's death ends the pipe
        assert process.pid is not None  # it was started
        self.pids.append(process.pid)
        self.processes.append(process)
        self._pipes.append(pipe)
        self._selector.register(pipe, selectors.EVENT_READ, place)
        self._asked(place, len(setup.worlds))

    def send(self, place: int, task: Task) -> None:
        """Ask a worker; it answers in the order it was asked."""
        self._check_open()
        try:
            self._pipes[place].send(task)
        except (BrokenPipeError, ConnectionResetError):
            self._lost(place)
        self._asked(place, len(task.worlds))

    def _asked(self, place: int, worlds: int) -> None:
        if not self._busy[place]:
            self._renew(place)
        self._busy[place] += worlds

    def _renew(self, place: int) -> None:
        self._deadline[place], self._seen[place] = time.monotonic() + self.timeout, int(self._pulse[place, 1])

    def receive(self) -> list[Answer]:
        """Whatever has been answered, at least one; raises EnvError when a worker failed, died or hangs."""
        self._check_open()
        while True:
            limit = min(self._deadline[place] for place, busy in enumerate(self._busy) if busy) - time.monotonic()
            ready = self._selector.select(max(0.0, limit))
            if ready:
                return [self._read(key.data) for key, _ in ready]
            self._check_hung()

    def _read(self, place: int) -> Answer:
        try:
            answer: Answer = self._pipes[place].recv()
        except (EOFError, ConnectionResetError, BrokenPipeError):
            self._lost(place)
        if answer.error:
            self._raised(place, answer)
        self._busy[place] -= len(answer.worlds)
        self._renew(place)
        return answer

    def _check_hung(self) -> None:
        """A worker whose pulse moved since its deadline was set gets a new one: the limit is for one world's step."""
        now = time.monotonic()
        for place, busy in enumerate(self._busy):
            if busy and self._deadline[place] <= now:
                if int(self._pulse[place, 1]) == self._seen[place]:
                    self._fail(f"{self._where(place)}: no answer for {self.timeout:g} seconds{self._inside(place)}")
                self._renew(place)

    def _lost(self, place: int) -> NoReturn:
        """The pipe is broken: by an error that still stands in it, else by the death of the worker."""
        pipe, process = self._pipes[place], self.processes[place]
        try:
            while True:
                answer = pipe.recv()
                if answer.error:
                    self._raised(place, answer)
        except (EOFError, ConnectionResetError, BrokenPipeError):
            process.join(GRACE)
        code = process.exitcode
        if code is None:
            how = "closed its pipe"
        else:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        hint = "" if self._pulse[place, 1] else "; a script that starts workers needs `if __name__ == '__main__':`"
        self._fail(f"{self._where(place)}: the worker {how}{self._inside(place)}{hint}")

    def _raised(self, place: int, answer: Answer) -> NoReturn:
        cause = TracebackError(answer.trace)
        self._fail(f"{self.env_id}, world {answer.failed} (worker {place}): {answer.error}", cause)

    def _where(self, place: int) -> str:
        worlds = self.shares[place]
        return f"{self.env_id}, worker {place} (pid {self.pids[place]}, worlds {worlds[0]} to {worlds[-1]})"

    def _inside(self, place: int) -> str:
        world = int(self._pulse[place, 0])
        return f" in world {world}" if world >= 0 else ""

    def _fail(self, message: str, cause: Exception | None = None) -> NoReturn:
        self._failure = message
        for process in self.processes:
            process.kill()  # whatever the others do is of no use any more, and they may hang as well
        self._end()
        raise EnvError(message) from cause

    def _check_open(self) -> None:
        if not self._end.alive:
            raise EnvError(f"the workers of {self.env_id} are gone: {self._failure or 'the environment was closed'}")

    def close(self) -> None:
        """End every worker; again is harmless."""
        self._end()


def end(owner: int, processes: list[Process], pipes: list[Connection], selector: selectors.BaseSelector) -> None:
    """Close the pipes, which ends the workers; kill those that do not notice."""
    if os.getpid() != owner:  # a fork of the process that owns the workers
        return
    selector.close()
    for pipe in pipes:
        pipe.close()
    deadline = time.monotonic() + GRACE
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.exitcode is None:
            process.kill()
            process.join()
        process.close()


def pulse(workers: int) -> torch.Tensor:
    """The table in which each worker notes the world it is in and how many steps it has begun."""
    table = torch.zeros(workers, 2, dtype=torch.int64)
    table[:, 0] = -1
    return table.share_memory_()
