"""Learning a world model with its scan in compiled kernels; losses, heads and the optimizer stay torch's.

The agent's own `learn` runs, and is lent another `Unroll` meanwhile. Weights are read where torch keeps them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from agents.dreamer import Dreamer
from agents.engines.fused_cpu import laprop
from agents.engines.fused_cpu.imagination import Imagination
from agents.engines.fused_cpu.kernels import laprop as laprop_kernels
from agents.engines.fused_cpu.kernels import model_imagine, model_scan
from agents.engines.fused_cpu.kernels.calls import Kernel, address_of
from agents.engines.fused_cpu.kernels.model_cell import MODEL, Model
from agents.engines.fused_cpu.kernels.model_scan import SCAN, Scan
from agents.engines.fused_cpu.model_guess import CALLED as OF_GUESS
from agents.engines.fused_cpu.model_guess import guessing
from agents.engines.fused_cpu.model_nets import CALLED as OF_NETS
from agents.engines.fused_cpu.model_nets import Crew, Net, answered, losses, means, passing
from agents.engines.fused_cpu.workers import Pace, Workers
from agents.engines.plan.layout import LANES
from agents.model_learning import Unroll
from agents.networks.autograd import Context
from agents.networks.dreamer_policy import DreamerPolicy
from agents.networks.threads import one_thread
from agents.networks.two_hot import TwoHot
from agents.networks.world_model import RSSM, DenseCell, Guess, Sizes, State, WorldModel
from agents.planet import PlaNet
from agents.sockets import Learner
from utils.kept_memory import keep_freed_memory
from utils.laprop import LaProp

CALLED: tuple[Kernel, ...] = (
    model_scan.forward,
    model_scan.backward,
    model_imagine.imagine,
    laprop_kernels.step,
    *OF_GUESS,
    *OF_NETS,
)


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

    def run(self, kernel: Kernel, steps: int, sequences: int, model: np.ndarray, memory: dict[Scan, Tensor]) -> None:
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


class KernelUnroll(Unroll):
    """The scan by kernels, for batches of 16 sequences or a multiple; each thread takes some of these groups."""

    def __init__(self, threads: int) -> None:
        self.crew, self._nets = Crew(Workers(threads), threads), dict[nn.Module, Net]()
        self._imagination: Imagination | None = None

    def observe(self, rssm: RSSM, tokens: Tensor, action: Tensor, is_first: Tensor, u: Tensor) -> tuple[State, Guess]:
        prepared, tokens = rssm.ahead(tokens, action, is_first)
        sizes = rssm.sizes
        job, scan = Job(self.crew, sizes, rssm.unimix), _apply
        deter, stoch, log_probs = scan(job, (~is_first).to(tokens.dtype), u, prepared, tokens, *weights_of(rssm))
        return State(deter, stoch), Guess(log_probs.unflatten(-1, (sizes.stoch, sizes.classes)))

    def foresee(self, rssm: RSSM, deter: Tensor) -> Guess:
        sizes, rows = rssm.sizes, deter.shape[:-1]
        if math.prod(rows) % LANES:
            return super().foresee(rssm, deter)
        (logits,) = self.through(deter, rssm.prior)
        model = Job(self.crew, sizes, rssm.unimix).table()
        return Guess(guessing(self.crew, model, logits.flatten(0, -2)).view(*rows, sizes.stoch, sizes.classes))

    def imagine(
        self, policy: DreamerPolicy, state: State, of_guess: Tensor, of_action: Tensor
    ) -> tuple[Tensor, Tensor]:
        rssm = policy.model.rssm
        model = Job(self.crew, rssm.sizes, rssm.unimix).table(weights_of(rssm))
        self._imagination = self._imagination or Imagination(policy, self.crew.workers)
        return self._imagination.run(model, state, of_guess, of_action, self.crew.threads)

    def through(self, x: Tensor, *nets: nn.Module) -> tuple[Tensor, ...]:
        tables, (*shape, size) = [self._net(net) for net in nets], x.shape
        rows = math.prod(shape)
        if rows % LANES:
            return super().through(x, *nets)
        x = x.reshape(rows, size).contiguous()
        if torch.is_grad_enabled():
            found = passing(tables, self.crew, x, *(weight for table in tables for weight in table.weights))
        else:
            found = tuple(answered(tables, self.crew, x, keep=False)[0])
        return tuple(out.view(*shape, -1) for out in found)

    def expect(self, model: WorldModel, features: Tensor) -> tuple[Tensor, Tensor]:
        paid, goes_on = self.through(features, model.reward, model.goes_on)
        return self.mean(model.two_hot, paid), goes_on.squeeze(-1).sigmoid()

    def mean(self, two_hot: TwoHot, logits: Tensor) -> Tensor:
        rows = logits.numel() // logits.shape[-1]
        if rows % LANES:
            return super().mean(two_hot, logits)
        return means(two_hot, self.crew, logits.detach().reshape(rows, -1).contiguous()).view(logits.shape[:-1])

    def losses(self, two_hot: TwoHot, logits: Tensor, *targets: Tensor) -> Tensor:
        rows = targets[0].numel()
        if rows % LANES:
            return super().losses(two_hot, logits, *targets)
        wanted = torch.stack([target.reshape(rows) for target in targets])
        found = losses(two_hot, self.crew, logits.reshape(rows, -1).contiguous(), wanted)
        return found.view(len(targets), *targets[0].shape)

    def _net(self, net: nn.Module) -> Net:
        if net not in self._nets:
            self._nets[net] = Net(net)
        return self._nets[net]


_apply: Callable[..., tuple[Tensor, Tensor, Tensor]] = Scanned.apply


class ModelLearn:
    """The agent's own `learn`, its model unrolled by kernels."""

    name = "fused_cpu"

    def __init__(self, threads: int) -> None:
        self.unroll, self._pace = KernelUnroll(threads), Pace(threads)
        keep_freed_memory()  # of an update: it took up to 600 faults, as the allocator pleased

    def learn(self, learner: Learner, work: int) -> None:
        if not work:
            return
        crew = self.unroll.crew
        began, crew.threads = perf_counter(), self._pace.choose()
        with self.lent(learner):
            learner.learn(work)
        self._pace.took(crew.threads, (perf_counter() - began) / work)

    @contextmanager
    def lent(self, learner: Learner) -> Iterator[None]:
        """The agent unrolls, and its optimizer steps, by kernels for as long as a block lasts.

        Threads of torch, which watch for work while there is none, would keep the kernels' own from the cores: on two
        cores an update took 96 ms with both, 52 with the kernels' alone, 63 with one thread. Pictures are torch's.
        """
        assert isinstance(learner, Dreamer | PlaNet)
        quiet = nullcontext() if learner.policy.model.senses.pictures else one_thread()
        own, learner.unroll, optimizer = learner.unroll, self.unroll, learner.optimizer
        if isinstance(optimizer, LaProp):
            optimizer.mover = laprop.step
        try:
            with quiet:
                yield
        finally:
            learner.unroll = own
            if isinstance(optimizer, LaProp):
                optimizer.mover = None
