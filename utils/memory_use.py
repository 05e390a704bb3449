"""How many bytes of memory this process and its workers hold, and how many there are for them."""

import os
import resource
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PAGE = os.sysconf("SC_PAGE_SIZE")


def used() -> int:
    """Bytes in memory of this process and of those it started; where there is no /proc the most it ever had."""
    try:
        return held(os.getpid())
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def held(pid: int) -> int:
    """Bytes of any process and of those it started, whose pages count but where they share them; OSError without it."""
    started = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    resident, _ = _pages(str(pid))
    for child in started:
        with suppress(OSError):  # it has just ended
            own, shared = _pages(child)
            resident += own - shared
    return resident * PAGE


def _pages(pid: str) -> tuple[int, int]:
    """In memory, and how many of them are shared with others, such as libraries."""
    _, resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[:3]
    return int(resident), int(shared)


@cache
def limit() -> int:
    """Bytes there are: of the machine, or what its container or job may take."""
    limits = [os.sysconf("SC_PHYS_PAGES") * PAGE]
    with suppress(OSError):
        own = Path("/proc/self/cgroup").read_text().splitlines()
        for line in own:
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                folder, name = (CGROUPS / controllers, "memory.limit_in_bytes" if controllers else "memory.max")
                group = folder / path.strip("/")
                limits += [_number(each / name) for each in (group, *group.parents) if each.is_relative_to(folder)]
    return min(each for each in limits if each > 0)


def _number(file: Path) -> int:
    """0 where it sets no limit."""
    try:
        text = file.read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0
