"""What torch's threads would round otherwise than one does, done by one: first weights, gradients of layer norms.

Threads that share a decomposition or a sum over rows put its parts together in another order."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from stride.agents.networks.autograd import Context


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of torch inside, as many as before outside."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Normed(torch.autograd.Function):
    """torch's own layer norm, its gradients by one thread."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        y, mean, scale = torch.native_layer_norm(x, weight.shape, weight, bias, eps)
        ctx.save_for_backward(x, mean, scale, weight, bias)
        return y

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, scale, weight, bias = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        with one_thread():
            found = torch.ops.aten.native_layer_norm_backward(
                gradients[0], x, weight.shape, mean, scale, weight, bias, wanted
            )
        return (*found, None)


class LayerNorm(nn.LayerNorm):
    """nn.LayerNorm whose gradients are the same for any number of threads."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if torch.get_num_threads() == 1 else self._normed(x)

    def _normed(self, x: Tensor) -> Tensor:
        y: Tensor = Normed.apply(x, self.weight, self.bias, self.eps)
        return y
