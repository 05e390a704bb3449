"""Networks of SAC, TQC and TD3: hidden layers with norms, or inverted residual blocks; and their first weights.

A batch norm uses mean and variance of the batch only inside `batch_moments`, where it also updates its running ones.
Everywhere else (acting, explaining, export) it uses the running ones, so that no row depends on another.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stride.agents.networks.layers import ACTIVATIONS, Dense, LayerNorm, hidden_layers, initialize_evenly
from stride.agents.networks.normed import RMSNorm
from stride.config.network import NetworkShape

EXPANSION = 4  # the inner layer of a block is this many times as wide
MOMENTUM, EPS = 0.01, 1e-5  # of batch norm


class BatchNorm(nn.Module):
    """weight * (x - mean) / sqrt(var + EPS) + bias for each feature of x [B, size]."""

    mean: Tensor
    var: Tensor
    by_batch = False
    """whether it uses the moments of the batch; set by `batch_moments`"""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.mean, self.var, self.weight, self.bias, self.by_batch, MOMENTUM, EPS)

    def follow(self, other: "BatchNorm") -> None:
        """Copy the running moments of another batch norm."""
        self.mean.copy_(other.mean)
        self.var.copy_(other.var)


NORMS: dict[str, Callable[[int], nn.Module]] = {"layer": LayerNorm, "batch": BatchNorm, "rms": RMSNorm}


class Block(nn.Module):
    """An inverted residual block: x + f(x), where f has two layers, the first EXPANSION times as wide."""

    def __init__(self, width: int, shape: NetworkShape) -> None:
        super().__init__()
        self.widening = _layer(width, EXPANSION * width, shape)
        self.narrowing = _layer(EXPANSION * width, width, shape)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.narrowing(self.widening(x))
        return y


def torso(size: int, shape: NetworkShape) -> nn.Sequential:
    """Make the layers from `size` inputs to the head: hidden layers, or residual blocks and then an RMS norm."""
    if shape.norm == "none" and not shape.blocks:
        return hidden_layers(size, shape.hidden_dims, shape.activation)
    modules: list[nn.Module] = [BatchNorm(size)] if shape.norm == "batch" else []
    if shape.blocks:
        [width] = shape.hidden_dims
        modules.append(Dense(size, width, bias=shape.norm == "none"))
        modules += [Block(width, shape) for _ in range(shape.blocks)]
        modules.append(RMSNorm(width))
    else:
        for width in shape.hidden_dims:
            modules.append(_layer(size, width, shape))
            size = width
    return nn.Sequential(*modules)


def _layer(size_in: int, size_out: int, shape: NetworkShape) -> nn.Sequential:
    """Make linear, norm, activation; without a norm, the linear layer has a bias."""
    modules: list[nn.Module] = [Dense(size_in, size_out, bias=shape.norm == "none")]
    if shape.norm != "none":
        modules.append(NORMS[shape.norm](size_out))
    return nn.Sequential(*modules, ACTIVATIONS[shape.activation]())


def initialize(module: nn.Module, init: str, seed: int) -> None:
    """Draw first weights of linear layers and convolutions; `init`: "uniform" or "orthogonal"."""
    generator = torch.Generator().manual_seed(seed)
    if init == "uniform":
        initialize_evenly(module, generator)
        return
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.orthogonal_(layer.weight, generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


@torch.no_grad()
def project(module: nn.Module) -> None:
    """Scale each row of weights of a linear layer to length 1, and a norm's factors over n features to length sqrt(n).

    If the norm has shifts, too, factors and shifts together get this length.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.copy_(F.normalize(layer.weight, dim=-1))
        elif isinstance(layer, BatchNorm | nn.LayerNorm | RMSNorm):
            factors: list[Tensor] = [*layer.parameters()]
            length = torch.stack([x.square().sum() for x in factors]).sum().sqrt()
            torch._foreach_mul_(factors, len(factors[0]) ** 0.5 / length.clamp(min=1e-8))


def batch_norms(*modules: nn.Module) -> list[BatchNorm]:
    """Return all batch norms in these modules."""
    return [layer for module in modules for layer in module.modules() if isinstance(layer, BatchNorm)]


@contextmanager
def batch_moments(norms: list[BatchNorm]) -> Iterator[None]:
    """Inside the `with` block these norms use the batch's moments, and update their running ones."""
    for norm in norms:
        norm.by_batch = True
    try:
        yield
    finally:
        for norm in norms:
            norm.by_batch = False


@contextmanager
def frozen_weights(module: nn.Module, frozen: bool) -> Iterator[None]:
    """Inside the `with` block, if `frozen`, gradients flow through the module's weights but not to them."""
    if not frozen:
        yield
        return
    module.requires_grad_(False)
    try:
        yield
    finally:
        module.requires_grad_(True)
