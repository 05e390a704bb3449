"""The parent's side of AsyncEnv's worker processes: starting, waiting with a limit, naming what went wrong, ending."""

import multiprocessing
import os
import re
import selectors
import signal
import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess, SpawnProcess
from types import ModuleType
from typing import NoReturn

import torch

from stride.envs_gym.async_worker import WHERE, Answer, Shared, Task, WorkerSetup, work
from stride.envs_gym.blame import EnvError, is_users, shown
from stride.utils.child_process import nothing_from_here
from stride.utils.interrupted import ENDING

START = 300.0  # seconds in which a worker must have imported everything and built each next world
GRACE = 2.0  # seconds a worker has to end by itself
ANSWER, PAUSE = 1.0, 0.1  # seconds a worker has to say where it hangs, and to say all of it
LINE = re.compile(r'File "([^"]+)", line (\d+)')
PRELOAD = ["torch", "stride.envs_gym.async_worker"]  # imported once by the fork server instead of by every worker
Process = ForkServerProcess | SpawnProcess


class TracebackError(RuntimeError):
    """Where it happened: the traceback of another process, as text."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


class Pool:
    """Worker processes and what each has been asked; the first failure closes the pool and is named.

    `restarts`: a process that dies or hangs is started again instead; what it was asked is answered by `Answer.lost`.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        shared: Shared,
        shares: Sequence[Sequence[int]],
        timeout: float,
        restarts: bool = False,
    ) -> None:
        self.env_id, self.shares, self.timeout = setup.env_id, shares, START
        self._setup, self._shared, self._restarts = setup, shared, False
        self._pulse = shared.pulse.numpy()
        self._busy = [0] * len(shares)  # worlds asked of each worker and not answered
        self._deadline, self._seen = [0.0] * len(shares), [0] * len(shares)
        self._failure = ""
        self._lost: list[Answer] = []  # of workers that are new, not told yet
        self.pids = [0] * len(shares)
        self.processes: list[Process] = []
        self._pipes: list[Connection] = []
        self._last_words: list[Connection] = []  # where each tells the line that it hangs in
        self._selector = selectors.DefaultSelector()
        # runs when this object is collected, or at exit, or by close()
        self._end = weakref.finalize(
            self, end, os.getpid(), self.processes, self._pipes, self._last_words, self._selector
        )
        for place in range(len(shares)):
            self._start(place)
        while any(self._busy):
            self.receive()
        self.timeout, self._restarts = timeout, restarts

    def _start(self, place: int) -> None:
        pipe, theirs = multiprocessing.Pipe()
        last, dying = multiprocessing.Pipe(duplex=False)
        arguments = (self._setup._replace(worlds=self.shares[place]), self._shared, place, theirs, dying)
        name = f"stride-worker-{place}"
        process: Process
        with untouched():
            if "forkserver" in multiprocessing.get_all_start_methods():
                context = multiprocessing.get_context("forkserver")
                context.set_forkserver_preload(PRELOAD)
                forkserver.ensure_running()
                process = context.Process(target=work, args=arguments, name=name, daemon=True)
            else:
                spawn = multiprocessing.get_context("spawn")
                process = spawn.Process(target=work, args=arguments, name=name, daemon=True)
            process.start()
        theirs.close()  # so that the worker's death ends the pipe
        dying.close()
        assert process.pid is not None  # it was started
        self.pids[place] = process.pid
        here = slice(place, place + 1)
        self.processes[here], self._pipes[here], self._last_words[here] = [process], [pipe], [last]
        self._selector.register(pipe, selectors.EVENT_READ, place)
        self._busy[place] = 0
        self._asked(place, len(self.shares[place]))

    def send(self, place: int, task: Task) -> None:
        """Ask a worker; it answers in the order it was asked."""
        self._check_open()
        try:
            self._pipes[place].send(task)
        except (BrokenPipeError, ConnectionResetError):
            self._lost.append(self._died(place))
        else:
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
            if self._lost:
                answers, self._lost = self._lost, []
                return answers
            limit = min(self._deadline[place] for place, busy in enumerate(self._busy) if busy) - time.monotonic()
            ready = self._selector.select(max(0.0, limit))
            if ready:
                return [self._read(key.data) for key, _ in ready]
            self._check_hung()

    def _read(self, place: int) -> Answer:
        try:
            answer: Answer = self._pipes[place].recv()
        except (EOFError, ConnectionResetError, BrokenPipeError):
            return self._died(place)
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
                    line = self._line(place)
                    told = f"no answer for {self.timeout:g} seconds{self._inside(place)}{line}"
                    self._lost.append(self._again(place, f"{self._where(place)}: {told}"))
                self._renew(place)

    def _line(self, place: int) -> str:
        """The line that a worker hangs in, of the user's code if any is; told even inside machine code."""
        if WHERE is None:
            return ""
        with suppress(ProcessLookupError):
            os.kill(self.pids[place], WHERE)
        if not self._last_words[place].poll(ANSWER):
            return ""
        time.sleep(PAUSE)  # it is written piece by piece
        text = os.read(self._last_words[place].fileno(), 1 << 16).decode(errors="replace")
        own = [(file, int(line)) for file, line in LINE.findall(text) if is_users(file)]
        return f" ({shown(*own[0])})" if own else ""

    def _died(self, place: int) -> Answer:
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
        return self._again(place, f"{self._where(place)}: the worker {how}{self._inside(place)}")

    def _again(self, place: int, message: str) -> Answer:
        """A new process in the place of one that is lost, with new worlds; EnvError where that is not wanted."""
        if not self._restarts:
            self.fail(message)
        process, pipe = self.processes[place], self._pipes[place]
        process.kill()
        process.join()
        process.close()
        self._selector.unregister(pipe)
        pipe.close()
        self._last_words[place].close()
        self._start(place)
        try:
            answer: Answer | None = self._pipes[place].recv() if self._pipes[place].poll(START) else None
        except (EOFError, ConnectionResetError):
            answer = None
        if answer is None:
            self.fail(f"{message}; its successor could not build the worlds")
        if answer.error:
            self._raised(place, answer)
        self._busy[place] = 0
        return Answer(self.shares[place], lost=message)

    def _raised(self, place: int, answer: Answer) -> NoReturn:
        cause = TracebackError(answer.trace)
        self.fail(f"{self.env_id}, world {answer.failed} (worker {place}): {answer.error}", cause)

    def _where(self, place: int) -> str:
        worlds = self.shares[place]
        return f"{self.env_id}, worker {place} (pid {self.pids[place]}, worlds {worlds[0]} to {worlds[-1]})"

    def _inside(self, place: int) -> str:
        world = int(self._pulse[place, 0])
        return f" in world {world}" if world >= 0 else ""

    def fail(self, message: str, cause: Exception | None = None) -> NoReturn:
        """End every worker; EnvError."""
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


@contextmanager
def untouched() -> Iterator[None]:
    """Within, a new process runs neither the program's main file nor what lies here, and is deaf to what ends this one.

    A signal to the whole group, as SLURM and `timeout` send it, is ours: the iteration under way still needs workers.
    """
    main = sys.modules["__main__"]
    with nothing_from_here():
        resource_tracker.ensure_running()  # first, as it unblocks SIGINT and SIGTERM when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        with nothing_from_here():
            yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end(
    owner: int,
    processes: list[Process],
    pipes: list[Connection],
    last_words: list[Connection],
    selector: selectors.BaseSelector,
) -> None:
    """Close the pipes, which ends the workers; kill those that do not notice."""
    if os.getpid() != owner:  # a fork of the process that owns the workers
        return
    selector.close()
    for pipe in (*pipes, *last_words):
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
