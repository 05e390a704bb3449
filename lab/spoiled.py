"""Wrappers that spoil an environment in a known way, for lab/cures.py: each is named as `lab.spoiled:Flipped`."""

from typing import Any

import numpy as np
from gymnasium import Env, ObservationWrapper, RewardWrapper


class Flipped(RewardWrapper):
    """Rewards with the opposite sign: the agent learns to avoid what it should do."""

    def reward(self, reward: Any) -> float:
        return -float(reward)


class Scaled(RewardWrapper):
    """Rewards multiplied by a number."""

    def __init__(self, env: Env, scale: float) -> None:
        super().__init__(env)
        self.scale = scale

    def reward(self, reward: Any) -> float:
        return self.scale * float(reward)


class Constant(ObservationWrapper):
    """Observations of zeros: the agent sees nothing."""

    def observation(self, observation: Any) -> Any:
        return np.zeros_like(observation)
