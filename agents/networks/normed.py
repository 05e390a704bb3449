"""Layers of world models, as in DreamerV3: linear without bias, RMS norm, SiLU; and how their weights are initialised.

No output depends on other rows of a batch.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPS = 1e-4
GAIN = 1.1368  # corrects that cutting a normal distribution at 2 deviations divides its deviation by this


class RMSNorm(nn.Module):
    """scale * x / sqrt(mean(x^2) + EPS) over the last dimension."""

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
    """A linear layer in separate blocks: [..., blocks, size_in / blocks] -> [..., blocks, size_out / blocks]."""

    def __init__(self, size_in: int, size_out: int, blocks: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(blocks, size_in // blocks, size_out // blocks))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("...bi,bio->...bo", x, self.weight)


def dense(size: int, width: int, layers: int = 1) -> nn.Sequential:
    """Make `layers` times Linear, RMSNorm, SiLU of this width, on `size` inputs."""
    dense_modules: list[nn.Module] = []
    for _ in range(layers):
        dense_modules += [nn.Linear(size, width, bias=False), RMSNorm(width), nn.SiLU()]
        size = width
    return nn.Sequential(*dense_modules)


@torch.no_grad()
def initialize(module: nn.Module, generator: torch.Generator, silent: tuple[nn.Linear, ...] = ()) -> None:
    """Draw weights: truncated normal with variance 1 / inputs; biases 0. Layers in `silent` get weights of 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d | BlockLinear):
            input_count = layer.weight.shape[1] if isinstance(layer, BlockLinear) else layer.weight[0].numel()
            std = GAIN * input_count**-0.5
            nn.init.trunc_normal_(layer.weight, 0, std, -2 * std, 2 * std, generator=generator)
            if not isinstance(layer, BlockLinear) and layer.bias is not None:
                layer.bias.zero_()
    for layer in silent:
        layer.weight.zero_()
