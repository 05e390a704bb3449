"""Rewards divided by the running deviation of the discounted return; raw rewards stay in memory and in reports."""

from typing import Protocol

import torch
from torch import Tensor

from stride.agents.experience.shards import SINGLE, SingleShard


class Discount(Protocol):
    """Has the discount of the present iteration."""

    gamma: float


class RewardScale:
    """Owns the discounted return so far of every world and the moments of all returns so far."""

    def __init__(self, enabled: bool, live: Discount, like: Tensor) -> None:
        """`live`: the agent's, with the present gamma. `like` [N]: a reward, for its size and device."""
        self.enabled = enabled
        self.live = live
        self.running = torch.zeros_like(like)
        self.moments = torch.zeros(3, dtype=torch.float64, device=like.device)  # count, sum, sum of squares

    def __call__(self, reward: Tensor, ended: Tensor, shard: SingleShard = SINGLE) -> Tensor:
        """[T, N] -> [T, N]: learn from this rollout of all shards, then scale it; within +-10."""
        if not self.enabled:
            return reward
        self.learn(reward, ended, shard)
        return (reward / self.deviation).clamp(-10, 10).float()

    def learn(self, reward: Tensor, ended: Tensor, shard: SingleShard = SINGLE) -> Tensor:
        """Learn from rewards [T, N] that follow those of the call before; -> the discounted returns so far [T, N]."""
        # R_t = r_t + gamma R_t-1, and 0 after an end, as VecNormalize does: a sum over rewards that are past
        returns = torch.empty_like(reward)
        previous_returns = self.running.clone()
        for t in range(len(reward)):
            torch.add(reward[t], self.running, alpha=self.live.gamma, out=returns[t])
            self.running.copy_(returns[t] * ~ended[t])
        x = returns.double()
        moments = torch.stack((x.new_full((), x.numel()), x.sum(), x.square().sum()))  # new_tensor would copy, and wait
        moments = shard.sum(moments)
        finite = moments.isfinite().all()  # a non-finite rollout is not learnt from, and the host does not wait to know
        self.moments += torch.where(finite, moments, 0)
        self.running.copy_(torch.where(finite, self.running, previous_returns))
        return returns

    @property
    def deviation(self) -> Tensor:
        """Of all returns so far, [] float64."""
        sample_count, return_sum, squares = self.moments
        variance = (squares / sample_count - (return_sum / sample_count).square()).clamp(min=0)
        return (variance + 1e-8).sqrt()

    def state_dict(self) -> dict:
        return {"running": self.running.clone(), "moments": self.moments.clone()}

    def load_state_dict(self, state: dict) -> None:
        self.running.copy_(state["running"])
        self.moments.copy_(state["moments"])


class ReplayedRewardScale(RewardScale):
    """For rewards that are read from a memory later, and scaled then. With a `reach` no return so far exceeds +-it."""

    def __init__(self, enabled: bool, live: Discount, like: Tensor, reach: float | None) -> None:
        super().__init__(enabled, live, like)
        self.reach = reach
        self.largest = torch.zeros_like(like[0])  # absolute return so far

    def learn(self, reward: Tensor, ended: Tensor, shard: SingleShard = SINGLE) -> Tensor:
        returns = super().learn(reward, ended, shard)
        largest = returns.abs().max()
        self.largest.copy_(torch.where(largest.isfinite(), self.largest.maximum(largest), self.largest))
        return returns

    def scaled(self, reward: Tensor) -> Tensor:
        """Rewards [B], or sums of them, divided by the present scale."""
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
