"""Nets of a world model and two-hot numbers as nodes of torch's graph whose insides, there and back, are kernels.

Weights are read where torch keeps them. Results do not depend on the number of threads.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from agents.engines.fused_cpu.kernels import model_nets, model_two_hot
from agents.engines.fused_cpu.kernels.calls import Kernel, address_of
from agents.engines.fused_cpu.kernels.model_nets import LAYER, PARTS, PASS, Layer, Pass
from agents.engines.fused_cpu.kernels.model_two_hot import TABLE, Bins
from agents.engines.fused_cpu.workers import Workers
from agents.engines.plan.layout import LANES
from agents.networks.autograd import Context
from agents.networks.normed import RMSNorm
from agents.networks.two_hot import TwoHot

CALLED: tuple[Kernel, ...] = (
    model_nets.forward, model_nets.backward, model_two_hot.mean, model_two_hot.losses, model_two_hot.slopes,
)  # fmt: skip


class Net:
    """The table of hidden layers, all of one width, and of a head where there is one."""

    def __init__(self, *modules: nn.Module) -> None:
        layers = [x for module in modules for x in module.modules() if isinstance(x, nn.Linear | RMSNorm)]
        self.linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
        self.norms = [layer for layer in layers if isinstance(layer, RMSNorm)]
        self.hidden, self.head = len(self.norms), len(self.linear) > len(self.norms)
        self.table = np.zeros((len(self.linear), LAYER), np.int64)
        for row, linear in zip(self.table, self.linear, strict=True):
            row[Layer.INNER], row[Layer.WIDTH] = linear.in_features, linear.out_features
        self.inputs, self.width = (int(size) for size in self.table[0, [Layer.INNER, Layer.WIDTH]])
        self.outputs = int(self.table[-1, Layer.WIDTH])

    @property
    def weights(self) -> list[Tensor]:
        """Hidden weights, their scales, then weight and bias of the head."""
        hidden = [linear.weight for linear in self.linear[: self.hidden]]
        head = [x for linear in self.linear[self.hidden :] for x in (linear.weight, linear.bias)]
        return [*hidden, *(norm.scale for norm in self.norms), *head]

    def find(self) -> None:
        """Where its weights lie: elsewhere once an optimizer or a checkpoint has put them there."""
        scales = [*(norm.scale for norm in self.norms), *(linear.bias for linear in self.linear[self.hidden :])]
        for row, linear, scale in zip(self.table, self.linear, scales, strict=True):
            row[Layer.WEIGHT], row[Layer.SCALE] = linear.weight.data_ptr(), scale.data_ptr()


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


def filled(size: int, entries: Mapping[IntEnum, int | Tensor]) -> np.ndarray:
    """A table of counts and of the addresses of tensors."""
    table = np.zeros(size, np.int64)
    for entry, value in entries.items():
        table[entry] = value.data_ptr() if isinstance(value, Tensor) else value
    return table


class _Passed(Context, Protocol):
    net: Net
    crew: Crew
    kept: Tensor


class Passing(torch.autograd.Function):
    """Outputs [N, ..] of a net for rows [N, I]."""

    @staticmethod
    def forward(ctx: _Passed, net: Net, crew: Crew, x: Tensor, *weights: Tensor) -> Tensor:
        rows, hidden, width = len(x), net.hidden, net.width
        above, kept = x.new_empty(hidden, rows, width), x.new_empty(hidden, rows // LANES, width + 1, LANES)
        out = x.new_empty(rows, net.outputs) if net.head else above[-1]
        crew.run(model_nets.forward, table_of(net, crew, x, {Pass.OUT: out, Pass.ABOVE: above, Pass.KEPT: kept}))
        ctx.save_for_backward(x, above, *weights)
        ctx.net, ctx.crew, ctx.kept = net, crew, kept
        return out

    @staticmethod
    def backward(ctx: _Passed, *slope: Tensor) -> tuple[Tensor | None, ...]:
        x, above = ctx.saved_tensors[:2]
        net, hidden, width, of_out = ctx.net, ctx.net.hidden, ctx.net.width, slope[0].contiguous()
        of_x = torch.empty_like(x) if ctx.needs_input_grad[2] else None
        slopes, scales = torch.empty_like(above), x.new_zeros(hidden, PARTS, width, LANES)
        memory = {Pass.KEPT: ctx.kept, Pass.SLOPE_OUT: of_out, Pass.SLOPES: slopes, Pass.SLOPE_SCALES: scales}
        table = table_of(net, ctx.crew, x, memory)
        table[Pass.SLOPE_X] = of_x.data_ptr() if of_x is not None else 0
        ctx.crew.run(model_nets.backward, table)
        of_weights = [torch.mm(slope.t(), below) for slope, below in zip(slopes, (x, *above[:-1]), strict=True)]
        head = [torch.mm(of_out.t(), above[-1]), of_out.sum(0)] if net.head else []
        return (None, None, of_x, *of_weights, *scales.sum((1, 3)), *head)


def table_of(net: Net, crew: Crew, x: Tensor, memory: Mapping[Pass, Tensor]) -> np.ndarray:
    """Of a pass over these rows."""
    net.find()
    scratch, size = crew.scratch(net.inputs + 2 * net.width + net.outputs)
    entries: dict[IntEnum, int | Tensor] = {
        Pass.NET: net.table.ctypes.data,
        Pass.HIDDEN: net.hidden,
        Pass.HEAD: net.head,
        Pass.ROWS: len(x),
        Pass.THREADS: crew.threads,
        Pass.X: x,
        Pass.SCRATCH: scratch,
        Pass.SCRATCH_SIZE: size,
    }
    return filled(PASS, entries | {**memory})


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


passing: Callable[..., Tensor] = Passing.apply
losses: Callable[..., Tensor] = Losses.apply


def means(two_hot: TwoHot, crew: Crew, logits: Tensor) -> Tensor:
    """Expected numbers [N] of logits [N, B], without gradients."""
    found = logits.new_empty(len(logits))
    crew.run(model_two_hot.mean, bins_of(two_hot, crew, logits, {Bins.MEAN: found}))
    return found
