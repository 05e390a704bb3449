"""Nets of a world model and two-hot numbers as nodes of torch's graph whose insides, there and back, are kernels.

Weights are read where torch keeps them. Results do not depend on the number of threads.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from agents.engines.fused_cpu.kernels import model_nets, model_products, model_two_hot
from agents.engines.fused_cpu.kernels.calls import Kernel, address_of
from agents.engines.fused_cpu.kernels.model_nets import ANSWER, LAYER, PARTS, PASS, Answer, Layer, Pass
from agents.engines.fused_cpu.kernels.model_products import PRODUCTS, Products
from agents.engines.fused_cpu.kernels.model_two_hot import TABLE, Bins
from agents.engines.fused_cpu.workers import Workers
from agents.engines.plan.layout import LANES
from agents.networks.autograd import Context
from agents.networks.normed import RMSNorm
from agents.networks.two_hot import TwoHot

CALLED: tuple[Kernel, ...] = (
    model_nets.forward, model_nets.backward, model_products.products,
    model_two_hot.mean, model_two_hot.losses, model_two_hot.slopes,
)  # fmt: skip
Entry = int | Tensor
Memory = dict[Answer, Tensor]


class Net:
    """The table of hidden layers, all of one width, and of a head where there is one."""

    def __init__(self, *modules: nn.Module) -> None:
        layers = [x for module in modules for x in module.modules() if isinstance(x, nn.Linear | RMSNorm)]
        linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
        norms = [layer for layer in layers if isinstance(layer, RMSNorm)]
        self.hidden, self.head = len(norms), len(linear) > len(norms)
        self.table = np.zeros((len(linear), LAYER), np.int64)
        for row, layer in zip(self.table, linear, strict=True):
            row[Layer.INNER], row[Layer.WIDTH] = layer.in_features, layer.out_features
        self.inputs, self.width = (int(size) for size in self.table[0, [Layer.INNER, Layer.WIDTH]])
        self.outputs = int(self.table[-1, Layer.WIDTH])
        self._matrices = [layer.weight for layer in linear]
        self._scales = [*(norm.scale for norm in norms), *(layer.bias for layer in linear[self.hidden :])]
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

    def run(self, kernel: Kernel, table: np.ndarray) -> None:
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
        self.run(model_products.products, filled(PRODUCTS, entries))
        for (slope, given), out in zip(pairs, made, strict=True):
            if given.shape[1] % LANES:
                torch.mm(slope.t(), given, out=out)
        return made


def filled(size: int, entries: Mapping[IntEnum, Entry]) -> np.ndarray:
    """A table of counts and of the addresses of tensors."""
    table = np.zeros(size, np.int64)
    for entry, value in entries.items():
        table[entry] = value.data_ptr() if isinstance(value, Tensor) else value
    return table


def way_there(net: Net, rows: int) -> Memory:
    """What a net's way back needs of its way there."""
    return {
        Answer.ABOVE: torch.empty(len(net.table) - 1, rows, net.width),
        Answer.KEPT: torch.empty(net.hidden, rows // LANES, net.width + 1, LANES),
    }


def way_back(net: Net, rows: int, of_out: Tensor) -> Memory:
    """What its gradients are made of, `of_out` [N, O] among it."""
    slopes, scales = torch.empty(net.hidden, rows, net.width), torch.zeros(net.hidden, PARTS, net.width, LANES)
    return {Answer.SLOPE_OUT: of_out, Answer.SLOPES: slopes, Answer.SLOPE_SCALES: scales}


def answers_of(nets: Sequence[Net], memories: Sequence[Memory]) -> np.ndarray:
    """The table of what nets answer, with addresses now."""
    answers = np.zeros((len(nets), ANSWER), np.int64)
    for row, net, memory in zip(answers, nets, memories, strict=True):
        net.find()
        row[: Answer.OUTPUTS + 1] = net.table.ctypes.data, net.hidden, net.head, net.outputs
        for entry, tensor in memory.items():
            row[entry] = tensor.data_ptr()
    return answers


def gradients(nets: Sequence[Net], crew: Crew, memories: Sequence[Memory], x: Tensor) -> list[Tensor]:
    """Of all weights, net by net, from what their ways there and back over rows x [N, I] have left."""
    pairs = [
        pair
        for net, memory in zip(nets, memories, strict=True)
        for pair in zip(
            (*memory[Answer.SLOPES], *([memory[Answer.SLOPE_OUT]] if net.head else [])),
            (x, *memory[Answer.ABOVE]),
            strict=True,
        )
    ]
    products, found = iter(crew.products(*pairs)), list[Tensor]()
    for net, memory in zip(nets, memories, strict=True):
        found += [*islice(products, len(net.table)), *memory[Answer.SLOPE_SCALES].sum((1, 3))]
        found += [memory[Answer.SLOPE_OUT].sum(0)] if net.head else []
    return found


def answered(nets: Sequence[Net], crew: Crew, x: Tensor, keep: bool) -> tuple[list[Tensor], list[Memory]]:
    """Outputs [N, ..] of nets for rows [N, I], and what their way back needs, where it is to be kept."""
    rows, memories = len(x), list[Memory]()
    for net in nets:
        memories.append({Answer.OUT: x.new_empty(rows, net.outputs)} | (way_there(net, rows) if keep else {}))
    run(model_nets.forward, nets, crew, memories, {Pass.X: x, Pass.ROWS: rows})
    return [memory.pop(Answer.OUT) for memory in memories], memories


def run(
    kernel: Kernel, nets: Sequence[Net], crew: Crew, memories: Sequence[Memory], entries: Mapping[IntEnum, Entry]
) -> None:
    """A pass through nets with this memory of each."""
    answers = answers_of(nets, memories)
    inner = nets[0].inputs
    scratch, size = crew.scratch(inner + max(3 * net.width + net.outputs + 1 for net in nets))
    counts: dict[IntEnum, Entry] = {
        Pass.NETS: len(nets), Pass.ANSWERS: answers.ctypes.data, Pass.INNER: inner, Pass.THREADS: crew.threads,
        Pass.SCRATCH: scratch, Pass.SCRATCH_SIZE: size,
    }  # fmt: skip
    crew.run(kernel, filled(PASS, counts | {**entries}))


class _Passed(Context, Protocol):
    nets: Sequence[Net]
    crew: Crew
    memories: list[Memory]


class Passing(torch.autograd.Function):
    """`answered`, with gradients."""

    @staticmethod
    def forward(ctx: _Passed, nets: Sequence[Net], crew: Crew, x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        found, ctx.memories = answered(nets, crew, x, keep=True)
        ctx.save_for_backward(x, *weights)
        ctx.nets, ctx.crew = nets, crew
        return tuple(found)

    @staticmethod
    def backward(ctx: _Passed, *of_out: Tensor) -> tuple[Tensor | None, ...]:
        x, nets, rows = ctx.saved_tensors[0], ctx.nets, len(ctx.saved_tensors[0])
        of_x = torch.empty_like(x) if ctx.needs_input_grad[2] else None
        memories = [
            memory | way_back(net, rows, slope.contiguous())
            for net, memory, slope in zip(nets, ctx.memories, of_out, strict=True)
        ]
        run(model_nets.backward, nets, ctx.crew, memories, {Pass.ROWS: rows, Pass.SLOPE_X: 0 if of_x is None else of_x})
        return (None, None, of_x, *gradients(nets, ctx.crew, memories, x))


class _Judged(Context, Protocol):
    two_hot: TwoHot
    crew: Crew


class Losses(torch.autograd.Function):
    """Two-hot losses [M, N] of logits [N, B] towards targets [M, N]."""

    @staticmethod
    def forward(ctx: _Judged, two_hot: TwoHot, crew: Crew, logits: Tensor, target: Tensor) -> Tensor:
        loss = torch.empty_like(target)
        entries: dict[Bins, int | Tensor] = {Bins.TARGETS: len(target), Bins.TARGET: target, Bins.LOSS: loss}
        crew.run(model_two_hot.losses, bins_of(two_hot, crew, logits, entries))
        ctx.save_for_backward(logits, target)
        ctx.two_hot, ctx.crew = two_hot, crew
        return loss

    @staticmethod
    def backward(ctx: _Judged, *slope: Tensor) -> tuple[Tensor | None, ...]:
        logits, target = ctx.saved_tensors
        of_loss, of_logits = slope[0].contiguous(), torch.empty_like(logits)
        entries: dict[Bins, int | Tensor] = {Bins.TARGETS: len(target), Bins.TARGET: target}
        entries |= {Bins.SLOPE: of_loss, Bins.SLOPE_LOGITS: of_logits}
        ctx.crew.run(model_two_hot.slopes, bins_of(ctx.two_hot, ctx.crew, logits, entries))
        return None, None, of_logits, None


def bins_of(two_hot: TwoHot, crew: Crew, logits: Tensor, entries: Mapping[Bins, int | Tensor]) -> np.ndarray:
    """The table of these logits."""
    rows, bins = logits.shape
    scratch, size = crew.scratch(2 * bins + 3)
    counts: dict[IntEnum, int | Tensor] = {
        Bins.ROWS: rows, Bins.BINS: bins, Bins.THREADS: crew.threads, Bins.VALUES: two_hot.bins, Bins.LOGITS: logits,
        Bins.SCRATCH: scratch, Bins.SCRATCH_SIZE: size,
    }  # fmt: skip
    return filled(TABLE, counts | {**entries})


passing: Callable[..., tuple[Tensor, ...]] = Passing.apply
losses: Callable[..., Tensor] = Losses.apply


def means(two_hot: TwoHot, crew: Crew, logits: Tensor) -> Tensor:
    """Expected numbers [N] of logits [N, B], without gradients."""
    found = logits.new_empty(len(logits))
    crew.run(model_two_hot.mean, bins_of(two_hot, crew, logits, {Bins.MEAN: found}))
    return found
