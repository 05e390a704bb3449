"""Layers whose results have the same bits on any number of threads, and a linear layer that can use oneDNN.

Threads that share a matrix decomposition or a sum over rows add its parts in another order. So one thread computes
first weights and the gradients of layer norms. oneDNN is twice as fast as torch's own product on AVX-512 machines that
are not Intel's, because torch's BLAS (MKL) uses only AVX2 there; its numbers differ within rounding.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MAX_PLAIN_PRODUCTS, MAX_PLAIN_SIZE = 1_500_000, 8  # multiplications, or a dimension, up to which torch is as fast
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}
HAS_ONEDNN = torch.backends.mkldnn.is_available()


class Context(Protocol):
    """The type of `ctx` in forward and backward of a torch.autograd.Function, more exact than in torch's own stubs."""

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]: ...
    @property
    def needs_input_grad(self) -> tuple[bool, ...]: ...
    def save_for_backward(self, *tensors: Tensor | None) -> None: ...
    def mark_non_differentiable(self, *tensors: Tensor) -> None: ...


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread inside the `with` block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class NormByOneThread(torch.autograd.Function):
    """torch's own layer norm, with gradients computed by one thread."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        y, row_means, row_scales = torch.native_layer_norm(x, weight.shape, weight, bias, eps)
        ctx.save_for_backward(x, row_means, row_scales, weight, bias)
        return y

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, row_means, row_scales, weight, bias = ctx.saved_tensors
        with one_thread():
            results = torch.ops.aten.native_layer_norm_backward(
                gradients[0], x, weight.shape, row_means, row_scales, weight, bias, ctx.needs_input_grad[:3]
            )
        return (*results, None)


class LayerNorm(nn.LayerNorm):
    """nn.LayerNorm with gradients that have the same bits for any number of threads."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.get_num_threads() == 1:
            return super().forward(x)
        y: Tensor = NormByOneThread.apply(x, self.weight, self.bias, self.eps)
        return y


def product(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """Return x weight^T + bias by oneDNN, with relu if asked; float32 on a CPU, x [B, I], weight [O, I]. -> [B, O]"""
    product_tensor: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], "")
    return product_tensor


class LinearProduct(torch.autograd.Function):
    """`product` with gradients; only those that are needed are computed."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        y = product(x, weight, bias, relu)
        ctx.save_for_backward(x, weight, y if relu else None)
        return y

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        g = gradients[0].contiguous() if y is None else torch.ops.aten.threshold_backward(gradients[0], y, 0)
        needs_input, needs_weight, needs_bias, _ = ctx.needs_input_grad
        return (
            product(g, weight.t(), None, False) if needs_input else None,
            product(g.t(), x.t(), None, False) if needs_weight else None,
            g.sum(0) if needs_bias else None,
            None,
        )


class Dense(nn.Linear):
    """nn.Linear with an activation, for networks with many updates; `frozen`: gradients flow only to the input."""

    def __init__(self, size_in: int, size_out: int, activation: str | None = None, bias: bool = True) -> None:
        super().__init__(size_in, size_out, bias)
        self.activation = activation

    def forward(self, x: Tensor, frozen: bool = False) -> Tensor:
        weight = self.weight.detach() if frozen else self.weight
        bias = self.bias.detach() if frozen and self.bias is not None else self.bias
        relu = self.activation == "relu"
        if self._by_onednn(x):
            learning = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
            y = LinearProduct.apply(x, weight, bias, relu) if learning else product(x, weight, bias, relu)
        else:
            y = F.linear(x, weight, bias)
            if relu:
                y = y.relu()
        return y.tanh() if self.activation == "tanh" else y

    def _by_onednn(self, x: Tensor) -> bool:
        """Return whether oneDNN can compute this product and is faster."""
        if not (HAS_ONEDNN and x.dim() == 2 and x.device.type == "cpu" and x.dtype == torch.float32):
            return False
        if torch.is_autocast_enabled("cpu"):  # it would not affect oneDNN
            return False
        product_sizes = (x.shape[0], self.in_features, self.out_features)
        return prod(product_sizes) > MAX_PLAIN_PRODUCTS and min(product_sizes) > MAX_PLAIN_SIZE


def hidden_layers(size: int, hidden_dims: tuple[int, ...], activation: str, layer_norm: bool = False) -> nn.Sequential:
    """Make `Dense` layers of these widths on `size` inputs, each with an activation, or layer norm and activation."""
    modules: list[nn.Module] = []
    for fan_in, fan_out in zip((size, *hidden_dims), hidden_dims, strict=False):
        normed_layers = [Dense(fan_in, fan_out), LayerNorm(fan_out), ACTIVATIONS[activation]()]
        modules += normed_layers if layer_norm else [Dense(fan_in, fan_out, activation)]
    return nn.Sequential(*modules)


def initialize_evenly(module: nn.Module, generator: torch.Generator) -> None:
    """Draw weights and biases uniformly in +-1 / sqrt(inputs): torch's default, which published settings rely on."""
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                weight_bound = layer.weight[0].numel() ** -0.5
                for parameter in (layer.weight, layer.bias):
                    if parameter is not None:
                        parameter.uniform_(-weight_bound, weight_bound, generator=generator)
