"""Memory that is freed stays with the process, for what is allocated again every few milliseconds."""

import ctypes
import platform

TRIM, MMAP = -1, -3  # glibc's names of its two limits, M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
KEPT, SINGLE = 128 << 20, 32 << 20  # bytes: free at the end of the heap before any is given back; the most of one piece


def keep_freed_memory() -> None:
    """Where glibc allocates: else it may give a megabyte back and ask for it again, a fault for each 4 KiB."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(TRIM, KEPT)
        libc.mallopt(MMAP, SINGLE)
