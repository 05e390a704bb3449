"""A thread that tells, between two rows, how far a training is, whatever it is busy with: iterations may take minutes.

It reads counters and calls whoever wants to know; a training is the same with it and without.
"""

import threading
import time
from collections.abc import Callable

EVERY = 0.5  # seconds between two looks at the clock, and the longest that nothing is told is twice that


class Pulse:
    """Calls `beat` where nothing was told for EVERY seconds, until it is ended."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self.failed = False  # `beat` raised; Python has written the error to stderr and run.log
        self._beat, self._over, self._told = beat, threading.Event(), time.monotonic()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def told(self) -> None:
        """Something was just told that makes the next beat unnecessary."""
        self._told = time.monotonic()

    def end(self) -> None:
        """No beat begins any more, and none is under way; may be called twice, and before the begin."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        well = False
        try:
            while not self._over.wait(EVERY):
                if time.monotonic() - self._told >= EVERY:
                    self._beat()
                    self.told()
            well = True
        finally:
            self.failed = not well
