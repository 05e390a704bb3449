"""A linear layer and its activation, by oneDNN where that is worth it: twice as fast as torch's own on AVX-512 machines
that are not Intel's, whose BLAS stays at AVX2 there. The same numbers within rounding; no other meaning.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stride.agents.networks.autograd import Context

LEAST, NARROW = 1_500_000, 8  # products of a pass, and a width, up to which the ordinary call is as fast
AVAILABLE = torch.backends.mkldnn.is_available()


def product(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """x weight^T + bias, cut at 0 where `relu`; float32 on the CPU, [B, I] and [O, I]."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], "")
    return result


class Product(torch.autograd.Function):
    """`product` with its gradients; what needs none is not computed."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        y = product(x, weight, bias, relu)
        ctx.save_for_backward(x, weight, y if relu else None)
        return y

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        g = gradients[0].contiguous() if y is None else torch.ops.aten.threshold_backward(gradients[0], y, 0)
        to_x, to_weight, to_bias, _ = ctx.needs_input_grad
        return (
            product(g, weight.t(), None, False) if to_x else None,
            product(g.t(), x.t(), None, False) if to_weight else None,
            g.sum(0) if to_bias else None,
            None,
        )


class Dense(nn.Linear):
    """A layer of a network that is learnt many times over; `frozen` lets gradients through to the input alone."""

    def __init__(self, size_in: int, size_out: int, activation: str | None = None) -> None:
        super().__init__(size_in, size_out)
        self.activation = activation

    def forward(self, x: Tensor, frozen: bool = False) -> Tensor:
        weight, bias = (self.weight.detach(), self.bias.detach()) if frozen else (self.weight, self.bias)
        if self._by_onednn(x):
            relu = self.activation == "relu"
            learning = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
            y = Product.apply(x, weight, bias, relu) if learning else product(x, weight, bias, relu)
            return y.tanh() if self.activation == "tanh" else y
        y = F.linear(x, weight, bias)
        return y.relu() if self.activation == "relu" else y.tanh() if self.activation == "tanh" else y

    def _by_onednn(self, x: Tensor) -> bool:
        if not (AVAILABLE and x.dim() == 2 and x.device.type == "cpu" and x.dtype == torch.float32):
            return False
        if torch.is_autocast_enabled("cpu"):  # which does not reach below the ordinary call
            return False
        rows, size_in, size_out = x.shape[0], self.in_features, self.out_features
        return rows * size_in * size_out > LEAST and min(rows, size_in, size_out) > NARROW
