"""A Gymnasium wrapper that scales rewards, for one comparison (popart.yaml): the same task with larger rewards."""

from typing import Any

from gymnasium import Env, RewardWrapper


class ScaleReward(RewardWrapper):
    """Multiplies the rewards that an agent learns from; reported returns stay those of the environment."""

    def __init__(self, env: Env, factor: float) -> None:
        super().__init__(env)
        self._factor = factor

    def reward(self, reward: Any) -> float:
        return self._factor * float(reward)
