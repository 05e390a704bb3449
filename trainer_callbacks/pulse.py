"""A thread that reports, between two rows, how far a training is."""

import threading
from collections.abc import Callable
from time import monotonic

BEAT_SECONDS = 0.5  # between two looks at the clock; sinks wait for a beat at most twice that


class Pulse:
    """Calls `beat` from a thread where no row came for BEAT_SECONDS, until it is ended: iterations may take minutes.

    It reads counters and calls whoever wants to know; a training is the same with it and without.
    """

    def __init__(self, beat: Callable[[], None]) -> None:
        self.failed = False  # `beat` raised; Python has written the error to stderr and run.log
        self._beat = beat
        self._over = threading.Event()
        self._last = monotonic()  # when sinks were last called
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def postpone(self) -> None:
        """Sinks were called: the next beat is unnecessary."""
        self._last = monotonic()

    def end(self) -> None:
        """No beat begins any more, and none is under way; may be called twice, and before the begin."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        well = False
        try:
            while not self._over.wait(BEAT_SECONDS):
                if monotonic() - self._last >= BEAT_SECONDS:
                    self._beat()
                    self.postpone()
            well = True
        finally:
            self.failed = not well
