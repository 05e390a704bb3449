"""Learning a world model by compiled kernels; what becomes of their answers, and how it is learnt, stays the agent's.

The agent's own `learn` runs, and is lent another `Unroll` meanwhile. Weights are read where torch keeps them.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from time import perf_counter

import torch
from torch import Tensor, nn

from agents.dreamer import Dreamer
from agents.engines.fused_cpu import laprop
from agents.engines.fused_cpu.behaviour import CALLED as OF_BEHAVIOUR
from agents.engines.fused_cpu.behaviour import Behaviour
from agents.engines.fused_cpu.kernels import laprop as laprop_kernels
from agents.engines.fused_cpu.kernels.calls import Kernel
from agents.engines.fused_cpu.model_guess import CALLED as OF_GUESS
from agents.engines.fused_cpu.model_guess import guessing
from agents.engines.fused_cpu.model_nets import CALLED as OF_NETS
from agents.engines.fused_cpu.model_nets import Crew, Net, answered, losses, means, passing
from agents.engines.fused_cpu.model_scan import CALLED as OF_SCAN
from agents.engines.fused_cpu.model_scan import Job, scanning, weights_of
from agents.engines.fused_cpu.workers import Pace, Workers
from agents.engines.plan.layout import LANES
from agents.model_learning import Unroll
from agents.networks.threads import one_thread
from agents.networks.two_hot import TwoHot
from agents.networks.world_model import RSSM, Guess, State, WorldModel
from agents.planet import PlaNet
from agents.sockets import Learner
from utils.laprop import LaProp

CALLED: tuple[Kernel, ...] = (
    *OF_SCAN,
    *OF_BEHAVIOUR,
    laprop_kernels.step,
    *OF_GUESS,
    *OF_NETS,
)


class KernelUnroll(Unroll):
    """The scan by kernels, for batches of 16 sequences or a multiple; each thread takes some of these groups."""

    def __init__(self, threads: int) -> None:
        self.crew, self._nets = Crew(Workers(threads), threads), dict[nn.Module, Net]()

    def observe(self, rssm: RSSM, tokens: Tensor, action: Tensor, is_first: Tensor, u: Tensor) -> tuple[State, Guess]:
        prepared, tokens = rssm.ahead(tokens, action, is_first)
        sizes = rssm.sizes
        job, keep = Job(self.crew, sizes, rssm.unimix), (~is_first).to(tokens.dtype)
        deter, stoch, log_probs = scanning(job, keep, u, prepared, tokens, *weights_of(rssm))
        return State(deter, stoch), Guess(log_probs.unflatten(-1, (sizes.stoch, sizes.classes)))

    def foresee(self, rssm: RSSM, deter: Tensor) -> Guess:
        sizes, rows = rssm.sizes, deter.shape[:-1]
        if math.prod(rows) % LANES:
            return super().foresee(rssm, deter)
        (logits,) = self.through(deter, rssm.prior)
        model = Job(self.crew, sizes, rssm.unimix).table()
        return Guess(guessing(self.crew, model, logits.flatten(0, -2)).view(*rows, sizes.stoch, sizes.classes))

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


class ModelLearn:
    """The agent's own `learn`, its model unrolled by kernels."""

    name = "fused_cpu"

    def __init__(self, threads: int) -> None:
        self.unroll, self._pace = KernelUnroll(threads), Pace(threads)
        self._behaviour: Behaviour | None = None

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
        if isinstance(learner, Dreamer):
            self._behaviour = self._behaviour or Behaviour(learner, self.unroll.crew)
            learner.behaving = self._behaviour.losses
        if isinstance(optimizer, LaProp):
            optimizer.mover = laprop.step
        try:
            with quiet:
                yield
        finally:
            learner.unroll = own
            if isinstance(learner, Dreamer):
                learner.behaving = None
            if isinstance(optimizer, LaProp):
                optimizer.mover = None
