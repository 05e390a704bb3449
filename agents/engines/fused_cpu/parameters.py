"""How torch's parameters and the optimizer's moments reach the kernels: as copies, or as views of kernels' memory."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stride.agents.engines.fused_cpu.frame import At, Frame
from stride.agents.engines.fused_cpu.kernels import nets
from stride.agents.engines.plan.layout import LANES, Layout
from stride.agents.engines.plan.numbers import Live


class _Attached:
    """What the optimizer is set to, and the steps it has made."""

    def __init__(self, frame: Frame, live: np.ndarray, layout: Layout) -> None:
        self._frame, self._live, self._layout = frame, live, layout
        self.group: Mapping[str, Any]
        """of the optimizer: its rate is where schedules write it"""
        self._state: Mapping[Tensor, dict[str, Tensor]] | None = None
        self._places: list[int] = []  # addresses, by which other memory is noticed

    def _read(self, optimizer: Optimizer, first: Mapping[str, Tensor]) -> None:
        """The optimizer's settings; its steps by the state of one parameter."""
        live, self.group = self._live, optimizer.param_groups[0]
        live[Live.STEP] = float(first["step"]) if first else 0.0
        live[Live.BETA_1], live[Live.BETA_2] = self.group["betas"]
        live[Live.EPSILON], live[Live.DECAY] = self.group["eps"], self.group["weight_decay"]

    def _count_steps(self, parameters: Sequence[Tensor], state: Mapping[Tensor, dict[str, Tensor]]) -> None:
        """Equal numbers, so one memory for all of them."""
        self._counters = torch.full((len(parameters),), float(self._live[Live.STEP]))
        for parameter, step in zip(parameters, self._counters, strict=True):
            state[parameter]["step"] = step

    def _note_steps(self) -> None:
        self._counters.fill_(float(self._live[Live.STEP]))


class Copied(_Attached):
    """Torch's, copied in before and out after each rollout: a microsecond per ten thousand; none falls out of step."""

    def __init__(self, frame: Frame, live: np.ndarray, layout: Layout, parameters: list[nn.Parameter]) -> None:
        super().__init__(frame, live, layout)
        self._parameters = parameters

    def attach(self, optimizer: Optimizer) -> None:
        state, places = optimizer.state, [p.data_ptr() for p in self._parameters]
        if state is self._state and places == self._places:
            return
        self._read(optimizer, state[self._parameters[0]])
        for parameter in self._parameters:
            if not state[parameter]:
                moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                state[parameter].update(moments)
        self._count_steps(self._parameters, state)
        self._frame.point(At.TENSOR_TABLE, self._layout.tensors(state))
        self._state, self._places = state, places

    def fetch(self) -> None:
        """As they are now."""
        self._frame.check(nets.fetch_parameters)
        self._frame.check(nets.turn)
        nets.fetch_parameters(self._frame.address)
        for net in range(len(self._layout.nets)):
            nets.turn(self._frame.address, net, 0, 1)

    def give(self) -> None:
        """Parameters, moments and the count of steps back to torch."""
        nets.give_parameters(self._frame.address)
        self._note_steps()


class Viewed(_Attached):
    """Views of the flat buffers from the first call on: an update per env step would pay for copies.

    A checkpoint holds them one by one.
    """

    def __init__(self, frame: Frame, live: np.ndarray, layout: Layout) -> None:
        super().__init__(frame, live, layout)
        self._parameters = [place.parameter for place in layout.places[: layout.learnt]]
        own = (At.PARAMETERS, At.FIRST_MOMENT, At.SECOND_MOMENT)
        self._values, *self._moments = (torch.as_tensor(frame.held[entry]) for entry in own)

    def attach(self, optimizer: Optimizer) -> None:
        """Make them views; again where a parameter has been given other memory."""
        places = self._layout.places
        state, addresses = optimizer.state, [place.parameter.data_ptr() for place in places]
        if state is self._state and addresses == self._places:
            return
        self._read(optimizer, state[self._parameters[0]])
        for place in places:
            place.parameter.data = _moved(place.parameter.data, place.view(self._values))
        for place in places[: self._layout.learnt]:
            own = state[place.parameter]
            for name, flat in zip(("exp_avg", "exp_avg_sq"), self._moments, strict=True):
                view = place.view(flat)
                own[name] = _moved(own[name], view) if name in own else view.zero_()
        self._count_steps(self._parameters, state)
        self._state, self._places = state, [place.parameter.data_ptr() for place in places]

    def fetch(self) -> None:
        """For whoever plays the transposes of the net that acts."""
        self._frame.check(nets.turn)
        nets.turn(self._frame.address, 0, 0, 1)

    def give(self) -> None:
        """The count of steps; all else is there."""
        self._note_steps()


def _moved(values: Tensor, view: Tensor) -> Tensor:
    """`view`, with these values in it."""
    return view if values.data_ptr() == view.data_ptr() else view.copy_(values)


def aligned(count: int) -> np.ndarray:
    """float32 zeros that begin on a cache line."""
    raw = np.zeros(count + LANES, np.float32)
    skip = -raw.ctypes.data % (4 * LANES) // 4
    return raw[skip : skip + count]
