"""`lag: 1` for kernels: the policy that played, until the rollout is judged, and how far the actor has come from it."""

import torch
from torch import Tensor

from stride.agents.engines.fused_gpu.parameters import fetch
from stride.agents.engines.fused_gpu.play import scaling_of
from stride.agents.engines.plan.on_policy import lay_out
from stride.agents.networks.actor_critic import Lagging
from stride.agents.ppo import PPO


class PlayedPolicy:
    """Owns copies of the parameters and statistics that played, which the present ones may have replaced by then."""

    def __init__(self, agent: PPO, lagging: Lagging) -> None:
        policy, device = lagging.policy, agent.collector.envs.device
        self._agent, self._lagging, self._layout = agent, lagging, lay_out(policy)
        self.values = torch.zeros(self._layout.full_size, device=device)
        self._present_scaling = scaling_of(policy.encoder, device)
        self.scaling = [statistic.clone() for statistic in self._present_scaling]
        self.ratio: Tensor = torch.zeros(agent.memory.rows * agent.memory.num_envs, device=device)
        """pi(a|s) of the present policy over that of the one that played, of each row"""

    def fetch(self) -> None:
        """Copy the policy that played; then the actor that lags becomes the present one, before its updates."""
        fetch(self._layout, self.values)
        torch._foreach_copy_(self.scaling, list(self._present_scaling))
        self._lagging.follow(self._agent.policy)

    def report(self) -> None:
        """Report the lag as the agent itself would."""
        self._agent.log_lag(self.ratio)
