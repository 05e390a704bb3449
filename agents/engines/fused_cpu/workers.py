"""Threads that stay: starting one for each iteration would cost more than a small iteration."""

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[int], None]


def usable_threads(wanted: int) -> int:
    """No more than there are cores for this process: threads that wait for one another in turns only lose time."""
    return max(1, min(wanted, len(os.sched_getaffinity(0))))


class Workers:
    """Runs a job once for each thread number; number 0 is the caller's own."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._jobs = [SimpleQueue[Job]() for _ in range(threads - 1)]
        self._done = SimpleQueue[bool]()
        for number, jobs in enumerate(self._jobs, 1):
            threading.Thread(target=self._serve, args=(number, jobs), daemon=True).start()

    def run(self, job: Job) -> None:
        """Returns when every thread is done."""
        for jobs in self._jobs:
            jobs.put(job)
        job(0)
        if not all([self._done.get() for _ in self._jobs]):
            raise RuntimeError("a thread of the fused engine failed; its error is written above")

    def _serve(self, number: int, jobs: SimpleQueue[Job]) -> None:
        while True:
            job, done = jobs.get(), False
            try:
                job(number)
                done = True
            finally:
                self._done.put(done)
