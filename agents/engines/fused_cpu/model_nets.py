"""Nets of a world model to kernels: tables of their weights, which are read where torch keeps them, and gradients.

Results do not depend on the number of threads.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from stride.agents.engines.fused_cpu.kernels import model_products
from stride.agents.engines.fused_cpu.kernels.calls import CompiledKernel, address_of
from stride.agents.engines.fused_cpu.kernels.model_nets import ANSWER, LAYER, PARTS, Answer, Layer
from stride.agents.engines.fused_cpu.kernels.model_products import PRODUCTS, Products
from stride.agents.engines.fused_cpu.workers import Workers
from stride.agents.engines.plan.layout import LANES
from stride.agents.networks.normed import RMSNorm

CALLED: tuple[CompiledKernel, ...] = (model_products.products,)
Entry = int | Tensor
Memory = dict[Answer, Tensor]
Number = TypeVar("Number", bound=IntEnum)  # of a net among those of a kernel


class Net:
    """The table of hidden layers, all of one width, and of a head."""

    def __init__(self, *modules: nn.Module) -> None:
        layers = [x for module in modules for x in module.modules() if isinstance(x, nn.Linear | RMSNorm)]
        linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
        norms = [layer for layer in layers if isinstance(layer, RMSNorm)]
        self.hidden = len(norms)
        self.table = np.zeros((len(linear), LAYER), np.int64)
        for row, layer in zip(self.table, linear, strict=True):
            row[Layer.INNER], row[Layer.WIDTH] = layer.in_features, layer.out_features
        self.inputs, self.width = (int(size) for size in self.table[0, [Layer.INNER, Layer.WIDTH]])
        self.outputs = int(self.table[-1, Layer.WIDTH])
        self._matrices = [layer.weight for layer in linear]
        self._scales = [*(norm.scale for norm in norms), linear[-1].bias]
        self.weights = [*self._matrices, *self._scales]

    def find(self) -> None:
        """Where its weights lie: elsewhere once an optimizer or a checkpoint has put them there."""
        self.table[:, Layer.WEIGHT] = [weight.data_ptr() for weight in self._matrices]
        self.table[:, Layer.SCALE] = [scale.data_ptr() for scale in self._scales]


class Crew:
    """Threads, and scratch for each of them; `threads` of the workers take part."""

    def __init__(self, workers: Workers, threads: int) -> None:
        self.workers, self.threads, self._scratch = workers, threads, torch.empty(0)

    def scratch(self, vectors: int) -> tuple[int, int]:
        """Address and bytes of a thread's."""
        if self._scratch.numel() < self.threads * vectors * LANES:
            self._scratch = torch.empty(self.threads * vectors * LANES)
        return self._scratch.data_ptr(), 4 * LANES * vectors

    def run(self, kernel: CompiledKernel, table: np.ndarray) -> None:
        self.workers.run(address_of(kernel), table.ctypes.data, self.threads)

    def products(self, *pairs: tuple[Tensor, Tensor]) -> list[Tensor]:
        """slope.T @ given of each pair of rows [N, O], [N, I]."""
        made = [slope.new_zeros(slope.shape[1], given.shape[1]) for slope, given in pairs]
        rows = [
            (slope.data_ptr(), given.data_ptr(), out.data_ptr(), *slope.shape, given.shape[1])
            for (slope, given), out in zip(pairs, made, strict=True)
            if not given.shape[1] % LANES
        ]
        table = np.array(rows, np.int64)
        entries: dict[IntEnum, Entry] = {
            Products.ROWS: table.ctypes.data,
            Products.COUNT: len(rows),
            Products.THREADS: self.threads,
        }
        self.run(model_products.products, fill(np.zeros(PRODUCTS, np.int64), entries))
        for (slope, given), out in zip(pairs, made, strict=True):
            if given.shape[1] % LANES:
                torch.mm(slope.t(), given, out=out)
        return made


def fill(table: np.ndarray, entries: Mapping[IntEnum, Entry]) -> np.ndarray:
    """Counts, and the addresses of tensors."""
    for entry, value in entries.items():
        table[entry] = value.data_ptr() if isinstance(value, Tensor) else value
    return table


class Way(NamedTuple):
    """A net's way over rows, of which gradients of its weights are made."""

    net: Net
    x: Tensor
    """[N, I]"""
    memory: Memory


def way(net: Net, x: Tensor) -> Way:
    """With room for what is left there and back."""
    rows, hidden, width = len(x), net.hidden, net.width
    memory = {
        Answer.ABOVE: torch.empty(hidden, rows, width),
        Answer.KEPT: torch.empty(hidden, rows // LANES, width + 1, LANES),
        Answer.SLOPE_OUT: torch.empty(rows, net.outputs),
        Answer.SLOPES: torch.empty(hidden, rows, width),
        Answer.SLOPE_SCALES: torch.zeros(hidden, PARTS, width, LANES),
    }
    return Way(net, x, memory)


def answers_of(count: int, nets: Mapping[Number, Net], ways: Mapping[Number, Way]) -> np.ndarray:
    """The table of what so many nets answer, with addresses now; nobody asks for gradients of those without a way."""
    answers = np.zeros((count, ANSWER), np.int64)
    for number, net in nets.items():
        net.find()
        row = answers[number]
        row[: Answer.OUTPUTS + 1] = net.table.ctypes.data, net.hidden, net.outputs
        if number in ways:
            for entry, tensor in ways[number].memory.items():
                row[entry] = tensor.data_ptr()
    return answers


def gradients(crew: Crew, ways: Iterable[Way]) -> list[Tensor]:
    """Of all weights, net by net."""
    ways = [*ways]
    pairs = [
        pair
        for net, x, memory in ways
        for pair in zip(
            (*memory[Answer.SLOPES], memory[Answer.SLOPE_OUT]),
            (x, *memory[Answer.ABOVE]),
            strict=True,
        )
    ]
    products, found = iter(crew.products(*pairs)), list[Tensor]()
    for net, _, memory in ways:
        scales, bias = memory[Answer.SLOPE_SCALES].sum((1, 3)), memory[Answer.SLOPE_OUT].sum(0)
        found += [*islice(products, net.hidden + 1), *scales, bias]
    return found


def scaled(gradients: list[Tensor], slope: Tensor) -> list[Tensor]:
    """As many times; it is 1 but for losses that are added up over minibatches."""
    return gradients if slope == 1 else [*torch._foreach_mul(gradients, slope)]
