"""Torch's parameters and moments as kernels read them: flat copies on the device, laid out by engines/plan."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from stride.agents.engines.plan.layout import Layout
from stride.agents.engines.plan.numbers import Live


def fetch(layout: Layout, flat: Tensor) -> None:
    """As they are now, float32 [layout.whole]; what lies between them stays."""
    for place in layout.places:
        place.view(flat).copy_(place.parameter)


class Copied:
    """Parameters, moments and steps, copied in before an iteration's updates and out after them; none falls out of
    step, so the engine may change between two iterations. Nothing waits for the device."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self._layout = layout
        # memory of their own: `Place.view` counts from where it begins
        self.values = torch.zeros(layout.whole, device=device)
        self.first, self.second = (torch.zeros(layout.size, device=device) for _ in range(2))
        self.group: Mapping[str, Any]
        """of the optimizer: its rate is where schedules write it"""
        self._state: Mapping[Tensor, dict[str, Tensor]]

    def attach(self, optimizer: Optimizer, live: np.ndarray) -> None:
        """Find the moments, making those that are not there yet; note what the optimizer is set to."""
        self._state, self.group = optimizer.state, optimizer.param_groups[0]
        for place in self._layout.places:
            own, parameter = optimizer.state[place.parameter], place.parameter
            if not own:
                where = parameter.device if self.group["capturable"] else "cpu"
                own["step"] = torch.zeros((), device=where)
                own["exp_avg"], own["exp_avg_sq"] = torch.zeros(2, *parameter.shape, device=parameter.device)
        live[Live.LEARNING_RATE], (live[Live.BETA_1], live[Live.BETA_2]) = self.group["lr"], self.group["betas"]
        live[Live.EPSILON], live[Live.DECAY] = self.group["eps"], self.group["weight_decay"]

    @torch.no_grad()
    def fetch(self, made: Tensor) -> None:
        """All as they are now; into `made` [] how many steps there were."""
        fetch(self._layout, self.values)
        for place in self._layout.places:
            own = self._state[place.parameter]
            place.view(self.first).copy_(own["exp_avg"])
            place.view(self.second).copy_(own["exp_avg_sq"])
        made.copy_(own["step"])

    @torch.no_grad()
    def give(self, made: Tensor) -> None:
        """And back."""
        for place in self._layout.places:
            own = self._state[place.parameter]
            place.parameter.copy_(place.view(self.values))
            own["exp_avg"].copy_(place.view(self.first))
            own["exp_avg_sq"].copy_(place.view(self.second))
            own["step"].copy_(made)
