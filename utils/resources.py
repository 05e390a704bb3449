"""Processors and memory that this process may use and uses: affinity, control groups, its part of a machine."""

import os
import re
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

CORES_VARIABLE = "STRIDE_CORES"  # processors that whoever starts several of us side by side leaves to one of them
GROUPS, GROUP_OF_PROCESS, LOAD = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc/loadavg")
LOOKS, PAUSE = 3, 0.001  # at who runs: what does so in all of them runs for a while
PAGE = os.sysconf("SC_PAGE_SIZE")
UNLIMITED = 1 << 20  # processors


def cores() -> int:
    """Processors that this process may keep busy, at least 1."""
    allowed = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    assigned = os.environ.get(CORES_VARIABLE, "")
    if assigned.isdecimal():
        allowed = min(allowed, int(assigned))
    return max(1, min(allowed, quota(GROUPS, GROUP_OF_PROCESS)))


def idle() -> int:
    """Processors of the machine that nobody else computes on now; all of them where the system does not say."""
    others = []
    for look in range(LOOKS):
        time.sleep(PAUSE if look else 0)
        match = re.match(r"(?:\S+ ){3}(\d+)/", _text(LOAD))
        others.append(max(0, int(match[1]) - 1) if match else 0)  # one of them is this process
    return max(1, (os.cpu_count() or 1) - min(others))


def quota(groups: Path, group_of_process: Path) -> int:
    """Processors of a container or a systemd slice, rounded up: the smallest quota from our group up to the root."""
    quotas = [_quota_of(folder) for folder in _group_folders(groups, group_of_process, "cpu")]
    return max(1, -int(-min([*quotas, UNLIMITED]) // 1))


def _group_folders(groups: Path, group_of_process: Path, controller: str) -> Iterator[Path]:
    """The folders of this process' control group for a controller, and of the groups above it; version 2, and 1."""
    for line in _text(group_of_process).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        root = groups / (controller if controllers else "")
        group = root / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))


def _quota_of(folder: Path) -> float:
    """Processors' worth of time that a control group may take, by its quota and period in microseconds."""
    values = _text(folder / "cpu.max").split()  # version 2
    if not values:
        values = [_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    limited = len(values) == 2 and all(value.isdecimal() for value in values) and int(values[1]) > 0
    return int(values[0]) / int(values[1]) if limited else float("inf")


def memory_used() -> int:
    """Bytes in memory of this process and of those it started; where there is no /proc the most it ever had."""
    try:
        return memory_of(os.getpid())
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def memory_of(pid: int) -> int:
    """Bytes of any process and of those it started, whose shared pages do not count; OSError without it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    pages, _ = _pages(str(pid))
    for child in children:
        with suppress(OSError):  # it has just ended
            resident, shared = _pages(child)
            pages += resident - shared
    return pages * PAGE


def _pages(pid: str) -> tuple[int, int]:
    """Pages in memory, and how many of them are shared with other processes, such as libraries."""
    _, resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[:3]
    return int(resident), int(shared)


@cache
def memory_limit() -> int:
    """Bytes of memory of the machine, or what its container or job may take."""
    limits = [os.sysconf("SC_PHYS_PAGES") * PAGE]
    for folder in _group_folders(GROUPS, GROUP_OF_PROCESS, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _text(folder / name).strip()
            limits.append(int(text) if text.isdecimal() else 0)
    return min(limit for limit in limits if limit > 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
