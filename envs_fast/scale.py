"""Converts actions from the units of a Box to those of the kernels, in which -1 and 1 are the bounds.

The Gymnasium and SB3 versions of the compiled environments (gym_face.py, sb3.py) use it.
"""

import numpy as np
from gymnasium import spaces


class Scale:
    """The bounds of a Box, stored as centre and half width."""

    def __init__(self, box: spaces.Box) -> None:
        self._centre = (box.high + box.low) / 2
        self._half = (box.high - box.low) / 2
        self._trivial = bool((self._centre == 0).all() and (self._half == 1).all())

    def to_unit(self, array: np.ndarray) -> np.ndarray:
        """Convert actions to float32 in the kernels' units.

        It is exact where the bounds are symmetric and powers of two, as in all compiled environments.
        """
        array = np.ascontiguousarray(array, np.float32)
        return array if self._trivial else (array - self._centre) / self._half
