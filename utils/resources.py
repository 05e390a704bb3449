"""Tells how many processors and how much memory this process may use (affinity, control groups), and what it uses."""

import os
import re
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

CORES_VARIABLE = "STRIDE_CORES"  # environment variable: processors for this process, set by a parent with several
GROUPS, GROUP_OF_PROCESS, LOAD = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc/loadavg")
LOAD_SAMPLES, SAMPLE_PAUSE = 3, 0.001  # how often to count running processes, and seconds between; the lowest counts
PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes
UNLIMITED = 1 << 20  # processors; more than any machine has


def cores() -> int:
    """Return how many processors this process may keep busy, at least 1."""
    allowed = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    assigned = os.environ.get(CORES_VARIABLE, "")
    if assigned.isdecimal():
        allowed = min(allowed, int(assigned))
    return max(1, min(allowed, quota(GROUPS, GROUP_OF_PROCESS)))


def idle() -> int:
    """Return how many processors of the machine are free now, at least 1; all if there is no /proc/loadavg."""
    others = []
    for sample in range(LOAD_SAMPLES):
        time.sleep(SAMPLE_PAUSE if sample else 0)
        match = re.match(r"(?:\S+ ){3}(\d+)/", _text(LOAD))
        others.append(max(0, int(match[1]) - 1) if match else 0)  # one of them is this process
    return max(1, (os.cpu_count() or 1) - min(others))


def quota(groups: Path, group_of_process: Path) -> int:
    """Return the processors of a container or systemd slice: the smallest quota of all groups around us, rounded up."""
    quotas = [_quota_of(folder) for folder in _group_folders(groups, group_of_process, "cpu")]
    return max(1, -int(-min([*quotas, UNLIMITED]) // 1))


def _group_folders(groups: Path, group_of_process: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process' control group and of its parents, for cgroup versions 1 and 2.

    `controller`: "cpu" or "memory", which have separate trees in version 1.
    """
    for line in _text(group_of_process).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        root = groups / (controller if controllers else "")
        group = root / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))


def _quota_of(folder: Path) -> float:
    """Return the processors that a control group may use: its quota / period, both in microseconds; inf: no limit."""
    values = _text(folder / "cpu.max").split()  # version 2
    if not values:
        values = [_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    limited = len(values) == 2 and all(value.isdecimal() for value in values) and int(values[1]) > 0
    return int(values[0]) / int(values[1]) if limited else float("inf")


def memory_used() -> int:
    """Return the bytes of memory of this process and its children; without /proc, the peak of this process."""
    try:
        return memory_of(os.getpid())
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def memory_of(pid: int) -> int:
    """Return the bytes of memory of a process and its children, without the children's shared pages.

    OSError if the process does not exist.
    """
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    pages, _ = _pages(str(pid))
    for child in children:
        with suppress(OSError):  # the child has just ended
            resident, shared = _pages(child)
            pages += resident - shared
    return pages * PAGE


def _pages(pid: str) -> tuple[int, int]:
    """Return a process' pages in memory, and how many of them are shared with other processes, such as libraries."""
    _, resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[:3]
    return int(resident), int(shared)


@cache
def memory_limit() -> int:
    """Return the bytes of memory of the machine, or the limit of the container or job if that is lower."""
    limits = [os.sysconf("SC_PHYS_PAGES") * PAGE]
    for folder in _group_folders(GROUPS, GROUP_OF_PROCESS, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _text(folder / name).strip()
            limits.append(int(text) if text.isdecimal() else 0)
    return min(limit for limit in limits if limit > 0)


def _text(path: Path) -> str:
    """Return the text of a file, "" if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
