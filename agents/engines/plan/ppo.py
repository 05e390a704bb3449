"""PPO to a fused engine."""

import numpy as np

from stride.agents.engines.plan.numbers import NORMALIZE, Live, Stat
from stride.agents.engines.plan.on_policy import OnPolicy
from stride.agents.engines.plan.recipe import or_infinite
from stride.agents.ppo import PPO
from stride.config.schema import PPOConfig


class PPORecipe(OnPolicy):
    """Advantages, the clipped surrogate, a critic that may be clipped, target_kl."""

    config = PPOConfig

    def __init__(self, agent: PPO) -> None:
        switches = {
            "REINFORCE": False,
            "WHOLE_EPISODE": False,
            "NORMALIZE": NORMALIZE[agent.config.normalize_advantages],
        }
        told = {
            "train/policy/approx_kl": Stat.KL,
            "train/policy/clip_fraction": Stat.CLIPPED,
            "train/policy/kl_stopped": Stat.STOPPED,
            "train/advantage/mean": Stat.WEIGHT_MEAN,
            "train/advantage/std": Stat.WEIGHT_STD,
        }
        super().__init__(agent, switches, told)

    def before_learning(self, live: np.ndarray) -> None:
        super().before_learning(live)
        now = self.agent.live
        live[Live.LAMBDA], live[Live.CLIP] = now.gae_lambda, now.clip_range
        live[Live.VALUE_CLIP] = or_infinite(now.clip_range_vf)
        live[Live.KL_LIMIT] = 1.5 * or_infinite(now.target_kl)
