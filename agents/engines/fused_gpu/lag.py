"""`lag: 1` for kernels: who played, kept until the rollout is judged, and how far the actor has come from it."""

import torch
from torch import Tensor

from stride.agents.engines.fused_gpu.parameters import fetch
from stride.agents.engines.fused_gpu.play import scaling_of
from stride.agents.engines.plan.on_policy import lay_out
from stride.agents.networks.actor_critic import Lagging
from stride.agents.ppo import PPO


class Played:
    """Owns copies of its parameters and of its statistics, which the present policy's may have replaced by then."""

    def __init__(self, agent: PPO, lagging: Lagging) -> None:
        policy, device = lagging.policy, agent.collector.envs.device
        self._agent, self._lagging, self._layout = agent, lagging, lay_out(policy)
        self.values = torch.zeros(self._layout.whole, device=device)
        self._now = scaling_of(policy.encoder.leaf[0], policy.encoder.size, device)
        self.scaling = (self._now[0].clone(), self._now[1].clone())
        self.ratio: Tensor = torch.zeros(agent.memory.rows * agent.memory.num_envs, device=device)
        """pi(a|s) of the present policy over that of the one that played, of each row"""

    def fetch(self) -> None:
        """Note who played; then the actor that lags becomes the present one, before its updates."""
        fetch(self._layout, self.values)
        for mine, now in zip(self.scaling, self._now, strict=True):
            mine.copy_(now)
        self._lagging.follow(self._agent.policy)

    def tell(self) -> None:
        """As the agent itself would."""
        self._agent.log_lag(self.ratio)
