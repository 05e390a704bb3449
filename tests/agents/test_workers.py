"""Threads that share work in machine code: every part is done once, awake or asleep; a failure is an error."""

import random
import time

import numpy as np
import pytest

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, address_of, longs
from stride.agents.engines.fused_cpu.workers import LINE, Workers
from stride.utils.kernel_cache import njit

THREADS = 3


@njit(**PIECE)
def count(counts, thread):
    longs(counts + 8 * LINE * thread, 1)[0] += 1


@njit(**PIECE)
def fail(unused, thread):
    if thread:
        raise ValueError("on purpose")


def test_every_thread_does_its_part_once_whether_it_watches_or_sleeps():
    workers, choice = Workers(THREADS), random.Random(1)
    done, expected, work = np.zeros((THREADS, LINE), np.int64), np.zeros(THREADS, np.int64), address_of(count)
    for turn in range(3000):
        threads = choice.randint(1, THREADS)
        workers.run(work, done.ctypes.data, threads)
        expected[:threads] += 1
        assert np.array_equal(done[:, 0], expected), turn
        if turn % 50 == 0:
            time.sleep(choice.choice((0.001, 0.003, 0.01, 0.05)))  # less than its patience, and more


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_part_that_fails_is_an_error_and_not_waited_for():
    workers = Workers(2)
    with pytest.raises(RuntimeError, match="a thread of the fused engine failed"):
        workers.run(address_of(fail), 0, 2)
