"""LaProp's step by a kernel, lent to the optimizer while an engine learns: one call instead of 15 for each tensor."""

import math
from typing import Any

import numpy as np
from torch import Tensor

from stride.agents.engines.fused_cpu.kernels import laprop
from stride.agents.engines.fused_cpu.kernels.laprop import SETTINGS, WEIGHT, Setting, Weight
from stride.agents.laprop import LaProp


def step(optimizer: LaProp, weights: list[Tensor], group: dict[str, Any]) -> None:
    """What LaProp does to the weights of a group; nothing where it is told to skip."""
    states = [optimizer.state_of(p) for p in weights]
    if optimizer.found_inf is not None and bool(optimizer.found_inf):
        return
    gradients = [p.grad.contiguous() for p in weights if p.grad is not None]
    table, settings = np.empty((len(weights), WEIGHT), np.int64), np.empty(SETTINGS)
    for row, p, gradient, state in zip(table, weights, gradients, states, strict=True):
        assert p.is_contiguous()
        tensors = (p, gradient, state["square"], state["mean"], state["updates"])
        row[: Weight.SIZE], row[Weight.SIZE] = [tensor.data_ptr() for tensor in tensors], p.numel()
    clip = group["clip"]
    settings[[Setting.RATE, Setting.EPSILON, Setting.DECAY]] = group["lr"], group["eps"], group["weight_decay"]
    settings[[Setting.BETA_1, Setting.BETA_2]] = group["betas"]
    settings[Setting.CLIP], settings[Setting.WARMUP] = math.inf if clip is None else clip, max(1, group["warmup"])
    laprop.step(table.ctypes.data, settings.ctypes.data, len(weights))
