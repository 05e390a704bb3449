"""Memory and processor time of a training, and the load of the GPUs. Linux only."""

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
    """Resources of a process and its children, between two looks."""

    cpu: float | None
    """percent of one core; None at the first look"""
    memory: int
    available: int


class Machine:
    """Looks at one process at a time."""

    def __init__(self) -> None:
        self._pid = 0
        self._ticks = 0
        self._time = 0.0
        self._nvml: Any = None
        self._devices: list[ctypes.c_void_p] | None = None  # None: not asked yet

    def look(self, pid: int) -> Use | None:
        """None where the process is gone."""
        now = time.monotonic()
        ticks = _ticks(pid)
        if ticks is None:
            return None
        cpu = None
        if pid == self._pid and now > self._time:
            cpu = 100.0 * max(0, ticks - self._ticks) / TICKS / (now - self._time)
        self._pid = pid
        self._ticks = ticks
        self._time = now
        try:
            return Use(cpu, memory_of(pid), memory_limit())
        except OSError:
            return None

    def gpus(self) -> list[Gpu]:
        """By NVIDIA's own library, [] where it is not installed."""
        if self._devices is None:
            self._devices = self._open()
        gpus = []
        for device in self._devices:
            rates = (ctypes.c_uint * 2)()  # gpu, memory
            memory = (ctypes.c_ulonglong * 3)()  # total, free, used
            failed = self._nvml.nvmlDeviceGetUtilizationRates(device, rates)
            if not failed and not self._nvml.nvmlDeviceGetMemoryInfo(device, memory):
                gpus.append(Gpu(rates[0], memory[2], memory[0]))
        return gpus

    def _open(self) -> list[ctypes.c_void_p]:
        try:
            self._nvml = ctypes.CDLL(NVML)
        except OSError:
            return []
        count = ctypes.c_uint()
        if self._nvml.nvmlInit_v2() or self._nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return []
        devices = []
        for index in range(count.value):
            device = ctypes.c_void_p()
            if not self._nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)):
                devices.append(device)
        return devices


def _ticks(pid: int) -> int | None:
    """Processor time of a process, its threads and its children, including those that ended."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    total = 0
    for process in [str(pid), *children]:
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        # utime, stime; for the process itself also those of the children that it waited for
        total += sum(map(int, fields[11 : 15 if process == str(pid) else 13]))
    return total
