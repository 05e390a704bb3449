"""From the units of a box to those of the kernels, where [-1, 1] spans its bounds; for the faces."""

import numpy as np
from gymnasium import spaces


class Scale:
    """The bounds of a box as centre and half width."""

    def __init__(self, box: spaces.Box) -> None:
        self._centre = (box.high + box.low) / 2
        self._half = (box.high - box.low) / 2
        self._trivial = bool((self._centre == 0).all() and (self._half == 1).all())

    def to_unit(self, array: np.ndarray) -> np.ndarray:
        """float32; exact where the bounds are symmetric and powers of two, as those of all our worlds are."""
        array = np.ascontiguousarray(array, np.float32)
        return array if self._trivial else (array - self._centre) / self._half
