"""Threads that stay, and how many of them pay just now. Results do not depend on their number.

Starting a thread for each iteration would cost more than a small iteration. Threads that wait for one another 80 times
an iteration are a loss wherever another program wants their cores, so both numbers are tried in turns.
"""

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[int], None]
TRY_EVERY = 32  # iterations; two of them are trials, one of one thread and one of all


def usable_threads(wanted: int) -> int:
    """No more than there are cores for this process."""
    return max(1, min(wanted, len(os.sched_getaffinity(0))))


class Pace:
    """One thread or all of them: whatever was faster when it was last tried."""

    def __init__(self, threads: int, every: int = TRY_EVERY) -> None:
        self.threads, self._every = threads, every
        self._iterations = 0
        self._seconds = {1: 0.0, threads: 0.0}

    def choose(self) -> int:
        """How many threads the next iteration is to take."""
        turn = self._iterations % self._every
        self._iterations += 1
        if turn < 2:
            return (1, self.threads)[turn]
        return min(self._seconds, key=lambda threads: self._seconds[threads])

    def took(self, threads: int, seconds: float) -> None:
        """What an iteration took; the latest counts half."""
        known = self._seconds[threads]
        self._seconds[threads] = (known + seconds) / 2 if known else seconds


class Workers:
    """Runs a job once for each thread number; number 0 is the caller's own."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._jobs = [SimpleQueue[Job]() for _ in range(threads - 1)]
        self._done = SimpleQueue[bool]()
        for number, jobs in enumerate(self._jobs, 1):
            threading.Thread(target=self._serve, args=(number, jobs), daemon=True).start()

    def run(self, job: Job, threads: int) -> None:
        """Returns when each of so many threads is done."""
        others = self._jobs[: threads - 1]
        for jobs in others:
            jobs.put(job)
        job(0)
        if not all([self._done.get() for _ in others]):
            raise RuntimeError("a thread of the fused engine failed; its error is written above")

    def _serve(self, number: int, jobs: SimpleQueue[Job]) -> None:
        while True:
            job, done = jobs.get(), False
            try:
                job(number)
                done = True
            finally:
                self._done.put(done)
