"""Measure the memory and CPU time of a training process, and the load of the GPUs, for the monitor. Linux only."""

import ctypes
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from stride.utils.resources import memory_limit, memory_of

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
NVML = "libnvidia-ml.so.1"


class Gpu(NamedTuple):
    """The load of one GPU."""

    busy: int
    """percent of the time in which it computed"""
    used: int
    """bytes of its memory"""
    total: int
    """bytes of its memory"""


class Use(NamedTuple):
    """Resources of a process and its children, between two looks."""

    cpu: float | None
    """percent of one core; None at the first look"""
    memory: int
    """bytes in use"""
    available: int
    """bytes that the machine, or the container, has"""


class Machine:
    """Measures one process at a time; CPU use is that since the previous look at the same process."""

    def __init__(self) -> None:
        self._pid = 0
        self._ticks = 0
        self._time = 0.0
        self._nvml: Any = None
        self._devices: list[ctypes.c_void_p] | None = None  # None: not asked yet

    def look(self, pid: int) -> Use | None:
        """Return the use of this process and its children; None if it has ended."""
        now = time.monotonic()
        ticks = _ticks(pid)
        if ticks is None:
            return None
        cpu = None
        if pid == self._pid and now > self._time:
            cpu = 100.0 * max(0, ticks - self._ticks) / TICKS_PER_SECOND / (now - self._time)
        self._pid = pid
        self._ticks = ticks
        self._time = now
        try:
            return Use(cpu, memory_of(pid), memory_limit())
        except OSError:
            return None

    def gpus(self) -> list[Gpu]:
        """Return the load of all GPUs from NVIDIA's library NVML; [] if it is not installed."""
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
        """Load NVML and return a handle for each GPU. Its functions return 0 on success."""
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
    """Return the clock ticks that a process, its threads and its children (also ended ones) have computed.

    None if the process does not exist.
    """
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
        # utime and stime; for the process itself also cutime and cstime, of its children that ended (man 5 proc)
        total += sum(map(int, fields[11 : 15 if process == str(pid) else 13]))
    return total
