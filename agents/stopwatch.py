"""Counts the seconds of each phase of a training: by the host's clock, or on a GPU by events in its stream.

A GPU runs its work later than the host starts it, so the host's clock would measure only the start. Nothing waits for
an event until the seconds are read.
"""

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, Protocol

import torch

MAX_UNREAD_SPANS = 256  # at so many they are read, which waits for the GPU once


class Stopwatch:
    """Seconds by phase, by the host's clock: `start = begin()`, then `end(phase, start)` counts the time between."""

    begin: Callable[[], Any] = staticmethod(perf_counter)

    def __init__(self, phases: Iterable[str]) -> None:
        self.spent = dict.fromkeys(phases, 0.0)

    def end(self, phase: str, start: float) -> None:
        self.spent[phase] += perf_counter() - start

    def read(self) -> dict[str, float]:
        """Return the seconds so far by phase; a caller that measures a phase itself adds to this dict."""
        return self.spent


class CudaEvent(Protocol):
    """The part of torch.cuda.Event that is used here."""

    def record(self, stream: Any = None) -> None: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, end_event: Any) -> float: ...


class DeviceStopwatch(Stopwatch):
    """Seconds by phase between two events in a GPU's stream; `read` waits for the last event."""

    def __init__(self, phases: Iterable[str], mark: Callable[[], CudaEvent]) -> None:
        """`mark` returns an event that is already recorded in the stream."""
        super().__init__(phases)
        self.begin = mark
        self._spans: list[tuple[str, CudaEvent, CudaEvent]] = []  # phase, first mark, last mark

    def end(self, phase: str, start: CudaEvent) -> None:  # type: ignore[override]  # its own marks
        self._spans.append((phase, start, self.begin()))
        if len(self._spans) == MAX_UNREAD_SPANS:
            self.read()

    def read(self) -> dict[str, float]:
        if self._spans:
            self._spans[-1][2].synchronize()
        for phase, first_mark, last_mark in self._spans:
            self.spent[phase] += first_mark.elapsed_time(last_mark) / 1000  # milliseconds
        self._spans.clear()
        return self.spent


def stopwatch(device: torch.device, phases: Iterable[str]) -> Stopwatch:
    """Return the stopwatch for work on `device`."""

    def mark() -> CudaEvent:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event

    return DeviceStopwatch(phases, mark) if device.type == "cuda" else Stopwatch(phases)
