"""The threads of the fused CPU engine: a pool that runs kernels, and the choice of how many threads to use.

Work is a kernel with the arguments (address of its arguments, thread number). Machine code hands it out and waits for
it. A thread that has just worked watches for more work for about 2 ms before it sleeps: between two kernels nobody
waits for Python's lock or for a thread to wake up (150 us on a virtual machine, a tenth of a small iteration).

Threads wait for one another about 80 times in an iteration. Where another program uses the same cores, several threads
can be slower than one, so `Pace` tries one thread and all of them in turns. Results do not depend on their number.
"""

import os
import threading
from enum import IntEnum

import numpy as np

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, YIELD_TURNS, call, exchange, fetch, longs, wait_a_turn
from stride.utils.kernel_cache import njit

TRY_EVERY = 64  # iterations from one trial of all thread counts to the next
# iterations of a trial with all threads, then one iteration with one thread; several, because a thread that has just
# been woken may share the caller's core for a while
TRIALS = 6
LINE = 8  # int64 of a cache line of 64 bytes
MAX_THREADS = 64
SECONDS_PER_CALL = 0.1  # Python handles signals, such as Ctrl-C, only between two calls
FIRST_CALL_STEPS = 4
TURNS_BEFORE_SLEEP = 32 * YIELD_TURNS  # turns of a waiting loop, about 2 ms


class Shared(IntEnum):
    """Offsets (int64) in cache line 0, which all threads share. Worker i has line i to itself."""

    NUMBER = 0  # call number * MAX_THREADS + how many threads take part; call 3 for 2 threads: 3 * 64 + 2
    WORK = 1  # address of the kernel
    ARGUMENTS = 2  # address of its arguments
    FAILED = 3  # 1 once a worker has ended by an error


DONE, ASLEEP = 0, 8  # offsets (bytes) in a worker's line: the NUMBER it has finished; 1 while it sleeps


@njit(**PIECE)
def hand_out(shared: int, work: int, arguments: int, threads: int) -> int:
    """Hand out work to `threads` threads and do thread 0's part; return 0 when all are done.

    Where workers sleep, return a bit for each of them instead (worker i is bit i). The caller must wake these and then
    call `take_part`.
    """
    if threads == 1:
        call(work, (arguments, 0))
        return 0
    line = longs(shared, LINE)
    line[Shared.WORK], line[Shared.ARGUMENTS] = work, arguments
    # written last and atomically: from here on workers see the new work
    exchange(shared, (line[Shared.NUMBER] // MAX_THREADS + 1) * MAX_THREADS + threads)
    asleep = 0
    for number in range(1, threads):
        if exchange(shared + 8 * LINE * number + ASLEEP, 0):
            asleep |= 1 << number
    if not asleep:
        take_part(shared)
    return asleep


@njit(**PIECE)
def take_part(shared: int) -> None:
    """Do thread 0's part of the present work, and return when all threads have done theirs."""
    line = longs(shared, LINE)
    call_number = line[Shared.NUMBER]
    call(line[Shared.WORK], (line[Shared.ARGUMENTS], 0))
    turns = 0
    for number in range(1, call_number % MAX_THREADS):
        while fetch(shared + 8 * LINE * number + DONE) != call_number:
            turns = wait_a_turn(turns)


@njit(**PIECE)
def serve(shared: int, number: int, last_call: int) -> int:
    """Do worker `number`'s part of all work that is handed out after call `last_call`.

    When no work has come for TURNS_BEFORE_SLEEP turns, mark the worker as asleep and return the last call number.
    """
    shared_line, own_line = longs(shared, LINE), shared + 8 * LINE * number
    idle_turns = 0
    while True:
        call_number = fetch(shared)
        if call_number != last_call:
            last_call, idle_turns = call_number, 0
            if number < call_number % MAX_THREADS:  # else WORK and ARGUMENTS may already be those of the next call
                call(shared_line[Shared.WORK], (shared_line[Shared.ARGUMENTS], number))
                exchange(own_line + DONE, call_number)
            continue
        idle_turns = wait_a_turn(idle_turns)
        if idle_turns >= TURNS_BEFORE_SLEEP:
            exchange(own_line + ASLEEP, 1)
            # work may have come meanwhile. `hand_out` and this thread both try to clear the mark: if this thread is
            # first it goes on, otherwise the caller will wake it
            if fetch(shared) == last_call or not exchange(own_line + ASLEEP, 0):
                return last_call
            idle_turns = 0


def usable_threads(wanted: int) -> int:
    """Return `wanted`, but at most the number of cores that this process may use."""
    return max(1, min(wanted, len(os.sched_getaffinity(0)), MAX_THREADS - 1))


class Pace:
    """Chooses between one thread and all of them: the one that was faster when both were last tried."""

    def __init__(self, threads: int, every: int = TRY_EVERY) -> None:
        self.threads, self._every = threads, every
        self._iterations = 0
        self._waking = False  # the number of threads may have just changed, so that some must wake up
        self._seconds = {1: 0.0, threads: 0.0}  # of an iteration with so many threads; 0.0: not measured yet

    def choose(self) -> int:
        """Return how many threads the next iteration uses."""
        turn = self._iterations % self._every
        self._iterations += 1
        self._waking = turn in (0, TRIALS + 1)
        if turn <= TRIALS:
            return self.threads if turn < TRIALS else 1
        return min(self._seconds, key=lambda threads: self._seconds[threads])

    def record(self, threads: int, seconds: float) -> None:
        """Record how many seconds an iteration took with `threads` threads.

        The first iteration after a change of the number is left out. A time counts at most 1.1 times as much as the one
        before, because other programs may have delayed a single iteration.
        """
        last_seconds = self._seconds[threads]
        if not (self._waking and last_seconds):
            self._seconds[threads] = min(seconds, 1.1 * last_seconds) if last_seconds else seconds


class CallLength:
    """Chooses how many steps a call plays, so that it lasts about SECONDS_PER_CALL; measured on the last call.

    A step of a body with many joints takes a thousand times as long as one of a pole. Results do not depend on it.
    """

    def __init__(self) -> None:
        self.steps = FIRST_CALL_STEPS

    def record(self, steps: int, seconds: float) -> None:
        """Record that a call of `steps` steps took `seconds`, and set the length of the next call.

        It at most doubles: steps of resting worlds are cheap, and later ones may not be.
        """
        fitting = int(steps * SECONDS_PER_CALL / max(seconds, 1e-9))
        self.steps = max(1, min(fitting, 2 * self.steps))


class Workers:
    """A pool of threads: each runs the same kernel with its own thread number; number 0 is the calling thread."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._lines = np.zeros((threads + 1, LINE), np.int64)
        skip = -self._lines.ctypes.data // 8 % LINE  # to the begin of a cache line
        self._lines = self._lines.reshape(-1)[skip : skip + threads * LINE]
        self._shared = self._lines.ctypes.data
        self._wake_locks = [threading.Lock() for _ in range(threads)]  # releasing lock i wakes worker i
        for number in range(1, threads):
            self._wake_locks[number].acquire()
            threading.Thread(target=self._run_worker, args=(number,), daemon=True).start()

    def run(self, work: int, arguments: int, threads: int) -> None:
        """Run the kernel at address `work` on the first `threads` threads; return when all are done.

        RuntimeError where a thread of this pool has failed.
        """
        asleep = hand_out(self._shared, work, arguments, threads)
        if asleep:
            for number in range(1, threads):
                if asleep >> number & 1:
                    self._wake_locks[number].release()
            take_part(self._shared)
        if self._lines[Shared.FAILED]:
            raise RuntimeError("a thread of the fused engine failed; its error is written above")

    def _run_worker(self, number: int) -> None:
        """Serve and sleep in turns, as long as the process lives."""
        last_call, served = 0, False
        try:
            while True:
                served = False
                last_call = serve(self._shared, number, last_call)
                served = True
                self._wake_locks[number].acquire()
        finally:
            if not served:  # a kernel failed: say so, and mark the call as done so that the caller does not wait for it
                self._lines[Shared.FAILED] = 1
                self._lines[number * LINE] = self._lines[Shared.NUMBER]
