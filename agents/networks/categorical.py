"""Distributional critics: each output is the probability of a bin of the return (C51, Bellemare et al. 2017).

Letters in shapes: n critics, B samples, K bins (atoms in the paper).
"""

import torch
from torch import Tensor


class Bins:
    """K bins, whose returns `values` [K] are evenly spaced from -reach to reach; critics give logits [..., K]."""

    def __init__(self, count: int, reach: float, device: torch.device) -> None:
        self.values = torch.linspace(-reach, reach, count, device=device)
        self.reach, self.count = reach, count

    def mean(self, logits: Tensor) -> Tensor:
        """Return the expected return [...] of logits [..., K]."""
        return logits.softmax(-1) @ self.values

    def target(self, reward: Tensor, discount: Tensor, logits: Tensor, cost: Tensor | float = 0.0) -> Tensor:
        """Project the distribution of reward + discount (Z(s', a') - cost) onto the bins. -> probabilities [B, K]

        Z is the critic of logits [n, B, K] with the smallest mean; reward, discount [B]; cost [B] such as alpha log pi.
        Each shifted return is divided between the two bins around it, in proportion to nearness; returns beyond the
        outermost bin count as that bin.
        """
        smallest = self.mean(logits).argmin(0)
        chances = logits.softmax(-1)[smallest, torch.arange(len(smallest), device=smallest.device)]
        next_return = self.values - torch.as_tensor(cost, device=smallest.device).reshape(-1, 1)
        moved = (reward[:, None] + discount[:, None] * next_return).clamp(-self.reach, self.reach)
        position = ((moved + self.reach) * ((self.count - 1) / (2 * self.reach))).clamp(0, self.count - 1)
        lower = position.floor().clamp(max=self.count - 2)
        upper_share = position - lower
        index = lower.long().clamp(0, self.count - 2)  # a NaN may become any integer
        result = torch.zeros_like(chances)
        result.scatter_add_(1, index, chances * (1 - upper_share))
        result.scatter_add_(1, index + 1, chances * upper_share)
        return result

    def loss(self, logits: Tensor, target: Tensor, weight: Tensor | float = 1.0) -> Tensor:
        """Return the cross-entropy -E[weight sum_k target_k log p_k], mean over critics and samples. -> []

        `logits` [n, B, K], `target` probabilities [B, K], `weight` [B].
        """
        return -(weight * (target * logits.log_softmax(-1)).sum(-1)).mean()
