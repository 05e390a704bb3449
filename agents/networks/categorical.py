"""Critics of which each output is the chance of a bin: distributional returns (C51, Bellemare et al. 2017)."""

import torch
from torch import Tensor


class Bins:
    """Returns `values` [K], evenly apart within +-reach; logits [..., K] are of their chances."""

    def __init__(self, count: int, reach: float, device: torch.device) -> None:
        self.values = torch.linspace(-reach, reach, count, device=device)
        self.reach, self.count = reach, count

    def mean(self, logits: Tensor) -> Tensor:
        """The expected return [...]."""
        return logits.softmax(-1) @ self.values

    def target(self, reward: Tensor, discount: Tensor, logits: Tensor, cost: Tensor | float = 0.0) -> Tensor:
        """Chances [B, K] of reward + discount (next return - cost), of the critic of [n, B, K] with the least mean.

        Each moved return is divided between the two bins around it, by nearness; beyond the outermost it is that.
        """
        least = self.mean(logits).argmin(0)
        chances = logits.softmax(-1)[least, torch.arange(len(least), device=least.device)]
        next_return = self.values - torch.as_tensor(cost, device=least.device).reshape(-1, 1)
        moved = (reward[:, None] + discount[:, None] * next_return).clamp(-self.reach, self.reach)
        place = ((moved + self.reach) * ((self.count - 1) / (2 * self.reach))).clamp(0, self.count - 1)
        lower = place.floor().clamp(max=self.count - 2)
        upper_share = place - lower
        index = lower.long().clamp(0, self.count - 2)  # the limits are for NaN
        result = torch.zeros_like(chances)
        result.scatter_add_(1, index, chances * (1 - upper_share))
        result.scatter_add_(1, index + 1, chances * upper_share)
        return result

    def loss(self, logits: Tensor, target: Tensor, weight: Tensor | float = 1.0) -> Tensor:
        """Mean over critics [n, B, K] of the weighted cross-entropy towards [B, K]; weights [B]."""
        return -(weight * (target * logits.log_softmax(-1)).sum(-1)).mean()
