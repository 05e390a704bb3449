"""Where every number of an agent lies in the flat parameters: widths in whole vectors, tensors on cache lines.

A net is hidden layers and a head; nets lie one after the other, those that learn first, those that follow them last.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from stride.agents.engines.plan.numbers import Count, auto

LANES = 16  # float32 of a vector, and of a cache line
PARTS = ("actor", "critic", "trunk")  # of an on-policy agent's parameters: their norms are told apart
SEGMENT = 1024  # floats at most of what one thread reduces and steps at a time


class Layer(Count):
    """A row of the net table, int64; the last layer of a net is its head. Offsets and sizes are in floats."""

    INNER = auto()  # inputs
    WIDTH = auto()  # padded to whole vectors; of a head, its outputs
    WEIGHT = auto()  # offset in the parameters: first layer [inner, width], others [width, inner]
    BIAS = auto()
    TURNED = auto()  # offset of [inner, width] in the transposes
    HIDDEN = auto()  # floats per sample of the activations below this layer's


class Entry(Count):
    """A row of the tensor table, int64: one of torch's parameters, its two moments, and where they lie in ours."""

    VALUE = auto()  # address
    FIRST = auto()  # address of the first moment
    SECOND = auto()
    ROWS = auto()
    COLUMNS = auto()
    OFFSET = auto()  # floats, in ours
    ROW = auto()  # floats from row to row in ours
    COLUMN = auto()


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
    """The flat form of an agent."""

    nets: np.ndarray  # [nets, layers + 1, len(Layer)]
    places: list[Place]  # those of what follows last
    learnt: int  # places that are learnt
    segments: np.ndarray  # [segments, 3]: first, last, part; of a replayed agent part 1 has a target that follows
    size: int  # floats that are learnt
    whole: int  # and with those that follow
    turned: int
    hidden: int  # floats of a sample's activations
    widest: int
    log_std: int = 0  # offset
    log_alpha: int = -1  # offset, -1 for none
    value_net: int = -1  # which net values, -1 for none
    value_row: int = 0  # and which of its outputs says it
    follows: int = 0  # floats from a parameter of part 1 to its target's

    def tensors(self, state: Mapping[torch.Tensor, Mapping[str, torch.Tensor]]) -> np.ndarray:
        """The tensor table: addresses now, which hold until a parameter is given other memory."""
        rows = np.zeros((len(self.places), len(Entry)), np.int64)
        for row, place in zip(rows, self.places, strict=True):
            parameter = place.parameter
            matrix = parameter if parameter.dim() == 2 else parameter[None]
            first, second = state[parameter]["exp_avg"], state[parameter]["exp_avg_sq"]
            row[:] = (
                parameter.data_ptr(), first.data_ptr(), second.data_ptr(), *matrix.shape, place.offset, place.row,
                place.column,
            )  # fmt: skip
        return rows

    def flops(self, *nets: int) -> int:
        """Floating point operations of a sample's way forward through these nets."""
        return 2 * sum(int(row[Layer.INNER] * row[Layer.WIDTH]) for net in nets for row in self.nets[net])


def padded(width: int) -> int:
    """The next whole number of vectors."""
    return -(-width // LANES) * LANES


class Head(NamedTuple):
    """Where a net that was added begins, and its head's weight and bias."""

    begin: int
    weight: int
    bias: int


class _Floor:
    """Hands out places in a flat buffer, each on a cache line."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, count: int) -> int:
        start = self.size
        self.size += padded(count)
        return start


class Builder:
    """A flat form in the making."""

    def __init__(self) -> None:
        self._floor, self._turned = _Floor(), _Floor()
        self.places: list[Place] = []
        self._tables: list[list[tuple[int, ...]]] = []

    @property
    def size(self) -> int:
        """Floats so far."""
        return self._floor.size

    def add(self, hidden: Iterable[nn.Linear], outputs: list[nn.Linear]) -> Head:
        """A net with the `outputs` one below the other as its head."""
        floor, begin = self._floor, self._floor.size
        rows: list[tuple[int, ...]] = []
        below = 0
        for i, linear in enumerate(hidden):
            inner, width = linear.in_features if i == 0 else padded(linear.in_features), padded(linear.out_features)
            weight, bias = floor.take(inner * width), floor.take(width)
            # the first layer is kept transposed, which is what forward reads and what its gradient comes as
            strides = (1, width) if i == 0 else (inner, 1)
            self.places += [Place(linear.weight, weight, *strides), Place(linear.bias, bias, width, 1)]
            rows.append((inner, width, weight, bias, self._turned.take(inner * width) if i else 0, below))
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
        self._tables.append(rows)
        return Head(begin, weight, bias)

    def add_vector(self, parameter: torch.Tensor) -> tuple[int, int, int]:
        """A parameter that belongs to no net; its segment, of part 0."""
        start, count = self._floor.take(parameter.numel()), parameter.numel()
        self.places.append(Place(parameter, start, count, 1))
        return start, start + count, 0

    def layout(self, segments: list[tuple[int, int, int]], size: int, learnt: int, **more: int) -> Layout:
        """What was added, of which so many floats and places are learnt."""
        widths = [row[Layer.WIDTH] for row in self._tables[0][:-1]]
        pieces = [(start, min(start + SEGMENT, last), part) for first, last, part in segments
                  for start in range(first, last, SEGMENT)]  # fmt: skip
        return Layout(
            np.array(self._tables, np.int64), self.places, learnt, np.array(pieces, np.int64), size, self.size,
            self._turned.size, sum(widths), max(widths), **more,
        )  # fmt: skip


def linears(torso: nn.Module) -> list[nn.Linear]:
    """Its layers with weights, in their order."""
    return [layer for layer in torso.children() if isinstance(layer, nn.Linear)]
