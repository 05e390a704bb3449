"""A wrapper for one comparison (popart.yaml): the same task with rewards of another size."""

from typing import Any

from gymnasium import Env, RewardWrapper


class ScaleReward(RewardWrapper):
    """Multiplies the rewards that are learnt from; returns are reported as the environment has them."""

    def __init__(self, env: Env, factor: float) -> None:
        super().__init__(env)
        self._factor = factor

    def reward(self, reward: Any) -> float:
        return self._factor * float(reward)
