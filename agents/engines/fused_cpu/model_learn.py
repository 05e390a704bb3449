"""Learning a world model by compiled kernels. What becomes of their answers, and how it is learnt, stays the agent's.

The agent's own `learn` runs, with its losses answered and its optimizer stepped by kernels. Weights are read where
torch stores them.
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
    """An agent's LaProp whose step is one call of a kernel, instead of 15 of torch for each tensor."""

    def __init__(self, optimizer: LaProp) -> None:
        self.__dict__ = optimizer.__dict__  # moments, groups and flags are one: a checkpoint of it holds them

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
    """An agent's losses by kernels, and an optimizer that steps by one: the argument `losses` of its `learn`."""

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
    """The agent's own `learn`, its losses answered by kernels."""

    name = "fused_cpu"

    def __init__(self, threads: int) -> None:
        self._pool = KernelPool(Workers(threads), threads)
        self._pace = Pace(threads)
        self._losses: KernelLosses | None = None

    def learn(self, learner: Learner, work: int) -> None:
        """Make `work` updates.

        Threads of torch, which watch for work while there is none, would keep the kernels' own from the cores: on two
        cores an update record 96 ms with both, 52 with the kernels' alone, 63 with one thread. Pictures are torch's.
        """
        if not work:
            return
        assert isinstance(learner, Dreamer | PlaNet)
        self._losses = self._losses or KernelLosses(learner, self._pool)
        start = perf_counter()
        self._pool.threads = self._pace.choose()
        with nullcontext() if learner.policy.model.senses.pictures else one_thread():
            learner.learn(work, self._losses)
        self._pace.record(self._pool.threads, (perf_counter() - start) / work)
