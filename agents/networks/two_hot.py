"""Regression by classification, for numbers of any scale (DreamerV3): symlog, and two-hot targets over bins.

A network gives logits of bins; a target is divided between the two bins around it.
"""

import torch
from torch import Tensor, nn

REACH = 20.0  # the outermost bins on the symlog scale: +-symexp(20) = +-4.9e8


def symlog(x: Tensor) -> Tensor:
    """sign(x) ln(1 + |x|): about x near 0, and its logarithm for large |x|."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """sign(x) (exp(|x|) - 1), the inverse of symlog."""
    return x.sign() * x.abs().expm1()


class TwoHot(nn.Module):
    """An odd number of bins, evenly spaced on the symlog scale: one is 0, the others are pairs +-b."""

    bins: Tensor

    def __init__(self, size: int, reach: float = REACH) -> None:
        super().__init__()
        positive = symexp(torch.linspace(0, reach, size // 2 + 1, dtype=torch.float64))[1:]
        bin_values = torch.cat((-positive.flip(0), torch.zeros(1, dtype=torch.float64), positive))
        assert len(bin_values) == size, "an odd number"
        self.register_buffer("bins", bin_values.float(), persistent=False)
        self.pairs = size // 2

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy [...] of logits [..., bins] with the two-hot code of `target` [...].

        The code divides 1 between the two bins around the target, in proportion to nearness. Targets beyond the
        outermost bin count as that bin.
        """
        target = target.clamp(self.bins[0], self.bins[-1])
        upper_index = torch.searchsorted(self.bins, target).clamp(1, 2 * self.pairs)  # the upper limit is for NaN
        lower_bin = self.bins[upper_index - 1]
        upper_weight = (target - lower_bin) / (self.bins[upper_index] - lower_bin)
        bin_logits = logits.gather(-1, torch.stack((upper_index - 1, upper_index), -1))
        return logits.logsumexp(-1) - torch.lerp(bin_logits[..., 0], bin_logits[..., 1], upper_weight)

    def mean(self, logits: Tensor) -> Tensor:
        """Return the expected number [...], summed in pairs +-b, so that equal probabilities give exactly 0."""
        p = logits.softmax(-1)
        return (p[..., self.pairs + 1 :] - p[..., : self.pairs].flip(-1)) @ self.bins[self.pairs + 1 :]
