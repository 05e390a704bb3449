"""Seconds of each phase: by the clock on the CPU; on a GPU by marks in its own stream, which nobody waits for.

A GPU runs its work later than the host starts it, so the host's clock would measure the start alone.
"""

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, Protocol

import torch

MOST = 256  # spans that are not read yet; the oldest are long done by then


class Stopwatch:
    """Seconds by phase, on the host's clock. `begin` gives a mark, `end` counts the time since then."""

    begin: Callable[[], Any] = staticmethod(perf_counter)

    def __init__(self, phases: Iterable[str]) -> None:
        self.spent = dict.fromkeys(phases, 0.0)

    def end(self, phase: str, start: float) -> None:
        self.spent[phase] += perf_counter() - start

    def read(self) -> dict[str, float]:
        """Seconds so far; a caller that measures a phase itself adds to this dict."""
        return self.spent


class CudaEvent(Protocol):
    """torch.cuda.Event, as far as it is used."""

    def record(self, stream: Any = None) -> None: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, end_event: Any) -> float: ...


class DeviceStopwatch(Stopwatch):
    """Seconds of a GPU between two marks in its stream; `read` waits for the last one."""

    def __init__(self, phases: Iterable[str], mark: Callable[[], CudaEvent]) -> None:
        """`mark` gives an event that is already recorded."""
        super().__init__(phases)
        self.begin = mark
        self._spans: list[tuple[str, CudaEvent, CudaEvent]] = []  # phase, first mark, last mark

    def end(self, phase: str, start: CudaEvent) -> None:  # type: ignore[override]  # its own marks
        self._spans.append((phase, start, self.begin()))
        if len(self._spans) == MOST:
            self.read()

    def read(self) -> dict[str, float]:
        if self._spans:
            self._spans[-1][2].synchronize()
        for phase, first_mark, last_mark in self._spans:
            self.spent[phase] += first_mark.elapsed_time(last_mark) / 1000  # milliseconds
        self._spans.clear()
        return self.spent


def stopwatch(device: torch.device, phases: Iterable[str]) -> Stopwatch:
    """The stopwatch for work on `device`."""

    def mark() -> CudaEvent:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event

    return DeviceStopwatch(phases, mark) if device.type == "cuda" else Stopwatch(phases)
