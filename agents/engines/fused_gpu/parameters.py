"""Copy torch's parameters and moments to flat arrays on the device for kernels, and back (see plan/layout.py)."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stride.agents.engines.plan.layout import FlatLayout
from stride.agents.engines.plan.numbers import Live


def fetch(layout: FlatLayout, flat: Tensor) -> None:
    """Copy the current parameters to `flat`, float32 [layout.full_size]; does not touch the padding between them."""
    for tensor in layout.tensors:
        tensor.view(flat).copy_(tensor.parameter)


class DeviceParameters:
    """Parameters, moments and steps, copied from torch before an iteration's updates and back after them.

    So torch's are always up to date between iterations, and the engine may change then. Nothing waits for the device.
    """

    def __init__(self, layout: FlatLayout, device: torch.device) -> None:
        self._layout = layout
        # separate tensors: `FlatTensor.view` needs offset 0 at the beginning of the storage
        self.values = torch.zeros(layout.full_size, device=device)
        self.first, self.second = (torch.zeros(layout.size, device=device) for _ in range(2))
        self.group: Mapping[str, Any]
        """the optimizer's parameter group; schedules write its learning rate"""
        self._state: Mapping[Tensor, dict[str, Tensor]]

    def attach(self, optimizer: Optimizer, live: Live) -> None:
        """Find the optimizer's moments, or make missing ones; write its settings to `live`."""
        self._state, self.group = optimizer.state, optimizer.param_groups[0]
        for parameter, *_ in self._layout.tensors:
            state = optimizer.state[parameter]
            if not state:
                device = parameter.device if self.group["capturable"] else "cpu"
                state["step"] = torch.zeros((), device=device)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros(2, *parameter.shape, device=parameter.device)
        live.learning_rate = self.group["lr"]
        live.beta_1, live.beta_2 = self.group["betas"]
        live.epsilon, live.decay = self.group["eps"], self.group["weight_decay"]

    @torch.no_grad()
    def fetch(self, steps: Tensor) -> None:
        """Copy parameters and moments from torch, and the optimizer's count of steps to `steps` []."""
        fetch(self._layout, self.values)
        for tensor in self._layout.tensors:
            state = self._state[tensor.parameter]
            tensor.view(self.first).copy_(state["exp_avg"])
            tensor.view(self.second).copy_(state["exp_avg_sq"])
        steps.copy_(state["step"])

    @torch.no_grad()
    def give(self, steps: Tensor) -> None:
        """Copy parameters and moments back to torch, and `steps` [] to the optimizer's count of steps."""
        for tensor in self._layout.tensors:
            state = self._state[tensor.parameter]
            tensor.parameter.copy_(tensor.view(self.values))
            state["exp_avg"].copy_(tensor.view(self.first))
            state["exp_avg_sq"].copy_(tensor.view(self.second))
            state["step"].copy_(steps)
