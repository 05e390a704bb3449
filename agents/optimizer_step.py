"""An optimizer step that a flag on the device can turn into nothing, so that the host need not wait to read it."""

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stride.agents.laprop import LaProp


def parameters_of(optimizer: Optimizer) -> list[nn.Parameter]:
    """Return all parameters of an optimizer, group by group."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def step_unless(optimizer: Optimizer, skip: Tensor) -> None:
    """Call optimizer.step(), or change nothing (moments and counters included) if the flag `skip` [] bool is set.

    The host does not wait, unless a user's own optimizer has counters on another device than its parameters (as without
    torch's option `capturable`): to copy them waits.
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
    """Return every tensor that a step may change: parameters, moments, counters."""
    return [x for p in parameters for x in (p, *optimizer.state[p].values()) if isinstance(x, Tensor)]
