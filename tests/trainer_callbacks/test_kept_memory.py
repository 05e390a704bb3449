"""Memory that was freed is not asked of the system again."""

import platform
import subprocess
import sys

import pytest

from stride.utils.places import PROJECT

PAGES = """
from resource import RUSAGE_SELF, getrusage
from stride.trainer_callbacks.shortage import keep_freed_memory
{first}
for turn in range(6):
    before = getrusage(RUSAGE_SELF).ru_minflt
    b"x" * (40 << 20)
print(getrusage(RUSAGE_SELF).ru_minflt - before)
"""


def pages(first):
    """Pages that a block of 40 MB takes of the system after five others were freed; a new process is as it began."""
    line = [sys.executable, "-c", PAGES.format(first=first)]
    return int(subprocess.run(line, cwd=PROJECT, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_a_block_that_was_freed_is_used_again():
    assert pages("") > 5000
    assert pages("keep_freed_memory(); keep_freed_memory()") < 50
