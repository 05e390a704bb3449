"""Where every number of an agent lies in the flat parameters: widths in whole vectors, tensors on cache lines."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from agents.engines.fused_cpu.frame import Layer, Tensor
from agents.engines.fused_cpu.lanes import LANES
from agents.networks.actor_critic import ActorCritic
from agents.networks.heads import Gaussian
from agents.networks.q_network import QNetwork
from agents.networks.squashed import Critics, SquashedPolicy

PARTS = ("actor", "critic", "trunk")
SEGMENT = 1024  # floats at most of what one thread reduces and steps at a time


class Place(NamedTuple):
    """One of torch's parameters and where it lies in ours."""

    parameter: torch.Tensor
    offset: int
    row: int  # stride of a row
    column: int

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """The parameter's form of its place in a flat buffer."""
        shape = self.parameter.shape
        strides = (self.row, self.column) if len(shape) == 2 else (self.column,) * len(shape)
        return flat.as_strided(shape, strides, self.offset)


class Layout(NamedTuple):
    """The tables of nets.py and update.py, and their sizes."""

    nets: np.ndarray  # [nets, layers + 1, len(Layer)]
    places: list[Place]
    segments: np.ndarray  # [segments, 3]: first, last, part
    size: int
    turned: int
    hidden: int  # floats of a sample's activations
    widest: int
    log_std: int  # offset
    value_net: int
    value_row: int

    def tensors(self, state: Mapping[torch.Tensor, Mapping[str, torch.Tensor]]) -> np.ndarray:
        """The tensor table: addresses now, which hold until somebody gives a parameter other memory."""
        rows = np.zeros((len(self.places), len(Tensor)), np.int64)
        for row, place in zip(rows, self.places, strict=True):
            parameter = place.parameter
            matrix = parameter if parameter.dim() == 2 else parameter[None]
            first, second = state[parameter]["exp_avg"], state[parameter]["exp_avg_sq"]
            row[:] = (
                parameter.data_ptr(), first.data_ptr(), second.data_ptr(), *matrix.shape, place.offset, place.row,
                place.column,
            )  # fmt: skip
        return rows


class _Floor:
    """Hands out places in a flat buffer, each on a cache line."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, count: int) -> int:
        start = self.size
        self.size += padded(count)
        return start


def padded(width: int) -> int:
    """The next whole number of vectors."""
    return -(-width // LANES) * LANES


class _Plan:
    """A flat form in the making: nets one after the other, each on cache lines."""

    def __init__(self) -> None:
        self.floor, self.turned = _Floor(), _Floor()
        self.places: list[Place] = []
        self.tables: list[list[tuple[int, ...]]] = []

    def add(self, hidden: Iterable[nn.Linear], outputs: list[nn.Linear]) -> tuple[int, int, int]:
        """A net with the `outputs` one below the other as its head; where it begins, and its head's weight and bias."""
        floor, begin = self.floor, self.floor.size
        rows: list[tuple[int, ...]] = []
        below = 0
        for i, linear in enumerate(hidden):
            inner, width = linear.in_features if i == 0 else padded(linear.in_features), padded(linear.out_features)
            weight, bias = floor.take(inner * width), floor.take(width)
            # the first layer is kept transposed, which is what forward reads and what its gradient comes as
            strides = (1, width) if i == 0 else (inner, 1)
            self.places += [Place(linear.weight, weight, *strides), Place(linear.bias, bias, width, 1)]
            rows.append((inner, width, weight, bias, self.turned.take(inner * width) if i else 0, below))
            below += width
        inner, total = padded(outputs[0].in_features), sum(linear.out_features for linear in outputs)
        weight, bias = floor.take(inner * total), floor.take(total)
        first = 0
        for linear in outputs:
            self.places += [
                Place(linear.weight, weight + first * inner, inner, 1),
                Place(linear.bias, bias + first, linear.out_features, 1),
            ]
            first += linear.out_features
        rows.append((inner, total, weight, bias, 0, below))
        self.tables.append(rows)
        return begin, weight, bias

    def add_vector(self, parameter: torch.Tensor) -> tuple[int, int, int]:
        """A parameter that belongs to no net; its segment, of part 0."""
        start, count = self.floor.take(parameter.numel()), parameter.numel()
        self.places.append(Place(parameter, start, count, 1))
        return start, start + count, 0

    def sizes(self) -> dict[str, Any]:
        """What every layout says of its nets."""
        widths = [row[Layer.WIDTH] for row in self.tables[0][:-1]]
        nets = np.array(self.tables, np.int64)
        return {"nets": nets, "places": self.places, "turned": self.turned.size, "hidden": sum(widths),
                "widest": max(widths)}  # fmt: skip


def _cut(segments: list[tuple[int, int, int]]) -> np.ndarray:
    """Pieces small enough to be shared out."""
    pieces = [(start, min(start + SEGMENT, last), part) for first, last, part in segments
              for start in range(first, last, SEGMENT)]  # fmt: skip
    return np.array(pieces, np.int64)


def _linears(torso: nn.Module) -> list[nn.Linear]:
    return [layer for layer in torso.children() if isinstance(layer, nn.Linear)]


def lay_out(policy: ActorCritic) -> Layout:
    """The flat form of an MLP policy: the actor's net, then the critic's, or one net whose last output is the value."""
    shared = isinstance(policy.trunk, nn.Sequential)
    torsos = [policy.trunk if shared else policy.actor[0]]
    heads = [[policy.head.linear]]
    if policy.critic is not None:
        value = policy.critic[1]
        assert isinstance(value, nn.Linear)
        if shared:
            heads[0].append(value)
        else:
            torsos.append(policy.critic[0])
            heads.append([value])
    plan = _Plan()
    segments: list[tuple[int, int, int]] = []
    actors, critic = policy.head.linear.out_features, policy.critic is not None
    for number, (torso, outputs) in enumerate(zip(torsos, heads, strict=True)):
        begin, weight, bias = plan.add(_linears(torso), outputs)
        if shared:
            inner = padded(outputs[0].in_features)
            total = sum(linear.out_features for linear in outputs)
            segments += [(begin, weight, 2), (weight, weight + actors * inner, 0), (bias, bias + actors, 0)]
            if critic:
                segments += [(weight + actors * inner, weight + total * inner, 1), (bias + actors, bias + total, 1)]
        else:
            segments += [(begin, plan.floor.size, number)]
    log_std = plan.floor.size
    if isinstance(policy.head, Gaussian):
        segments.append(plan.add_vector(policy.head.log_std))
    return Layout(
        **plan.sizes(),
        segments=_cut(segments),
        size=plan.floor.size,
        log_std=log_std,
        value_net=-1 if not critic else 0 if shared else 1,
        value_row=actors if critic and shared else 0,
    )


class Replayed(NamedTuple):
    """The flat form of an agent that learns from a replay memory: what learns, then the targets in the same order."""

    nets: np.ndarray  # the learning ones first
    places: list[Place]  # those of the targets last
    learnt: int  # places that are learnt
    segments: np.ndarray  # part 1: a target follows with every update
    size: int  # floats that are learnt
    whole: int  # floats with the targets
    turned: int
    hidden: int
    widest: int
    log_alpha: int  # offset, -1 for none
    follows: int  # from a parameter of part 1 to its target's


def lay_out_q(network: QNetwork, target: QNetwork) -> Replayed:
    """DQN: the network and its target, which moves before the updates and not with each of them."""
    plan = _Plan()
    begins = []
    for net in (network, target):
        heads = [net.advantage] if net.state_value is None else [net.advantage, net.state_value]
        begins.append(plan.add(_linears(net.torso), heads)[0])
    size, whole = begins[1], plan.floor.size
    learnt = len(plan.places) // 2
    return Replayed(**plan.sizes(), learnt=learnt, segments=_cut([(0, size, 0)]), size=size, whole=whole, log_alpha=-1,
                    follows=0)  # fmt: skip


def lay_out_twins(policy: SquashedPolicy, critics: Critics, target: Critics, log_alpha: nn.Parameter) -> Replayed:
    """SAC: the actor, its critics, the temperature where it is learnt, and the critics' targets."""
    plan = _Plan()
    plan.add(_linears(policy.torso), [policy.head])
    begin = plan.floor.size
    for critic in critics.networks:
        plan.add(*_of_critic(critic))
    end = plan.floor.size
    segments = [(0, begin, 0), (begin, end, 1)]
    if log_alpha.requires_grad:
        segments.append(plan.add_vector(log_alpha))
    size, learnt = plan.floor.size, len(plan.places)
    for critic in target.networks:
        plan.add(*_of_critic(critic))
    return Replayed(**plan.sizes(), learnt=learnt, segments=_cut(segments), size=size, whole=plan.floor.size,
                    log_alpha=end if log_alpha.requires_grad else -1, follows=size - begin)  # fmt: skip


def _of_critic(critic: nn.Module) -> tuple[list[nn.Linear], list[nn.Linear]]:
    *hidden, head = (layer for layer in critic.layers.children() if isinstance(layer, nn.Linear))  # type: ignore[union-attr]
    return hidden, [head]
