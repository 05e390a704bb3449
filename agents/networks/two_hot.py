"""Numbers of any size as classes: symlog, and chances of bins; a target is spread over the two bins around it."""

import torch
from torch import Tensor, nn

REACH = 20.0  # of the outermost bins, on the scale of symlog: 4.9e8


def symlog(x: Tensor) -> Tensor:
    """sign(x) ln(1 + |x|): near 0 the number itself, far away its logarithm."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """The inverse of symlog."""
    return x.sign() * x.abs().expm1()


class TwoHot(nn.Module):
    """An odd number of bins, evenly apart on the scale of symlog: one is 0, the others are pairs +-b."""

    bins: Tensor

    def __init__(self, size: int, reach: float = REACH) -> None:
        super().__init__()
        positive = symexp(torch.linspace(0, reach, size // 2 + 1, dtype=torch.float64))[1:]
        bin_values = torch.cat((-positive.flip(0), torch.zeros(1, dtype=torch.float64), positive))
        assert len(bin_values) == size, "an odd number"
        self.register_buffer("bins", bin_values.float(), persistent=False)
        self.pairs = size // 2

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy [...] of logits [..., bins] towards the two bins around `target` [...], each by its nearness.

        A target beyond the outermost bin is that bin.
        """
        target = target.clamp(self.bins[0], self.bins[-1])
        upper_index = torch.searchsorted(self.bins, target).clamp(1, 2 * self.pairs)  # the upper limit is for NaN
        lower_bin = self.bins[upper_index - 1]
        upper_weight = (target - lower_bin) / (self.bins[upper_index] - lower_bin)
        bin_logits = logits.gather(-1, torch.stack((upper_index - 1, upper_index), -1))
        return logits.logsumexp(-1) - torch.lerp(bin_logits[..., 0], bin_logits[..., 1], upper_weight)

    def mean(self, logits: Tensor) -> Tensor:
        """The expected number [...]; in pairs +-b, so that equal chances are 0 exactly, whatever the outer bins are."""
        p = logits.softmax(-1)
        return (p[..., self.pairs + 1 :] - p[..., : self.pairs].flip(-1)) @ self.bins[self.pairs + 1 :]
