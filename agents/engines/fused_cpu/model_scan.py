"""A world model's way through sequences as a node of torch's graph, whose insides, there and back, are kernels."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from stride.agents.engines.fused_cpu.kernels import model_scan
from stride.agents.engines.fused_cpu.kernels.calls import CompiledKernel, address_of
from stride.agents.engines.fused_cpu.kernels.model_cell import MODEL, Model
from stride.agents.engines.fused_cpu.kernels.model_scan import SCAN, Scan
from stride.agents.engines.fused_cpu.model_nets import Crew
from stride.agents.engines.plan.layout import LANES
from stride.agents.networks.autograd import Context
from stride.agents.networks.world_model import RSSM, DenseCell, Sizes, State

CALLED: tuple[CompiledKernel, ...] = (model_scan.forward, model_scan.backward)


class Weights(NamedTuple):
    """What a scan reads of a model, in the order of its gradients."""

    from_stoch: Tensor
    input_scale: Tensor
    gates: Tensor
    gates_scale: Tensor
    from_deter: Tensor
    posterior_scale: Tensor
    posterior: Tensor
    posterior_bias: Tensor


def weights_of(rssm: RSSM) -> Weights:
    """Those of a model with a dense cell."""
    cell = rssm.cell
    assert isinstance(cell, DenseCell)
    return Weights(
        cell.from_stoch.weight,
        cell.input_norm.scale,
        cell.gates.weight,
        cell.gates_norm.scale,
        rssm.from_deter.weight,
        rssm.posterior_norm.scale,
        rssm.posterior.weight,
        rssm.posterior.bias,
    )


class Job(NamedTuple):
    """Who works on a model of which sizes; kernels know the rest by tables."""

    crew: Crew
    sizes: Sizes
    unimix: float

    def table(self, weights: Sequence[Tensor] = ()) -> np.ndarray:
        """The model's sizes, and addresses now, which hold until a weight is given other memory."""
        table, sizes = np.zeros(MODEL, np.int64), self.sizes
        table[: Model.UNIMIX] = (sizes.deter, sizes.width, sizes.stoch, sizes.classes)
        table.view(np.float32)[2 * Model.UNIMIX] = self.unimix
        table[Model.FROM_STOCH : Model.FROM_STOCH + len(weights)] = [weight.data_ptr() for weight in weights]
        return table

    def run(
        self, kernel: CompiledKernel, steps: int, sequences: int, model: np.ndarray, memory: dict[Scan, Tensor]
    ) -> None:
        """A scan's kernel over this memory."""
        table, threads = np.zeros(SCAN, np.int64), min(self.crew.threads, sequences // LANES)
        table[: Scan.SEQUENCES + 1] = (model.ctypes.data, threads, steps, sequences)
        for entry, tensor in memory.items():
            table[entry] = tensor.data_ptr()
        self.crew.workers.run(address_of(kernel), table.ctypes.data, threads)


class _Context(Context, Protocol):
    job: Job
    memory: dict[Scan, Tensor]


class Scanned(torch.autograd.Function):
    """Deter, stoch and log-probabilities [T, B, ..] of prepared actions and projected tokens [T, B, W]."""

    @staticmethod
    def forward(
        ctx: _Context, job: Job, keep: Tensor, u: Tensor, prepared: Tensor, tokens: Tensor, *weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        steps, sequences, width = prepared.shape
        deter, stoch = job.sizes.deter, job.sizes.stoch * job.sizes.classes
        groups = sequences // LANES
        rows = {
            Scan.DETER: deter,
            Scan.STOCH: stoch,
            Scan.LOG_PROBS: stoch,
            Scan.BEFORE: stoch,
            Scan.JOINED: width + deter,
            Scan.HIDDEN: width,
        }
        memory = {entry: prepared.new_empty(steps, sequences, size) for entry, size in rows.items()}
        sizes = (deter, width, stoch)
        memory[Scan.KEPT] = prepared.new_empty(groups * steps * model_scan.kept_size.py_func(*sizes) * LANES)
        memory[Scan.SCRATCH] = prepared.new_empty(groups * model_scan.scratch_size.py_func(*sizes) * LANES)
        given = {Scan.PREPARED: prepared, Scan.TOKENS: tokens, Scan.KEEP: keep, Scan.UNIFORMS: u}
        memory |= {entry: tensor.contiguous() for entry, tensor in given.items()}
        job.run(model_scan.forward, steps, sequences, job.table(weights), memory)
        found = (memory[Scan.DETER], memory.pop(Scan.STOCH), memory.pop(Scan.LOG_PROBS))
        ctx.save_for_backward(memory.pop(Scan.DETER), *weights)
        ctx.job, ctx.memory = job, memory
        return found

    @staticmethod
    def backward(ctx: _Context, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        deters, *weights = ctx.saved_tensors
        job, memory = ctx.job, dict(ctx.memory)
        steps, sequences, width = memory[Scan.HIDDEN].shape
        deter, stoch = job.sizes.deter, job.sizes.stoch * job.sizes.classes
        for entry, slope in zip((Scan.SLOPE_DETER, Scan.SLOPE_STOCH, Scan.SLOPE_LOG_PROBS), slopes, strict=True):
            memory[entry] = slope.contiguous()
        rows = {
            Scan.SLOPE_LOGITS: stoch,
            Scan.SLOPE_TOKENS: width,
            Scan.SLOPE_GATES: 3 * deter,
            Scan.SLOPE_PREPARED: width,
        }
        memory |= {entry: deters.new_empty(steps, sequences, size) for entry, size in rows.items()}
        memory[Scan.SLOPE_SCALES] = deters.new_empty(sequences // LANES, 2 * width + 3 * deter, LANES)
        job.run(model_scan.backward, steps, sequences, job.table(weights), memory)

        pairs = (
            (memory[Scan.SLOPE_PREPARED], memory[Scan.BEFORE]),
            (memory[Scan.SLOPE_GATES], memory[Scan.JOINED]),
            (memory[Scan.SLOPE_TOKENS], deters),
            (memory[Scan.SLOPE_LOGITS], memory[Scan.HIDDEN]),
        )
        products = job.crew.products(*((slope.flatten(0, 1), given.flatten(0, 1)) for slope, given in pairs))
        of_input, of_gates, of_hidden = memory[Scan.SLOPE_SCALES].sum((0, 2)).split((width, 3 * deter, width))
        of_scales = (of_input, of_gates, of_hidden, memory[Scan.SLOPE_LOGITS].sum((0, 1)))
        of_weights = (gradient for pair in zip(products, of_scales, strict=True) for gradient in pair)
        return (None, None, None, memory[Scan.SLOPE_PREPARED], memory[Scan.SLOPE_TOKENS], *of_weights)


scanning: Callable[..., tuple[Tensor, Tensor, Tensor]] = Scanned.apply


def scanned(job: Job, rssm: RSSM, tokens: Tensor, action: Tensor, is_first: Tensor, u: Tensor) -> tuple[State, Tensor]:
    """What RSSM.observe answers; of the posteriors the log-probabilities [T, B, F]."""
    prepared, tokens = rssm.ahead(tokens, action, is_first)
    keep = (~is_first).to(tokens.dtype)
    deter, stoch, log_probs = scanning(job, keep, u, prepared, tokens, *weights_of(rssm))
    return State(deter, stoch), log_probs
