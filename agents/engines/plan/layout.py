"""Where every number of an agent is stored in the flat parameters: widths in full vectors, tensors on cache lines.

A net is hidden layers and a head; nets are stored one after the other, those that learn first, those that follow them
last.
"""

import ctypes
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from stride.agents.engines.plan.numbers import struct

LANES = 16  # float32 of a vector, and of a cache line
PARTS = ("actor", "critic", "trunk")  # of an on-policy agent's parameters: their norms are reported one by one
SEGMENT = 1024  # floats at most of what one thread reduces and steps at a time


@struct
class LayerRow(ctypes.Structure):
    """A layer in the net table; the last layer of a net is its head. Offsets and sizes are in floats."""

    inner: int  # inputs
    width: int  # padded to full vectors; of a head, its outputs
    weight: int  # offset in the parameters: first layer [inner, width], others [width, inner]
    bias: int
    turned: int  # offset of [inner, width] in the transposes
    hidden: int  # floats per sample of the activations below this layer's


@struct
class TensorRow(ctypes.Structure):
    """One of torch's parameters in the tensor table: its address, those of its moments, its place in the flat form."""

    value: int
    first: int  # address of the first moment
    second: int
    rows: int
    columns: int
    offset: int  # floats, in the flat form
    row: int  # floats from row to row there
    column: int


@struct
class Segment(ctypes.Structure):
    """Floats [first, last) of the flat parameters, and which part they belong to.

    Parts of an on-policy agent are PARTS; with a replay memory part 1 has a target that follows.
    """

    first: int
    last: int
    part: int


class FlatTensor(NamedTuple):
    """One of torch's parameters and where it is stored in the flat form."""

    parameter: torch.Tensor
    offset: int
    row: int  # stride of a row
    column: int

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """The part of a flat buffer that belongs to the parameter, in its shape."""
        shape = self.parameter.shape
        strides = (self.row, self.column) if len(shape) == 2 else (self.column,) * len(shape)
        return flat.as_strided(shape, strides, self.offset)


class FlatLayout(NamedTuple):
    """The flat form of an agent."""

    nets: np.ndarray  # [nets, layers + 1] LayerRow
    tensors: list[FlatTensor]  # those of nets that follow last
    learnt: int  # tensors that are learnt
    segments: np.ndarray  # [segments] Segment
    size: int  # floats that are learnt
    full_size: int  # and with those that follow
    turned: int  # floats of the transposes
    hidden: int  # floats of a sample's activations
    widest: int
    log_std: int = 0  # offset
    log_alpha: int = -1  # offset, -1 for none
    value_net: int = -1  # which net estimates values, -1 for none
    value_row: int = 0  # and which of its outputs is the value
    follows: int = 0  # floats from a parameter of part 1 to its target's

    def tensor_table(self, state: Mapping[torch.Tensor, Mapping[str, torch.Tensor]]) -> np.ndarray:
        """TensorRow [tensors]: present addresses, which are valid until a parameter is given other memory."""
        rows = []
        for parameter, *position in self.tensors:
            first, second = state[parameter]["exp_avg"], state[parameter]["exp_avg_sq"]
            rows_columns = parameter.shape if parameter.dim() == 2 else (1, *parameter.shape)
            addresses = parameter.data_ptr(), first.data_ptr(), second.data_ptr()
            rows.append((*addresses, *rows_columns, *position))
        return np.array(rows, np.dtype(TensorRow))

    def flops(self, *nets: int) -> int:
        """Floating point operations of a sample's way forward through these nets."""
        layers = self.nets[list(nets)]
        return 2 * int((layers["inner"] * layers["width"]).sum())


def padded(width: int) -> int:
    """The next full number of vectors."""
    return -(-width // LANES) * LANES


class AddedNet(NamedTuple):
    """Where a net that was added begins, and its head's weight and bias."""

    begin: int
    weight: int
    bias: int


class LayoutBuilder:
    """Adds nets and vectors one by one, each tensor on a cache line."""

    def __init__(self) -> None:
        self.size = 0  # floats so far
        self._turned = 0
        self.tensors: list[FlatTensor] = []
        self._nets: list[list[tuple[int, ...]]] = []  # the fields of a LayerRow for each layer of each net

    def _take(self, count: int) -> int:
        start = self.size
        self.size += padded(count)
        return start

    def add(self, hidden: Iterable[nn.Linear], outputs: list[nn.Linear]) -> AddedNet:
        """A net with the `outputs` one below the other as its head."""
        begin, hidden_floats = self.size, 0
        layers: list[tuple[int, ...]] = []
        for number, linear in enumerate(hidden):
            inner, width = linear.in_features, padded(linear.out_features)
            strides = (1, width)  # the first layer is kept transposed, as forward reads it and as its gradient comes
            turned = 0
            if number:
                inner = padded(inner)
                strides = (inner, 1)
                turned = self._turned
                self._turned += inner * width
            weight, bias = self._take(inner * width), self._take(width)
            self.tensors += [FlatTensor(linear.weight, weight, *strides), FlatTensor(linear.bias, bias, width, 1)]
            layers.append((inner, width, weight, bias, turned, hidden_floats))
            hidden_floats += width
        inner, width = padded(outputs[0].in_features), sum(linear.out_features for linear in outputs)
        weight, bias = self._take(inner * width), self._take(width)
        layers.append((inner, width, weight, bias, 0, hidden_floats))
        self._nets.append(layers)
        first = 0
        for linear in outputs:
            rows = linear.out_features
            self.tensors.append(FlatTensor(linear.weight, weight + first * inner, inner, 1))
            self.tensors.append(FlatTensor(linear.bias, bias + first, rows, 1))
            first += rows
        return AddedNet(begin, weight, bias)

    def add_vector(self, parameter: torch.Tensor) -> tuple[int, int, int]:
        """A parameter that belongs to no net; its segment, of part 0."""
        count = parameter.numel()
        start = self._take(count)
        self.tensors.append(FlatTensor(parameter, start, count, 1))
        return start, start + count, 0

    def layout(self, segments: list[tuple[int, int, int]], size: int, learnt: int, **offsets: int) -> FlatLayout:
        """The flat form of all that was added, of which so many floats and tensors are learnt."""
        nets = np.array(self._nets, np.dtype(LayerRow))
        widths = nets["width"][0, :-1].tolist()
        pieces = [
            (start, min(start + SEGMENT, last), part)
            for first, last, part in segments
            for start in range(first, last, SEGMENT)
        ]
        return FlatLayout(
            nets, self.tensors, learnt, np.array(pieces, np.dtype(Segment)), size, self.size, self._turned,
            sum(widths), max(widths), **offsets,
        )  # fmt: skip


def linears(torso: nn.Module) -> list[nn.Linear]:
    """Its layers with weights, in their order."""
    return [layer for layer in torso.children() if isinstance(layer, nn.Linear)]
