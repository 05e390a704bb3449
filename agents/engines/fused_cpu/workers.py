"""Threads that stay, and how many of them pay just now. Results do not depend on their number.

Work is a kernel of (arguments' address, thread number), handed out and waited for in machine code: a thread that has
just worked watches for more before it sleeps, so that between two kernels nobody waits for Python's lock or to be
woken (150 us on a virtual machine, a tenth of a small iteration). Threads that wait for one another 80 times an
iteration are a loss wherever another program wants their cores, so one thread and all are tried in turns.
"""

import os
import threading
from enum import IntEnum

import numpy as np

from stride.agents.engines.fused_cpu.kernels.calls import IMPATIENT, PIECE, call, exchange, fetch, longs, wait_a_turn
from stride.utils.kernel_cache import njit

TRY_EVERY = 64  # iterations; the first ones are trials
TRIALS = 6  # of all threads, as a thread that wakes may be on the caller's core for a while; then one of one thread
LINE = 8  # int64 of a cache line
MOST = 64  # threads
SECONDS_PER_CALL, FIRST_STEPS = 0.1, 4  # signals are handled between two calls
PATIENCE = 32 * IMPATIENT  # turns that a thread watches for, about 2 ms, before it sleeps


class Shared(IntEnum):
    """The first cache line that threads share; a worker's own is the one of its number."""

    NUMBER = 0  # of what was handed out last, times MOST, plus how many threads it is for
    WORK = 1  # address of the kernel
    ARGUMENTS = 2
    FAILED = 3


DONE, ASLEEP = 0, 8  # bytes from the begin of a worker's line: the NUMBER it has done; whether it sleeps


@njit(**PIECE)
def hand_out(shared: int, work: int, arguments: int, threads: int) -> int:
    """Have so many threads do the work and take part. Not yet begun where some must be woken: a bit for each."""
    if threads == 1:
        call(work, (arguments, 0))
        return 0
    line = longs(shared, LINE)
    line[Shared.WORK], line[Shared.ARGUMENTS] = work, arguments
    exchange(shared, (line[Shared.NUMBER] // MOST + 1) * MOST + threads)
    asleep = 0
    for number in range(1, threads):
        if exchange(shared + 8 * LINE * number + ASLEEP, 0):
            asleep |= 1 << number
    if not asleep:
        take_part(shared)
    return asleep


@njit(**PIECE)
def take_part(shared: int) -> None:
    """Thread 0's part of what was handed out; returns when all have done theirs."""
    line = longs(shared, LINE)
    now = line[Shared.NUMBER]
    call(line[Shared.WORK], (line[Shared.ARGUMENTS], 0))
    turns = 0
    for number in range(1, now % MOST):
        while fetch(shared + 8 * LINE * number + DONE) != now:
            turns = wait_a_turn(turns)


@njit(**PIECE)
def serve(shared: int, number: int, last_call: int) -> int:
    """A worker's life: does its part of whatever is handed out. Returns, asleep, when nothing has come for long."""
    shared_line, own_line = longs(shared, LINE), shared + 8 * LINE * number
    idle_turns = 0
    while True:
        call_number = fetch(shared)
        if call_number != last_call:
            last_call, idle_turns = call_number, 0
            if number < call_number % MOST:  # else the line may already be another's
                call(shared_line[Shared.WORK], (shared_line[Shared.ARGUMENTS], number))
                exchange(own_line + DONE, call_number)
            continue
        idle_turns = wait_a_turn(idle_turns)
        if idle_turns >= PATIENCE:
            exchange(own_line + ASLEEP, 1)
            # something may have come meanwhile: whoever takes the mark back first, decides
            if fetch(shared) == last_call or not exchange(own_line + ASLEEP, 0):
                return last_call
            idle_turns = 0


def usable_threads(wanted: int) -> int:
    """No more than there are cores for this process."""
    return max(1, min(wanted, len(os.sched_getaffinity(0)), MOST - 1))


class Pace:
    """One thread or all of them: whatever was faster when it was last tried."""

    def __init__(self, threads: int, every: int = TRY_EVERY) -> None:
        self.threads, self._every = threads, every
        self._iterations = 0
        self._waking = False  # in this iteration the threads may have to be woken
        self._seconds = {1: 0.0, threads: 0.0}

    def choose(self) -> int:
        """How many threads the next iteration is to take."""
        turn = self._iterations % self._every
        self._iterations += 1
        self._waking = turn in (0, TRIALS + 1)
        if turn <= TRIALS:
            return self.threads if turn < TRIALS else 1
        return min(self._seconds, key=lambda threads: self._seconds[threads])

    def took(self, threads: int, seconds: float) -> None:
        """Note an iteration's seconds. The fastest grows by a tenth at most: an iteration may have been held up."""
        fastest = self._seconds[threads]
        if not (self._waking and fastest):
            self._seconds[threads] = min(seconds, 1.1 * fastest) if fastest else seconds


class CallLength:
    """How many steps a call plays so that it lasts about a tenth of a second, by what the last one took.

    A step costs what the worlds cost, and bodies cost a thousand times a pole. Results do not depend on it.
    """

    def __init__(self) -> None:
        self.steps = FIRST_STEPS

    def took(self, steps: int, seconds: float) -> None:
        """Note a call. It grows twofold at most: the worlds of the last call may have been at rest."""
        fitting = int(steps * SECONDS_PER_CALL / max(seconds, 1e-9))
        self.steps = max(1, min(fitting, 2 * self.steps))


class Workers:
    """Does work once for each thread number; number 0 is the caller's own."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._lines = np.zeros((threads + 1, LINE), np.int64)
        skip = -self._lines.ctypes.data // 8 % LINE  # to the begin of a cache line
        self._lines = self._lines.reshape(-1)[skip : skip + threads * LINE]
        self._shared = self._lines.ctypes.data
        self._calls = [threading.Lock() for _ in range(threads)]  # released: that worker is to wake up
        for number in range(1, threads):
            self._calls[number].acquire()
            threading.Thread(target=self._live, args=(number,), daemon=True).start()

    def run(self, work: int, arguments: int, threads: int) -> None:
        """Returns when each of so many threads is done."""
        asleep = hand_out(self._shared, work, arguments, threads)
        if asleep:
            for number in range(1, threads):
                if asleep >> number & 1:
                    self._calls[number].release()
            take_part(self._shared)
        if self._lines[Shared.FAILED]:
            raise RuntimeError("a thread of the fused engine failed; its error is written above")

    def _live(self, number: int) -> None:
        last_call, served = 0, False
        try:
            while True:
                served = False
                last_call = serve(self._shared, number, last_call)
                served = True
                self._calls[number].acquire()
        finally:
            if not served:
                self._lines[Shared.FAILED] = 1
                self._lines[number * LINE] = self._lines[Shared.NUMBER]
