"""How torch's weights, optimizer moments and encoder statistics reach the kernels of the fused CPU engine.

With rollouts, parameters and moments are copied before and after the updates of an iteration. With a replay memory they
are views of the kernels' memory, because an iteration there may be a single update.
"""

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

MOMENTS = ("exp_avg", "exp_avg_sq")  # keys of both moments in the optimizer's state of a parameter
State = Mapping[Tensor, dict[str, Tensor]]  # an optimizer's state, by parameter


class FeatureScaling:
    """An encoder's statistics at a fixed address. Torch makes new tensors for them, so they are copied each time."""

    def __init__(self, frame: Frame, live: Live, encoder: FlatEncoder) -> None:
        self._encoder = encoder
        self._moving = isinstance(encoder.leaf[0], RunningNorm)  # whether training changes the statistics
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
    """An optimizer's settings and its count of steps, in `live`. Base of CopiedParameters and ViewedParameters."""

    group: Mapping[str, Any]
    """the optimizer's parameter group: schedules write the learning rate into it"""

    def __init__(self, frame: Frame, live: Live, layout: FlatLayout) -> None:
        self._frame, self._live, self._layout = frame, live, layout
        self._state: State | None = None
        self._addresses: list[int] = []  # of the parameters; others than these show that a parameter has moved

    def attach(self, optimizer: Optimizer) -> None:
        """Find the parameters and the optimizer's moments; find them again where they have moved, as after loading."""
        live, state = self._live, optimizer.state
        if state is self._state and self._addresses == self._present_addresses():
            return
        self.group = optimizer.param_groups[0]
        parameters = self._learnt()
        live.step = _steps_of(state[parameters[self._layout.delayed]])
        live.actor_step = _steps_of(state[parameters[0]])
        live.beta_1, live.beta_2 = self.group["betas"]
        self._connect(state)
        self._steps = torch.empty(len(parameters))  # steps of each parameter; torch's state gets views of it
        self._write_steps()
        for parameter, step in zip(parameters, self._steps, strict=True):
            state[parameter]["step"] = step
        self._state, self._addresses = state, self._present_addresses()

    def follow(self) -> None:
        """Copy the optimizer's settings, which a schedule may have changed since the last iteration."""
        live, group = self._live, self.group
        live.learning_rate, live.epsilon, live.decay = group["lr"], group["eps"], group["weight_decay"]

    def _present_addresses(self) -> list[int]:
        return [tensor.parameter.data_ptr() for tensor in self._layout.tensors]

    def _learnt(self) -> list[Tensor]:
        """Return the parameters that the optimizer changes."""
        raise NotImplementedError

    def _connect(self, state: State) -> None:
        """Give the frame the addresses of parameters and moments."""
        raise NotImplementedError

    def give(self) -> None:
        """Write the counts of steps to torch's optimizer, as the kernels left them."""
        self._write_steps()

    def _write_steps(self) -> None:
        delayed = self._layout.delayed  # the first so many tensors belong to a delayed actor
        self._steps[:delayed] = self._live.actor_step
        self._steps[delayed:] = self._live.step


class CopiedParameters(AttachedParameters):
    """Torch owns the parameters: they are copied before all updates of an iteration, and back after them.

    Copying takes about a microsecond for ten thousand numbers, and no copy can become stale.
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
        """Copy torch's parameters and moments to the kernels' memory, and renew the transposed weights."""
        turn = self._frame.held["turn"]
        self._frame.check(nets.fetch_parameters)
        self._frame.check(turn)
        nets.fetch_parameters(self._frame.address)
        for net in range(len(self._layout.nets)):
            turn(self._frame.address, net, 0, 1)

    def give(self) -> None:
        """Copy parameters, moments and the count of steps back to torch."""
        nets.give_parameters(self._frame.address)
        super().give()


class ViewedParameters(AttachedParameters):
    """From the first call on torch's parameters and moments are views of the kernels' memory.

    With one update for each env step, copies would take too long. A checkpoint holds tensors of their own, not views.
    """

    def _learnt(self) -> list[Tensor]:
        return [tensor.parameter for tensor in self._layout.tensors[: self._layout.learnt]]

    def _connect(self, state: State) -> None:
        """Move parameters and moments to the kernels' memory, where they are not there yet."""
        held = self._frame.held
        flat, *moments = (torch.as_tensor(held[name]) for name in ("parameters", "first_moment", "second_moment"))
        for tensor in self._layout.tensors:
            tensor.parameter.data = _moved(tensor.parameter.data, tensor.view(flat))
        for tensor in self._layout.tensors[: self._layout.learnt]:
            own_state = state[tensor.parameter]
            for name, moment in zip(MOMENTS, moments, strict=True):
                view = tensor.view(moment)
                own_state[name] = _moved(own_state[name], view) if name in own_state else view.zero_()

    def fetch(self) -> None:
        """Renew the transposed weights of the actor, net 0, which the playing kernel reads."""
        self._frame.check(nets.turn)
        nets.turn(self._frame.address, 0, 0, 1)


def _steps_of(moments: Mapping[str, Tensor]) -> float:
    """Return how many steps the optimizer has made for a parameter; 0 where its state is still empty."""
    return float(moments["step"]) if moments else 0.0


def _moved(values: Tensor, view: Tensor) -> Tensor:
    """Return `view` with these values in it; copies nothing where they are already there."""
    return view if values.data_ptr() == view.data_ptr() else view.copy_(values)
