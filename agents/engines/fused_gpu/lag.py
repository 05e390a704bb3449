"""`lag: 1` for kernels: keep the policy that played a rollout until its log-probabilities and ratios are computed."""

import torch
from torch import Tensor

from stride.agents.engines.fused_gpu.parameters import fetch
from stride.agents.engines.fused_gpu.play import scaling_of
from stride.agents.engines.plan.on_policy import lay_out
from stride.agents.networks.actor_critic import Lagging
from stride.agents.ppo import PPO


class PlayedPolicy:
    """Copies of the parameters and statistics that played, since later ones may replace the originals."""

    def __init__(self, agent: PPO, lagging: Lagging) -> None:
        policy, device = lagging.policy, agent.collector.envs.device
        self._agent, self._lagging, self._layout = agent, lagging, lay_out(policy)
        self.values = torch.zeros(self._layout.full_size, device=device)
        self._current_scaling = scaling_of(policy.encoder, device)
        self.scaling = [statistic.clone() for statistic in self._current_scaling]
        self.ratio: Tensor = torch.zeros(agent.memory.rows * agent.memory.num_envs, device=device)
        """[rows] pi(a|s) of the current policy divided by that of the policy that played"""

    def fetch(self) -> None:
        """Copy the policy that played; then set the lagging actor to the current policy, before the updates."""
        fetch(self._layout, self.values)
        torch._foreach_copy_(self.scaling, list(self._current_scaling))
        self._lagging.follow(self._agent.policy)

    def report(self) -> None:
        """Add the metrics of the lag to the agent's."""
        self._agent.log_lag(self.ratio)
