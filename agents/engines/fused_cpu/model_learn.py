"""Learning a world model by compiled kernels; what becomes of their answers, and how it is learnt, stays the agent's.

The agent's own `learn` runs, and is lent ways to its losses meanwhile. Weights are read where torch keeps them.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from time import perf_counter

from stride.agents.dreamer import Dreamer
from stride.agents.engines.fused_cpu import laprop
from stride.agents.engines.fused_cpu.behaviour import CALLED as OF_BEHAVIOUR
from stride.agents.engines.fused_cpu.behaviour import Behaviour
from stride.agents.engines.fused_cpu.kernels import laprop as laprop_kernels
from stride.agents.engines.fused_cpu.kernels.calls import CompiledKernel
from stride.agents.engines.fused_cpu.model_nets import CALLED as OF_NETS
from stride.agents.engines.fused_cpu.model_nets import Crew
from stride.agents.engines.fused_cpu.model_scan import CALLED as OF_SCAN
from stride.agents.engines.fused_cpu.recall import CALLED as OF_RECALL
from stride.agents.engines.fused_cpu.recall import Recollection
from stride.agents.engines.fused_cpu.workers import Pace, Workers
from stride.agents.laprop import LaProp
from stride.agents.networks.threads import one_thread
from stride.agents.planet import PlaNet
from stride.agents.sockets import Learner

CALLED: tuple[CompiledKernel, ...] = (
    *OF_SCAN,
    *OF_BEHAVIOUR,
    laprop_kernels.step,
    *OF_RECALL,
    *OF_NETS,
)


class ModelLearn:
    """The agent's own `learn`, its model unrolled by kernels."""

    name = "fused_cpu"

    def __init__(self, threads: int) -> None:
        self.crew, self._pace = Crew(Workers(threads), threads), Pace(threads)
        self._recollection: Recollection | None = None
        self._behaviour: Behaviour | None = None

    def learn(self, learner: Learner, work: int) -> None:
        if not work:
            return
        crew = self.crew
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
        self._recollection, optimizer = self._recollection or Recollection(learner, self.crew), learner.optimizer
        learner.recalling = self._recollection.losses
        if isinstance(learner, Dreamer):
            self._behaviour = self._behaviour or Behaviour(learner, self.crew)
            learner.behaving = self._behaviour.losses
        if isinstance(optimizer, LaProp):
            optimizer.mover = laprop.step
        try:
            with quiet:
                yield
        finally:
            learner.recalling = None
            if isinstance(learner, Dreamer):
                learner.behaving = None
            if isinstance(optimizer, LaProp):
                optimizer.mover = None
