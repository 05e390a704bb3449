"""Memory that this process has freed stays with it, where the C library is glibc.

glibc hands large blocks, and the top of its heap, back to the system, which fills the same pages with zeros when they
are asked for again a moment later: of PPO on Pong's screen that was an eighth of the processor's time, of an update of
Dreamer up to 600 faults.
"""

import ctypes
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's numbers for mallopt, malloc.h
BLOCK, HEAP = 1 << 26, 1 << 30  # bytes: a larger block goes back when it is freed, and so does what the heap has above


def keep_freed_memory() -> None:
    """From now on; again is harmless."""
    if platform.libc_ver()[0] == "glibc":
        glibc = ctypes.CDLL(None)
        glibc.mallopt(MMAP_THRESHOLD, BLOCK)
        glibc.mallopt(TRIM_THRESHOLD, HEAP)
