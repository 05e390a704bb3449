"""A world model's nets as kernels read them: tables with the addresses of torch's weights, and their gradients.

model_losses.py and model_scan.py use this. Results do not depend on the number of threads.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from stride.agents.engines.fused_cpu.kernels import model_nets
from stride.agents.engines.fused_cpu.kernels.address_table import AddressTable
from stride.agents.engines.fused_cpu.kernels.calls import CompiledKernel, address_of
from stride.agents.engines.fused_cpu.kernels.model_tables import (
    NetGradients,
    NetLayer,
    NetTable,
    Product,
    ProductTable,
)
from stride.agents.engines.fused_cpu.workers import Workers
from stride.agents.engines.plan.layout import LANES
from stride.agents.networks.normed import RMSNorm

KERNELS: tuple[CompiledKernel, ...] = (model_nets.products,)


class KernelPool:
    """Threads that run the kernels of world models, and working memory for each; `threads` of the workers take part."""

    def __init__(self, workers: Workers, threads: int) -> None:
        self.workers = workers
        self.threads = threads
        self._scratch = torch.empty(0)

    def scratch(self, vectors: int) -> Tensor:
        """Return working memory [threads, floats] with so many vectors for each thread; calls share it."""
        floats = LANES * vectors
        if self._scratch.numel() < self.threads * floats:
            self._scratch = torch.empty(self.threads * floats)
        return self._scratch[: self.threads * floats].view(self.threads, floats)

    def run(self, kernel: CompiledKernel, table: AddressTable) -> None:
        """Run a kernel on each thread that its table asks for; RuntimeError where the table lacks an address."""
        table.check(kernel.py_func.__name__)
        self.workers.run(address_of(kernel), table.address, table.values.threads)

    def products(self, *pairs: tuple[Tensor, Tensor]) -> list[Tensor]:
        """Return slope.T @ input [O, I] for each pair (slope [N, O], input [N, I])."""
        results = [slope.new_zeros(slope.shape[1], source.shape[1]) for slope, source in pairs]
        rows = []
        for (slope, source), out in zip(pairs, results, strict=True):
            if source.shape[1] % LANES:  # the kernel needs multiples of 16
                torch.mm(slope.t(), source, out=out)
            else:
                rows.append((slope.data_ptr(), source.data_ptr(), out.data_ptr(), *slope.shape, source.shape[1]))
        table = np.array(rows, Product.dtype)
        self.run(
            model_nets.products, ProductTable(products=table.ctypes.data, row_count=len(rows), threads=self.threads)
        )
        return results


class KernelNet:
    """A net of hidden layers, all of one width, and a head, from torch's modules in the order of the forward pass."""

    def __init__(self, *modules: nn.Module) -> None:
        layers = [layer for module in modules for layer in module.modules()]
        linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
        matrices = [layer.weight for layer in linear]
        scales = [layer.scale for layer in layers if isinstance(layer, RMSNorm)]
        self.hidden = len(scales)
        scales.append(linear[-1].bias)  # in a NetLayer the head's bias takes the place of a scale
        self.weights = [*matrices, *scales]
        self.width = linear[0].out_features
        self.outputs = linear[-1].out_features
        self._layers = np.zeros(len(linear), NetLayer.dtype)
        self._layers["inner"] = [layer.in_features for layer in linear]
        self._layers["width"] = [layer.out_features for layer in linear]

    def table(self, rows: int, gradients: NetGradients | None = None) -> NetTable:
        """Return the table for a pass of `rows` rows; `gradients`: memory for a backward pass, None without one.

        Addresses are looked up each time, because an optimizer or a checkpoint may move weights.
        """
        addresses = [weight.data_ptr() for weight in self.weights]
        self._layers["weight"] = addresses[: self.hidden + 1]
        self._layers["scale"] = addresses[self.hidden + 1 :]
        return NetTable(
            layers=self._layers.ctypes.data, hidden=self.hidden, width=self.width, outputs=self.outputs, rows=rows,
            gradients=gradients or 0,
        )  # fmt: skip


class NetPass(NamedTuple):
    """A forward and backward pass of rows x [N, I] through a net."""

    net: KernelNet
    x: Tensor
    gradients: NetGradients

    def table(self) -> NetTable:
        return self.net.table(len(self.x), self.gradients)


def net_pass(net: KernelNet, x: Tensor) -> NetPass:
    """Return a pass of rows x [N, I], with memory for its activations and slopes; N is a multiple of 16."""
    rows = len(x)
    width = net.width
    sizes = {"L": net.hidden, "N": rows, "N/16": rows // LANES, "W": width, "W+1": width + 1, "O": net.outputs}
    return NetPass(net, x, NetGradients(sizes))


def weight_gradients(pool: KernelPool, passes: Iterable[NetPass]) -> list[Tensor]:
    """Return the gradients of all weights, net by net, each in the order of KernelNet.weights.

    Call it after the backward pass of the kernels.
    """
    passes = list(passes)
    pairs: list[tuple[Tensor, Tensor]] = []
    for net_pass in passes:
        slopes = [*net_pass.gradients["slopes"], net_pass.gradients["slope_out"]]
        inputs = [net_pass.x, *net_pass.gradients["activations"]]
        pairs += zip(slopes, inputs, strict=True)
    products = pool.products(*pairs)
    gradients: list[Tensor] = []
    for net, _, memory in passes:
        matrices = net.hidden + 1
        gradients += products[:matrices]
        gradients += memory["scales"].sum((1, 3))
        gradients.append(memory["slope_out"].sum(0))
        products = products[matrices:]
    return gradients


def scaled(gradients: list[Tensor], slope: Tensor) -> list[Tensor]:
    """Return gradients times the slope at their loss: 1, except for losses that are added up over minibatches."""
    return gradients if slope == 1 else [*torch._foreach_mul(gradients, slope)]
