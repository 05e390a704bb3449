"""How long each phase took: by the clock on the CPU; on a GPU by marks in its own stream, which nobody waits for.

What is asked of a GPU runs later than it was asked for, so the host's clock would measure the asking.
"""

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, Protocol

import torch

MOST = 256  # spans that wait to be read; the oldest are long done by then


class Stopwatch:
    """Seconds by phase, on the host's clock. `begin` gives a mark, `end` counts what has passed since then."""

    begin: Callable[[], Any] = staticmethod(perf_counter)

    def __init__(self, phases: Iterable[str]) -> None:
        self.spent = dict.fromkeys(phases, 0.0)

    def end(self, phase: str, began: float) -> None:
        self.spent[phase] += perf_counter() - began

    def read(self) -> dict[str, float]:
        """What was counted so far; whoever measures a phase by himself adds to it."""
        return self.spent


class Event(Protocol):
    """torch.cuda.Event, as far as it is used."""

    def record(self, stream: Any = None) -> None: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, end_event: Any) -> float: ...


class DeviceStopwatch(Stopwatch):
    """The same of what a GPU does between two marks in its stream; `read` waits for the last one."""

    def __init__(self, phases: Iterable[str], mark: Callable[[], Event]) -> None:
        """`mark` gives an event that is already recorded."""
        super().__init__(phases)
        self.begin, self._spans = mark, list[tuple[str, Event, Event]]()

    def end(self, phase: str, began: Event) -> None:  # type: ignore[override]  # its own marks
        self._spans.append((phase, began, self.begin()))
        if len(self._spans) == MOST:
            self.read()

    def read(self) -> dict[str, float]:
        if self._spans:
            self._spans[-1][2].synchronize()
        for phase, began, ended in self._spans:
            self.spent[phase] += began.elapsed_time(ended) / 1000  # it answers in milliseconds
        self._spans.clear()
        return self.spent


def stopwatch(device: torch.device, phases: Iterable[str]) -> Stopwatch:
    """The one that is right for what runs on `device`."""

    def mark() -> Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event

    return DeviceStopwatch(phases, mark) if device.type == "cuda" else Stopwatch(phases)
