"""A world of images that costs nothing: what is left of a training is its network."""

from typing import Any

import gymnasium
import numpy as np

ID, SHAPE, ACTIONS = "Pictures-v0", (4, 84, 84), 6
KINDS, LENGTH = 64, 1000  # different pictures; steps of an episode


class Pictures(gymnasium.Env):
    """Pictures at random; the reward is 1 for one of the actions."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, SHAPE, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(ACTIONS)
        self.pictures = np.random.default_rng(0).integers(0, 256, (KINDS, *SHAPE), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        return self._show(), float(action == 0), False, False, {}

    def _show(self) -> np.ndarray:
        return self.pictures[self.np_random.integers(KINDS)]


gymnasium.register(ID, entry_point=f"{__name__}:{Pictures.__name__}", max_episode_steps=LENGTH)
