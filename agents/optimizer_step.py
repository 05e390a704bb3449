"""A step of an optimizer which a flag on its device can make nothing, without a wait."""

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stride.agents.laprop import LaProp


def parameters_of(optimizer: Optimizer) -> list[nn.Parameter]:
    """All parameters, group by group."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def step_unless(optimizer: Optimizer, skip: Tensor) -> None:
    """optimizer.step(), or nothing at all (moments and counters included) where the flag `skip` is set; no sync.

    A user's own optimizer must store everything beside its parameters (`capturable`), or a copy of its counters waits.
    """
    if isinstance(optimizer, LaProp) or optimizer.defaults.get("fused"):
        optimizer.found_inf = skip.float()  # type: ignore[attr-defined]  # the attribute that torch's GradScaler sets
        optimizer.step()
        return
    parameters = parameters_of(optimizer)
    old_tensors = {id(x): x.clone() for x in _tensors(optimizer, parameters)}
    optimizer.step()
    with torch.no_grad():
        for x in _tensors(optimizer, parameters):
            old_tensor = old_tensors.get(id(x), torch.zeros_like(x))  # moments begin at zero, in the first step itself
            x.copy_(torch.where(skip, old_tensor, x))


def _tensors(optimizer: Optimizer, parameters: list[nn.Parameter]) -> list[Tensor]:
    """Everything that a step may change: parameters and their moments."""
    return [x for p in parameters for x in (p, *optimizer.state[p].values()) if isinstance(x, Tensor)]
