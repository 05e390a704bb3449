"""Freed memory that is kept costs no faults when it is taken again."""

import resource

import numpy as np

from utils.kept_memory import keep_freed_memory


def test_what_is_taken_again_is_still_there():
    keep_freed_memory()
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(3):
            [np.ones(1 << 17) for _ in range(32)]  # of 1 MiB each, 256 pages
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 32 * 256
