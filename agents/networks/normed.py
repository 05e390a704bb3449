"""Layers of world models: linear without a bias, divided by the root of the mean square, SiLU; and their first weights.

No output depends on other rows of a batch.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPS = 1e-4
GAIN = 1.1368  # a normal distribution cut at two deviations has 1 / 1.1368 of its deviation


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2)), scaled."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.scale.shape, self.scale, EPS)


class Channels(RMSNorm):
    """RMSNorm over the channels of each pixel [B, C, H, W], then SiLU."""

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(super().forward(x.movedim(1, -1)).movedim(-1, 1))


class BlockLinear(nn.Module):
    """A linear layer without weights between blocks: [..., blocks, in / blocks] -> [..., blocks, out / blocks]."""

    def __init__(self, size_in: int, size_out: int, blocks: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(blocks, size_in // blocks, size_out // blocks))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("...bi,bio->...bo", x, self.weight)


def dense(size: int, width: int, layers: int = 1) -> nn.Sequential:
    """Layers of Linear, RMSNorm, SiLU."""
    dense_modules: list[nn.Module] = []
    for _ in range(layers):
        dense_modules += [nn.Linear(size, width, bias=False), RMSNorm(width), nn.SiLU()]
        size = width
    return nn.Sequential(*dense_modules)


@torch.no_grad()
def initialize(module: nn.Module, generator: torch.Generator, silent: tuple[nn.Linear, ...] = ()) -> None:
    """Truncated normal with a variance of 1 / inputs, biases 0; layers named `silent` begin at 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d | BlockLinear):
            input_count = layer.weight.shape[1] if isinstance(layer, BlockLinear) else layer.weight[0].numel()
            std = GAIN * input_count**-0.5
            nn.init.trunc_normal_(layer.weight, 0, std, -2 * std, 2 * std, generator=generator)
            if not isinstance(layer, BlockLinear) and layer.bias is not None:
                layer.bias.zero_()
    for layer in silent:
        layer.weight.zero_()
