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
        sample_count, return_sum, squares = self.moments
        variance = (squares / sample_count - (return_sum / sample_count).square()).clamp(min=0)
        return (reward / (variance + 1e-8).sqrt()).clamp(-10, 10).float()

    def state_dict(self) -> dict:
        return {"running": self.running.clone(), "moments": self.moments.clone()}

    def load_state_dict(self, state: dict) -> None:
        self.running.copy_(state["running"])
        self.moments.copy_(state["moments"])
