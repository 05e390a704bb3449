"""How large one observation may become, said before an array of that size is made."""

import math
from collections.abc import Sequence

import numpy as np

from stride.utils.user_error import UserError

LARGEST = 1 << 28  # bytes: a picture of 9,000 x 9,000 in colour


def check_observation(name: str, shape: Sequence[int], kind: np.dtype) -> None:
    """UserError where the observations of a wrapper would not fit."""
    size = math.prod(int(side) for side in shape) * kind.itemsize
    if size > LARGEST:
        raise UserError(f"{name}: an observation of {size:,} bytes is more than the {LARGEST:,} that one may have")
