"""How torch's numbers reach the kernels: parameters and moments as copies, or as views of the kernels' memory."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stride.agents.engines.fused_cpu.frame import Frame
from stride.agents.engines.fused_cpu.kernels import nets
from stride.agents.engines.plan.layout import FlatLayout
from stride.agents.engines.plan.numbers import Live
from stride.agents.engines.plan.recipe import scaling
from stride.agents.networks.encoders import FlatEncoder, RunningNorm

MOMENTS = ("exp_avg", "exp_avg_sq")  # in the optimizer's state of a parameter
State = Mapping[Tensor, dict[str, Tensor]]


class FeatureScaling:
    """An encoder's statistics, copied to where kernels find them: torch makes a new tensor each time."""

    def __init__(self, frame: Frame, live: Live, encoder: FlatEncoder) -> None:
        self._encoder = encoder
        self._moving = isinstance(encoder.leaf[0], RunningNorm)
        centre, scale, live.bound = scaling(encoder)
        self._centre, self._scale = centre.clone(), scale.clone()
        frame.fill(centre=self._centre, scale=self._scale)

    def refresh(self) -> None:
        """Copy the present statistics, where they change."""
        if self._moving:
            centre, scale, _ = scaling(self._encoder)
            self._centre.copy_(centre)
            self._scale.copy_(scale)


class AttachedParameters:
    """An optimizer as kernels know it: its settings and its count of steps in `live`. Base of the two below."""

    group: Mapping[str, Any]
    """of the optimizer: its rate is where schedules write it"""

    def __init__(self, frame: Frame, live: Live, layout: FlatLayout) -> None:
        self._frame, self._live, self._layout = frame, live, layout
        self._state: State | None = None
        self._addresses: list[int] = []  # of the parameters, by which other memory is noticed

    def attach(self, optimizer: Optimizer) -> None:
        """Find the parameters and their moments; again where their memory is another, as after loading."""
        live, state = self._live, optimizer.state
        if state is self._state and self._addresses == self._present_addresses():
            return
        self.group = optimizer.param_groups[0]
        parameters = self._learnt()
        live.step = _steps_of(state[parameters[self._layout.delayed]])
        live.actor_step = _steps_of(state[parameters[0]])
        live.beta_1, live.beta_2 = self.group["betas"]
        self._connect(state)
        self._steps = torch.empty(len(parameters))  # equal numbers, so one memory for all of them
        self._write_steps()
        for parameter, step in zip(parameters, self._steps, strict=True):
            state[parameter]["step"] = step
        self._state, self._addresses = state, self._present_addresses()

    def follow(self) -> None:
        """Take the optimizer's settings that a schedule may have changed since the last iteration."""
        live, group = self._live, self.group
        live.learning_rate, live.epsilon, live.decay = group["lr"], group["eps"], group["weight_decay"]

    def _present_addresses(self) -> list[int]:
        return [tensor.parameter.data_ptr() for tensor in self._layout.tensors]

    def _learnt(self) -> list[Tensor]:
        raise NotImplementedError

    def _connect(self, state: State) -> None:
        raise NotImplementedError

    def give(self) -> None:
        """The counts of steps back to torch, as the kernels left them."""
        self._write_steps()

    def _write_steps(self) -> None:
        delayed = self._layout.delayed
        self._steps[:delayed] = self._live.actor_step
        self._steps[delayed:] = self._live.step


class CopiedParameters(AttachedParameters):
    """Torch's, copied in before and out after all updates of an iteration, a microsecond per ten thousand.

    None falls out of step.
    """

    def _learnt(self) -> list[Tensor]:
        return list(self.group["params"])

    def _connect(self, state: State) -> None:
        for parameter in self._learnt():
            if not state[parameter]:
                state[parameter].update({name: torch.zeros_like(parameter) for name in MOMENTS})
        table = self._layout.tensor_table(state)
        self._frame.fill(tensor_table=table, tensors=len(table))

    def fetch(self) -> None:
        """Copy them in as they are now."""
        turn = self._frame.held["turn"]
        self._frame.check(nets.fetch_parameters)
        self._frame.check(turn)
        nets.fetch_parameters(self._frame.address)
        for net in range(len(self._layout.nets)):
            turn(self._frame.address, net, 0, 1)

    def give(self) -> None:
        """Parameters, moments and the count of steps back to torch."""
        nets.give_parameters(self._frame.address)
        super().give()


class ViewedParameters(AttachedParameters):
    """Views of the flat buffers from the first call on: an update per env step would pay for copies.

    A checkpoint holds them one by one.
    """

    def _learnt(self) -> list[Tensor]:
        return [tensor.parameter for tensor in self._layout.tensors[: self._layout.learnt]]

    def _connect(self, state: State) -> None:
        """Make them views; again where a parameter has been given other memory."""
        held = self._frame.held
        flat, *moments = (torch.as_tensor(held[name]) for name in ("parameters", "first_moment", "second_moment"))
        for tensor in self._layout.tensors:
            tensor.parameter.data = _moved(tensor.parameter.data, tensor.view(flat))
        for tensor in self._layout.tensors[: self._layout.learnt]:
            of_parameter = state[tensor.parameter]
            for name, moment in zip(MOMENTS, moments, strict=True):
                view = tensor.view(moment)
                of_parameter[name] = _moved(of_parameter[name], view) if name in of_parameter else view.zero_()

    def fetch(self) -> None:
        """Transpose the net that acts, for whoever plays."""
        self._frame.check(nets.turn)
        nets.turn(self._frame.address, 0, 0, 1)


def _steps_of(moments: Mapping[str, Tensor]) -> float:
    """How many steps the optimizer has made of a parameter with these moments, or none."""
    return float(moments["step"]) if moments else 0.0


def _moved(values: Tensor, view: Tensor) -> Tensor:
    """`view`, with these values in it."""
    return view if values.data_ptr() == view.data_ptr() else view.copy_(values)
