"""What the process of a training takes of the machine, and what its GPUs are doing. Of Linux alone."""

import ctypes
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from stride.utils.resources import memory_limit, memory_of

TICKS = os.sysconf("SC_CLK_TCK")
NVML = "libnvidia-ml.so.1"


class Gpu(NamedTuple):
    """One of the machine's: percent of the time it computed, bytes of its memory."""

    busy: int
    used: int
    total: int


class Use(NamedTuple):
    """Of a process and those it started, between two looks."""

    cpu: float | None
    """percent of one core; None at the first look"""
    memory: int
    of: int


class Machine:
    """Looks at one process at a time."""

    def __init__(self) -> None:
        self._pid, self._ticks, self._at = 0, 0, 0.0
        self._nvml: Any = None
        self._devices: list[ctypes.c_void_p] | None = None  # None: not asked yet

    def look(self, pid: int) -> Use | None:
        """None where it is gone."""
        now, ticks = time.monotonic(), _ticks(pid)
        if ticks is None:
            return None
        same = pid == self._pid and now > self._at
        cpu = 100.0 * max(0, ticks - self._ticks) / TICKS / (now - self._at) if same else None
        self._pid, self._ticks, self._at = pid, ticks, now
        try:
            return Use(cpu, memory_of(pid), memory_limit())
        except OSError:
            return None

    def gpus(self) -> list[Gpu]:
        """By NVIDIA's own library, [] where it is not there."""
        if self._devices is None:
            self._devices = self._open()
        found = (self._gpu(device) for device in self._devices)
        return [each for each in found if each]

    def _open(self) -> list[ctypes.c_void_p]:
        try:
            self._nvml = ctypes.CDLL(NVML)
        except OSError:
            return []
        count = ctypes.c_uint()
        if self._nvml.nvmlInit_v2() or self._nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return []
        devices = [ctypes.c_void_p() for _ in range(count.value)]
        return [each for place, each in enumerate(devices)
                if not self._nvml.nvmlDeviceGetHandleByIndex_v2(place, ctypes.byref(each))]  # fmt: skip

    def _gpu(self, device: ctypes.c_void_p) -> Gpu | None:
        rates, memory = (ctypes.c_uint * 2)(), (ctypes.c_ulonglong * 3)()  # gpu, memory; total, free, used
        failed = self._nvml.nvmlDeviceGetUtilizationRates(device, rates)
        failed = failed or self._nvml.nvmlDeviceGetMemoryInfo(device, memory)
        return None if failed else Gpu(rates[0], memory[2], memory[0])


def _ticks(pid: int) -> int | None:
    """Of processor time, its own, its threads' and its children's, those that ended among them."""
    try:
        pids = [str(pid), *Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return None
    total = 0
    for each in pids:
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        total += sum(map(int, fields[11 : 15 if each == str(pid) else 13]))
    return total
