"""Where every number of an agent is stored in the flat parameters: widths in full vectors, tensors on cache lines.

A net is hidden layers and a head; nets are stored one after the other, those that learn first, those that follow them
last. Before the first layer of a net that reads pictures are convolutions; the last layers of one that remembers are
those of minGRU.
"""

import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from stride.agents.engines.plan.numbers import names_of, struct

LANES = 16  # float32 of a vector, and of a cache line
PARTS = ("actor", "critic", "trunk")  # of an on-policy agent's parameters: their norms are reported one by one
SEGMENT = 1024  # floats at most of what one thread reduces and steps at a time
FOLLOWED, DELAYED = 1, 2  # parts with a replay memory: those whose targets follow; the latter only some updates move


@struct
class LayerRow(ctypes.Structure):
    """A layer in the net table; the last layer of a net is its head. Offsets and sizes are in floats."""

    inner: int  # inputs
    width: int  # padded to full vectors; of a head, its outputs; of minGRU, gate and candidate together
    weight: int  # offset in the parameters: first layer [inner, width], others [width, inner]
    bias: int
    turned: int  # offset of [inner, width] in the transposes
    hidden: int  # floats per sample of the activations below this layer's
    normed: int  # outputs that its layer norm counts, whose scale and shift are stored behind the bias; 0 without one


@struct
class ConvRow(ctypes.Structure):
    """A convolution in the table of those before the first layer: steps of one pixel, nothing around the picture.

    A picture is stored pixel by pixel, row by row, the channels of each pixel side by side. Behind the activations of a
    sample is a vector of zeros: strides of a power of two would share few places of the caches.
    """

    height: int  # pixels of the picture that it reads
    across: int
    channels: int  # floats of a pixel there: padded to full vectors but for the first
    side: int  # pixels of a side of its filters
    filters: int  # floats of a pixel that it makes, padded to full vectors
    weight: int  # offset in the parameters of [side * side * channels, filters]
    bias: int
    turned: int  # offset in the transposes of [side * side * filters, channels], back to front; none of the first
    hidden: int  # floats per sample of the activations below its own
    row: int  # floats from a sample's activations to the next one's
    normed: int  # as in LayerRow: channels of a pixel that the layer norm of each pixel counts


@struct
class TensorRow(ctypes.Structure):
    """A matrix of torch's in the tensor table: its address, those of its moments, its place in the flat form.

    A parameter of more dimensions has one for each of its slices.
    """

    value: int
    first: int  # address of the first moment; 0 where it is not learnt, but follows
    second: int
    rows: int
    columns: int
    offset: int  # floats, in the flat form
    row: int  # floats from row to row there
    column: int


@struct
class Segment(ctypes.Structure):
    """Floats [first, last) of the flat parameters, and which part they belong to.

    Parts of an on-policy agent are PARTS; with a replay memory FOLLOWED, DELAYED, or 0 for what has no target.
    """

    first: int
    last: int
    part: int


class FlatTensor(NamedTuple):
    """One of torch's parameters and where it is stored in the flat form."""

    parameter: torch.Tensor
    offset: int
    shape: tuple[int, ...]
    """of the parameter; its columns may be split in two dimensions, such as pixels and channels"""
    strides: tuple[int, ...]
    """floats from one index to the next in the flat form, for each dimension"""

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """The part of a flat buffer that belongs to the parameter, [*shape]."""
        return flat.as_strided(self.shape, self.strides, self.offset)

    def table_rows(self, addresses: Iterable[int]) -> Iterator[tuple[int, ...]]:
        """Its TensorRows; `addresses` are those of the parameter and of its moments, contiguous ones, or 0."""
        slices, rows, columns = (1, 1, 1, *self.shape)[-3:]
        to_slice, to_row, to_column = (0, 0, 1, *self.strides)[-3:]
        for number in range(slices):
            begin = 4 * number * rows * columns  # bytes
            here = [address + begin if address else 0 for address in addresses]
            yield (*here, rows, columns, self.offset + number * to_slice, to_row, to_column)


class FlatLayout(NamedTuple):
    """The flat form of an agent."""

    nets: np.ndarray  # [nets, layers + 1] LayerRow
    convs: np.ndarray  # [nets, convolutions before the first layer] ConvRow
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
    cells: int = 0  # layers of minGRU, the last ones of every net
    delayed: int = 0  # tensors, the first ones, that only some updates move

    def tensor_table(self, state: Mapping[torch.Tensor, Mapping[str, torch.Tensor]]) -> np.ndarray:
        """TensorRow [tensors]: present addresses, which are valid until a parameter is given other memory."""
        rows: list[tuple[int, ...]] = []
        for number, tensor in enumerate(self.tensors):
            addresses = [tensor.parameter.data_ptr(), 0, 0]
            if number < self.learnt:
                moments = state[tensor.parameter]
                addresses[1:] = moments["exp_avg"].data_ptr(), moments["exp_avg_sq"].data_ptr()
            rows += tensor.table_rows(addresses)
        return np.array(rows, np.dtype(TensorRow))

    def flops(self, *nets: int) -> int:
        """Floating point operations of a sample's way forward through these nets."""
        layers, convs = self.nets[list(nets)], self.convs[list(nets)]
        pixels = (convs["height"] - convs["side"] + 1) * (convs["across"] - convs["side"] + 1)
        of_convs = pixels * convs["side"] ** 2 * convs["channels"] * convs["filters"]
        return 2 * int((layers["inner"] * layers["width"]).sum() + of_convs.sum())


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
        self._convs: list[ConvRow] = []  # of all nets
        self._hidden = 0  # floats of a sample's activations below the first layer
        self._planes = 0  # filters of the last convolution, without padding

    def _take(self, count: int) -> int:
        start = self.size
        self.size += padded(count)
        return start

    def _take_turned(self, count: int) -> int:
        start = self._turned
        self._turned += count
        return start

    def _add_norm(self, norm: nn.LayerNorm | None, width: int) -> int:
        """Its scale and shift, right behind the bias of so many floats that was added last; how many are real."""
        if norm is None:
            return 0
        for parameter in (norm.weight, norm.bias):
            self.tensors.append(_flat_vector(parameter, self._take(width)))
        return norm.weight.numel()

    def add_convolutions(
        self, convolutions: Iterable[nn.Conv2d], height: int, across: int, norms: Iterable[nn.LayerNorm] = ()
    ) -> None:
        """What the first layer of the net that is added next reads: convolutions of pictures of this size.

        Each net has as many, of the same sizes.
        `norms`: the layer norm behind each of them, or none at all; likewise in `add`.
        """
        self._hidden = 0
        for number, (conv, norm) in enumerate(zip_longest(convolutions, norms)):
            side, first = conv.kernel_size[0], number == 0
            channels = conv.in_channels if first else padded(conv.in_channels)
            filters = padded(conv.out_channels)
            count = side * side * channels * filters
            weight, bias = self._take(count), self._take(filters)
            shape = conv.out_channels, conv.in_channels, side * side
            self.tensors.append(FlatTensor(conv.weight, weight, shape, (1, filters, channels * filters)))
            self.tensors.append(_flat_vector(conv.bias, bias))
            normed = self._add_norm(norm, filters)
            row = ConvRow(
                height=height, across=across, channels=channels, side=side, filters=filters, weight=weight, bias=bias,
                turned=0 if first else self._take_turned(count), hidden=self._hidden,
                normed=normed,
            )  # fmt: skip
            height, across = height - side + 1, across - side + 1
            row.row = height * across * filters + LANES
            self._hidden += row.row
            self._planes = conv.out_channels
            self._convs.append(row)

    def _add_cell(self, linear: nn.Linear, is_first: bool) -> tuple[int, ...]:
        """A layer of minGRU, gate above candidate, each in full vectors: the first fields of its LayerRow."""
        inner, numbers = linear.in_features, linear.out_features // 2
        width, turned = padded(numbers), 0
        strides = (width, 1, 2 * width)
        if not is_first:
            inner = padded(inner)
            strides, turned = (width * inner, inner, 1), self._take_turned(inner * 2 * width)
        weight, bias = self._take(inner * 2 * width), self._take(2 * width)
        self.tensors.append(FlatTensor(linear.weight, weight, (2, numbers, linear.in_features), strides))
        self.tensors.append(FlatTensor(linear.bias, bias, (2, numbers), (width, 1)))
        return inner, 2 * width, weight, bias, turned

    def add(
        self,
        hidden: Iterable[nn.Linear],
        outputs: list[nn.Linear],
        norms: Iterable[nn.LayerNorm] = (),
        cells: Sequence[nn.Linear] = (),
    ) -> AddedNet:
        """A net with the `outputs` one below the other as its head; `cells`: layers of minGRU below that."""
        begin, hidden_floats = self.size, self._hidden
        if cells:
            hidden_floats += 1  # in front of all activations: which state precedes a sample
        layers: list[tuple[int, ...]] = []
        for number, (linear, norm) in enumerate(zip_longest(hidden, norms)):
            inner, width = linear.in_features, padded(linear.out_features)
            shape: tuple[int, ...] = (linear.out_features, inner)
            strides: tuple[int, ...] = (1, width)  # kept transposed, as forward reads it and as its gradient comes
            turned = 0
            if number or self._convs:
                inner, strides = padded(inner), (padded(inner), 1)
                if not number:  # torch has pixels of a channel side by side, kernels channels of a pixel
                    inner = self._convs[-1].row
                    shape = linear.out_features, self._planes, linear.in_features // self._planes
                    strides = inner, 1, self._convs[-1].filters
                turned = self._take_turned(inner * width)
            weight, bias = self._take(inner * width), self._take(width)
            self.tensors += [FlatTensor(linear.weight, weight, shape, strides), _flat_vector(linear.bias, bias)]
            normed = self._add_norm(norm, width)
            layers.append((inner, width, weight, bias, turned, hidden_floats, normed))
            hidden_floats += width
        for cell in cells:
            fields = self._add_cell(cell, is_first=not layers)
            layers.append((*fields, hidden_floats, 0))
            hidden_floats += 2 * fields[1]  # gate and candidate, then the state and the output
        inner, width = padded(outputs[0].in_features), sum(linear.out_features for linear in outputs)
        weight, bias = self._take(inner * width), self._take(width)
        layers.append((inner, width, weight, bias, 0, hidden_floats, 0))
        self._nets.append(layers)
        first = 0
        for linear in outputs:
            shape = linear.out_features, linear.in_features
            self.tensors.append(FlatTensor(linear.weight, weight + first * inner, shape, (inner, 1)))
            self.tensors.append(_flat_vector(linear.bias, bias + first))
            first += linear.out_features
        return AddedNet(begin, weight, bias)

    def add_vector(self, parameter: torch.Tensor) -> tuple[int, int, int]:
        """A parameter that belongs to no net; its segment, of part 0."""
        count = parameter.numel()
        start = self._take(count)
        self.tensors.append(_flat_vector(parameter, start))
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
            nets, _table(self._convs).reshape(len(nets), -1), self.tensors, learnt,
            np.array(pieces, np.dtype(Segment)), size, self.size, self._turned, int(nets["hidden"][0, -1]),
            max(*widths, *(conv.row for conv in self._convs), 0), **offsets,
        )  # fmt: skip


def _flat_vector(parameter: torch.Tensor | None, offset: int) -> FlatTensor:
    """A vector, or a single number, as it is."""
    assert parameter is not None
    return FlatTensor(parameter, offset, tuple(parameter.shape), (1,) * parameter.dim())


def _table(convs: list[ConvRow]) -> np.ndarray:
    """[convolutions] ConvRow."""
    table = np.zeros(len(convs), np.dtype(ConvRow))
    for number, conv in enumerate(convs):
        for name in names_of(ConvRow):
            table[name][number] = getattr(conv, name)
    return table


def linears(torso: nn.Module) -> list[nn.Linear]:
    """Its layers with weights, in their order."""
    return [layer for layer in torso.children() if isinstance(layer, nn.Linear)]


def layer_norms(torso: nn.Module) -> list[nn.LayerNorm]:
    """Those of its layers, in their order."""
    return [layer for layer in torso.children() if isinstance(layer, nn.LayerNorm)]
