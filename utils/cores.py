"""How many processors this process may keep busy: affinity, control group, its share of a group; and who is idle."""

import os
import re
import time
from pathlib import Path

SHARE = "STRIDE_CORES"  # what whoever starts several of us side by side leaves to each
GROUPS, OWN, LOAD = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc/loadavg")
LOOKS, PAUSE = 3, 0.001  # at who runs: what does so in each of them stays a while


def cores() -> int:
    """At least 1."""
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    told = os.environ.get(SHARE, "")
    share = int(told) if told.isdecimal() else len(mine)
    return max(1, min(len(mine), share, quota(GROUPS, OWN)))


def idle() -> int:
    """Processors of the machine that nobody else computes on just now; all of them where the system does not tell."""
    others = []
    for look in range(LOOKS):
        time.sleep(PAUSE if look else 0)
        told = re.match(r"(?:\S+ ){3}(\d+)/", _text(LOAD))
        others.append(max(0, int(told[1]) - 1) if told else 0)  # one of them is this process
    return max(1, (os.cpu_count() or 1) - min(others))


def quota(groups: Path, own: Path) -> int:
    """Of a container or a systemd slice, rounded up: the smallest from our group up to the root; very many for none."""
    least = float("inf")
    for line in _text(own).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        root = groups / ("cpu" if "cpu" in controllers.split(",") else "")
        if controllers and root == groups:  # another controller's
            continue
        here = root / path.lstrip("/")
        for folder in (here, *here.parents):
            if not folder.is_relative_to(root):
                break
            least = min(least, _quota_of(folder))
    return max(1, -int(-least // 1)) if least < 1 << 20 else 1 << 20


def _quota_of(folder: Path) -> float:
    """Processors' worth of time that a control group may take; version 2, or 1."""
    both = _text(folder / "cpu.max").split() or [
        _text(folder / "cpu.cfs_quota_us").strip(), _text(folder / "cpu.cfs_period_us").strip()
    ]  # fmt: skip
    known = len(both) == 2 and all(word.isdecimal() for word in both) and int(both[1]) > 0
    return int(both[0]) / int(both[1]) if known else float("inf")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
