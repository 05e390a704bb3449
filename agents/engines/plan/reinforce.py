"""REINFORCE to a fused engine."""

from stride.agents.engines.plan.numbers import NORMALIZE, Stat
from stride.agents.engines.plan.on_policy import OnPolicy
from stride.agents.reinforce import REINFORCE
from stride.config.schema import REINFORCEConfig


class REINFORCERecipe(OnPolicy):
    """Monte Carlo returns, with a critic or without one."""

    config = REINFORCEConfig

    def __init__(self, agent: REINFORCE) -> None:
        switches = {
            "REINFORCE": True,
            "WHOLE_EPISODE": agent.config.returns_type == "mc:episode",
            "NORMALIZE": NORMALIZE[agent.config.normalize_returns],
        }
        super().__init__(agent, switches, {"train/return/mean": Stat.RETURN_MEAN})
