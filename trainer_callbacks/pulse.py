"""A thread that reports the progress of a training between two rows; ExportMetrics owns it."""

import threading
from collections.abc import Callable
from time import monotonic

BEAT_SECONDS = 0.5  # between two looks at the time, so a beat comes at most 1 second after the last call of a sink


class Pulse:
    """Calls `beat` in its own thread whenever no row came for BEAT_SECONDS: an iteration may take minutes.

    It only reads counters, so a training is the same with it and without.
    """

    def __init__(self, beat: Callable[[], None]) -> None:
        self.failed = False  # whether `beat` raised; Python writes such an error to stderr and run.log
        self._beat = beat
        self._over = threading.Event()
        self._last = monotonic()  # when sinks were last called
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def postpone(self) -> None:
        """Delay the next beat, because sinks were just called."""
        self._last = monotonic()

    def end(self) -> None:
        """Stop, and wait until a beat under way is over; may be called twice, and before `begin`."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        completed = False
        try:
            while not self._over.wait(BEAT_SECONDS):
                if monotonic() - self._last >= BEAT_SECONDS:
                    self._beat()
                    self.postpone()
            completed = True
        finally:
            self.failed = not completed
