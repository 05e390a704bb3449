"""Where every number of a policy lies in the flat parameters: widths in whole vectors, tensors on cache lines."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from agents.engines.fused_cpu.frame import Layer, Tensor
from agents.engines.fused_cpu.lanes import LANES
from agents.networks.actor_critic import ActorCritic
from agents.networks.heads import Gaussian

PARTS = ("actor", "critic", "trunk")
SEGMENT = 1024  # floats at most of what one thread reduces and steps at a time


class Place(NamedTuple):
    """One of torch's parameters and where it lies in ours."""

    parameter: torch.Tensor
    offset: int
    row: int  # stride of a row
    column: int


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
    floor, turned = _Floor(), _Floor()
    places: list[Place] = []
    segments: list[tuple[int, int, int]] = []
    tables = []
    for number, (torso, outputs) in enumerate(zip(torsos, heads, strict=True)):
        part = 2 if shared else number
        begin = floor.size
        rows, hidden = [], 0
        for i, linear in enumerate(layer for layer in torso.children() if isinstance(layer, nn.Linear)):
            inner, width = linear.in_features if i == 0 else padded(linear.in_features), padded(linear.out_features)
            weight, bias = floor.take(inner * width), floor.take(width)
            # the first layer is kept transposed, which is what forward reads and what its gradient comes as
            strides = (1, width) if i == 0 else (inner, 1)
            places += [Place(linear.weight, weight, *strides), Place(linear.bias, bias, width, 1)]
            rows.append((inner, width, weight, bias, turned.take(inner * width) if i else 0, hidden))
            hidden += width
        inner, total = padded(outputs[0].in_features), sum(linear.out_features for linear in outputs)
        head_begin = floor.size
        weight, bias = floor.take(inner * total), floor.take(total)
        first = 0
        for linear in outputs:
            places += [
                Place(linear.weight, weight + first * inner, inner, 1),
                Place(linear.bias, bias + first, linear.out_features, 1),
            ]
            first += linear.out_features
        rows.append((inner, total, weight, bias, 0, hidden))
        tables.append(rows)
        if shared:
            segments += [(begin, head_begin, 2)]
            actors = policy.head.linear.out_features
            segments += [(weight, weight + actors * inner, 0), (bias, bias + actors, 0)]
            if policy.critic is not None:
                segments += [(weight + actors * inner, weight + total * inner, 1), (bias + actors, bias + total, 1)]
        else:
            segments += [(begin, floor.size, part)]
    log_std = floor.size
    if isinstance(policy.head, Gaussian):
        count = policy.head.log_std.numel()
        log_std = floor.take(count)
        places.append(Place(policy.head.log_std, log_std, count, 1))
        segments.append((log_std, log_std + count, 0))
    cut = [
        (start, min(start + SEGMENT, last), part)
        for first_, last, part in segments
        for start in range(first_, last, SEGMENT)
    ]
    widths = [row[Layer.WIDTH] for row in tables[0][:-1]]
    critic = policy.critic is not None
    return Layout(
        nets=np.array(tables, np.int64),
        places=places,
        segments=np.array(cut, np.int64),
        size=floor.size,
        turned=turned.size,
        hidden=sum(widths),
        widest=max(widths),
        log_std=log_std,
        value_net=-1 if not critic else 0 if shared else 1,
        value_row=policy.head.linear.out_features if critic and shared else 0,
    )
