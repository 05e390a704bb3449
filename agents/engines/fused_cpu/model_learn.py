"""The Learn socket for world models (Dreamer, PlaNet): the agent's own `learn`, with losses and optimizer by kernels.

Kernels read the weights where torch stores them. Everything else in `learn`, such as drawing batches and reporting
metrics, stays the agent's.
"""

import math
from contextlib import nullcontext
from time import perf_counter
from typing import Any

import numpy as np
from torch import Tensor
from torch.optim import Optimizer

from stride.agents.dreamer import Dreamer
from stride.agents.engines.fused_cpu import model_losses, model_nets, model_scan
from stride.agents.engines.fused_cpu.kernels import laprop
from stride.agents.engines.fused_cpu.kernels.calls import CompiledKernel
from stride.agents.engines.fused_cpu.model_losses import DreamLosses, ReplayLosses
from stride.agents.engines.fused_cpu.model_nets import KernelPool
from stride.agents.engines.fused_cpu.workers import Pace, Workers
from stride.agents.laprop import LaProp
from stride.agents.networks.layers import one_thread
from stride.agents.planet import PlaNet
from stride.agents.sockets import Learner

KERNELS: tuple[CompiledKernel, ...] = (*model_scan.KERNELS, *model_losses.KERNELS, laprop.step, *model_nets.KERNELS)


class KernelLaProp(LaProp):
    """An agent's LaProp optimizer, whose step is one kernel call instead of 15 calls of torch for each tensor."""

    def __init__(self, optimizer: LaProp) -> None:
        self.__dict__ = optimizer.__dict__  # shared: state and settings stay those of the agent's optimizer

    def _move(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        states = [self.state_of(p) for p in weights]
        if self.found_inf is not None and bool(self.found_inf):
            return
        gradients = [p.grad.contiguous() for p in weights if p.grad is not None]
        rows = []
        for p, gradient, state in zip(weights, gradients, states, strict=True):
            assert p.is_contiguous()
            tensors = (p, gradient, state["square"], state["mean"], state["updates"])
            rows.append((*(tensor.data_ptr() for tensor in tensors), p.numel()))
        table = np.array(rows, laprop.LaPropTensor.dtype)
        beta_1, beta_2 = group["betas"]
        step = laprop.LaPropTable(
            rows=table.ctypes.data, row_count=len(rows), rate=float(group["lr"]), beta_1=beta_1, beta_2=beta_2,
            epsilon=group["eps"], clip=math.inf if group["clip"] is None else group["clip"],
            warmup=max(1, group["warmup"]), decay=group["weight_decay"],
        )  # fmt: skip
        laprop.step(step.address)


class KernelLosses:
    """An agent's losses and optimizer by kernels: the argument `losses` of its `learn`."""

    def __init__(self, agent: Dreamer | PlaNet, pool: KernelPool) -> None:
        self._agent = agent
        self.recall_loss = ReplayLosses(agent, pool).losses
        if isinstance(agent, Dreamer):
            self.behaviour_loss = DreamLosses(agent, pool).losses

    @property
    def optimizer(self) -> Optimizer:
        optimizer = self._agent.optimizer
        return KernelLaProp(optimizer) if isinstance(optimizer, LaProp) else optimizer


class ModelLearn:
    """Runs the agent's own `learn` with KernelLosses."""

    name = "fused_cpu"

    def __init__(self, threads: int) -> None:
        self._pool = KernelPool(Workers(threads), threads)
        self._pace = Pace(threads)
        self._losses: KernelLosses | None = None

    def learn(self, learner: Learner, work: int) -> None:
        """Make `work` updates.

        Torch's threads wait for work in a busy loop and would take the cores from the kernels' threads, so torch gets
        one thread: on two cores an update took 96 ms with threads of both, 52 ms with only the kernels', 63 ms with
        one thread in all. With pictures torch keeps its threads, because it computes the convolutions.
        """
        if not work:
            return
        assert isinstance(learner, Dreamer | PlaNet)
        self._losses = self._losses or KernelLosses(learner, self._pool)
        start_time = perf_counter()
        self._pool.threads = self._pace.choose()
        with nullcontext() if learner.policy.model.senses.pictures else one_thread():
            learner.learn(work, self._losses)
        self._pace.record(self._pool.threads, (perf_counter() - start_time) / work)
