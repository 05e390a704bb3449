"""`normalize_reward`: divide rewards by the running standard deviation of the discounted return.

Agents scale rewards when they learn; the memory and reports have raw rewards.
"""

from typing import Protocol

import torch
from torch import Tensor

from stride.agents.experience.shards import SINGLE, SingleShard


class Discount(Protocol):
    """Values of schedules, such as an agent's `live`."""

    gamma: float


class RewardScale:
    """Scales rollouts; owns every world's discounted return so far, and count, sum and squares of all of them."""

    def __init__(self, enabled: bool, live: Discount, like: Tensor) -> None:
        """`live`: the agent's, with the current gamma. `like` [N]: a reward, for its size and device."""
        self.enabled = enabled
        self.live = live
        self.running = torch.zeros_like(like)
        self.moments = torch.zeros(3, dtype=torch.float64, device=like.device)  # count, sum, sum of squares

    def __call__(self, reward: Tensor, ended: Tensor, shard: SingleShard = SINGLE) -> Tensor:
        """Learn from the rollout [T, N] of all shards, then return it scaled, clipped to +-10."""
        if not self.enabled:
            return reward
        self.learn(reward, ended, shard)
        return (reward / self.deviation).clamp(-10, 10).float()

    def learn(self, reward: Tensor, ended: Tensor, shard: SingleShard = SINGLE) -> Tensor:
        """Learn from rewards [T, N], which follow those of the last call; return the returns so far [T, N]."""
        # R_t = r_t + gamma R_t-1, and 0 after an end, like VecNormalize: a sum over past rewards, not future ones
        returns = torch.empty_like(reward)
        previous_returns = self.running.clone()
        for t in range(len(reward)):
            torch.add(reward[t], self.running, alpha=self.live.gamma, out=returns[t])
            self.running.copy_(returns[t] * ~ended[t])
        x = returns.double()
        moments = torch.stack((x.new_full((), x.numel()), x.sum(), x.square().sum()))  # new_tensor would copy, and wait
        moments = shard.sum(moments)
        finite = moments.isfinite().all()  # skip non-finite rollouts, without a wait of the host
        self.moments += torch.where(finite, moments, 0)
        self.running.copy_(torch.where(finite, self.running, previous_returns))
        return returns

    @property
    def deviation(self) -> Tensor:
        """The standard deviation of all returns so far, float64 []."""
        sample_count, return_sum, squares = self.moments
        variance = (squares / sample_count - (return_sum / sample_count).square()).clamp(min=0)
        return (variance + 1e-8).sqrt()

    def state_dict(self) -> dict:
        return {"running": self.running.clone(), "moments": self.moments.clone()}

    def load_state_dict(self, state: dict) -> None:
        self.running.copy_(state["running"])
        self.moments.copy_(state["moments"])


class ReplayedRewardScale(RewardScale):
    """Scales rewards drawn from a replay memory. With a `reach` the scaled returns so far are within +-reach."""

    def __init__(self, enabled: bool, live: Discount, like: Tensor, reach: float | None) -> None:
        super().__init__(enabled, live, like)
        self.reach = reach
        self.largest = torch.zeros_like(like[0])  # absolute value of all returns so far

    def learn(self, reward: Tensor, ended: Tensor, shard: SingleShard = SINGLE) -> Tensor:
        returns = super().learn(reward, ended, shard)
        largest = returns.abs().max()
        self.largest.copy_(torch.where(largest.isfinite(), self.largest.maximum(largest), self.largest))
        return returns

    def scaled(self, reward: Tensor) -> Tensor:
        """Return rewards [B], or sums of rewards, divided by the current scale."""
        if not self.enabled:
            return reward
        divisor = self.deviation
        if self.reach is not None:
            divisor = divisor.maximum(self.largest / self.reach)
        return reward / divisor.to(reward.dtype)

    def state_dict(self) -> dict:
        return {**super().state_dict(), "largest": self.largest.clone()}

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        self.largest.copy_(state["largest"])
