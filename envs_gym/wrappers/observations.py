"""Wrappers that encode discrete observations or select entries of vectors; images.py has those for images."""

from collections.abc import Sequence
from typing import Any, SupportsInt

import numpy as np
from gymnasium import Env, ObservationWrapper
from gymnasium.spaces import Box, Discrete

from stride.envs_gym.wrappers.base import check_observation, require
from stride.utils.user_error import nearest

ENCODINGS = ("onehot", "binary", "array")


class DiscreteEncoder(ObservationWrapper):
    """Encodes a discrete observation: `onehot` [n], `binary` (digits, lowest first) or `array` (the number) [1]."""

    def __init__(self, env: Env, encoding: str = "onehot") -> None:
        super().__init__(env)
        space: Any = env.observation_space
        require(isinstance(space, Discrete), f"DiscreteEncoder needs a discrete observation, not {space}")
        hint = f"{nearest(str(encoding), ENCODINGS)} (it takes {', '.join(ENCODINGS)})"
        require(encoding in ENCODINGS, f"DiscreteEncoder has no encoding {encoding!r}{hint}")
        self._start = int(space.start)
        count = int(space.n)
        index = np.arange(count)
        digits = max(1, (count - 1).bit_length())
        self._codes = {  # one row per observation
            "onehot": np.eye(count),
            "binary": index[:, None] >> np.arange(digits) & 1,
            "array": index[:, None] + self._start,
        }[encoding].astype(np.float32)
        lower, upper = self._codes.min(0), self._codes.max(0)
        if encoding == "onehot":
            lower = np.zeros_like(upper)  # with a single state, the minimum over the rows would be 1
        self.observation_space = Box(lower, upper, dtype=np.float32)

    def observation(self, observation: SupportsInt) -> np.ndarray:
        return self._codes[int(observation) - self._start]


class SelectObservation(ObservationWrapper):
    """Keeps only these entries of a vector, in this order."""

    def __init__(self, env: Env, indices: Sequence[int]) -> None:
        super().__init__(env)
        space: Any = env.observation_space
        vector = isinstance(space, Box) and len(space.shape) == 1
        require(vector, f"SelectObservation needs a vector, not {space}")
        size = space.shape[0]
        selected = indices if isinstance(indices, list | tuple) else [indices]
        fitting = bool(selected) and all(isinstance(i, int) and 0 <= i < size for i in selected)
        require(fitting, f"SelectObservation: indices must list entries from 0 to {size - 1}, not {indices}")
        check_observation("SelectObservation", (len(selected),), space.dtype)
        self._indices = np.array(selected)
        lower, upper = space.low[self._indices], space.high[self._indices]
        self.observation_space = Box(lower, upper, dtype=space.dtype.type)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[self._indices]
