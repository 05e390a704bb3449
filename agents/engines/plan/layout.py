"""Where every parameter of an agent is stored in the flat form: one float32 array that kernels read and update.

Layers are padded to full vectors of LANES floats, and each tensor begins on a cache line. A net is hidden layers and a
head. Nets are stored one after the other: first those that learn, last the targets that follow them. A net that reads
pictures begins with convolutions; a recurrent net has layers of minGRU before its head.
"""

import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from stride.agents.engines.plan.numbers import names_of, struct

LANES = 16  # float32 numbers of a vector register (512 bits), and of a cache line (64 bytes)
MAX_SEGMENT = 1024  # floats that one thread reduces and updates at a time
FOLLOWED, DELAYED = 1, 2  # parts of an agent with a replay memory: both have targets; DELAYED skips some updates


@struct
class LayerRow(ctypes.Structure):
    """A layer in the table of nets; the last layer of a net is its head. Offsets and sizes are in floats."""

    inner: int  # inputs
    width: int  # outputs, padded to full vectors; of a head not padded; of minGRU gate and candidate together
    weight: int  # offset in the parameters: first layer [inner, width], others [width, inner]
    bias: int
    turned: int  # offset of the transposed weights [inner, width], in an array of their own
    hidden: int  # floats per sample of earlier activations: in a tile of n samples this layer's begin at n * hidden
    normed: int  # outputs without padding, if a layer norm follows (scale and shift are stored behind the bias); else 0


@struct
class ConvRow(ctypes.Structure):
    """A convolution in the table of those before the first layer: stride 1, no padding.

    A picture is stored row by row, pixel by pixel, the channels of each pixel side by side [height, width, channels].
    After each sample's activations are LANES zeros: samples at a distance of a power of two would compete for the same
    places of the caches.
    """

    height: int  # of the picture it reads, in pixels
    across: int  # width of that picture, in pixels
    channels: int  # floats of a pixel of that picture, padded to full vectors (not for the first convolution)
    side: int  # height and width of its filters, in pixels
    filters: int  # floats of a pixel of its result, padded to full vectors
    weight: int  # offset in the parameters of [side * side * channels, filters]
    bias: int
    turned: int  # offset of the transposed weights [side * side * filters, channels], in reverse order; 0 for the first
    hidden: int  # floats per sample of earlier activations, as in LayerRow
    row: int  # floats from one sample's activations to the next sample's
    normed: int  # channels of a pixel without padding, if a layer norm of each pixel follows; else 0


@struct
class TensorRow(ctypes.Structure):
    """A matrix in the table of torch's tensors: its address, those of its moments, its position in the flat form.

    A parameter of three dimensions has a row for each slice [rows, columns].
    """

    value: int
    first: int  # address of Adam's first moment; 0 for a target, which does not learn
    second: int  # address of Adam's second moment
    rows: int
    columns: int
    offset: int  # of the first number, in floats of the flat form
    row: int  # floats from row to row in the flat form
    column: int  # floats from column to column


@struct
class Segment(ctypes.Structure):
    """Floats [first, last) of the flat parameters, and the part of the agent they belong to.

    `part` of an on-policy agent: 0 actor, 1 critic, 2 trunk, whose gradient norms are reported one by one. Of an agent
    with a replay memory: FOLLOWED, DELAYED, or 0 for no target.
    """

    first: int
    last: int
    part: int


class FlatTensor(NamedTuple):
    """A parameter of torch and its position in the flat form.

    A first layer's weight [out, in] is stored transposed: strides (1, padded(out)).
    """

    parameter: torch.Tensor
    offset: int
    shape: tuple[int, ...]
    """the parameter's shape; its columns may be split into two dimensions, such as channels and pixels"""
    strides: tuple[int, ...]
    """floats from one index to the next in the flat form, for each dimension"""

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the view [*shape] of this parameter's numbers in a flat buffer."""
        return flat.as_strided(self.shape, self.strides, self.offset)

    def table_rows(self, addresses: Iterable[int]) -> Iterator[tuple[int, ...]]:
        """Yield the fields of its TensorRows.

        `addresses`: those of the parameter and of its two moments, all contiguous, or 0 for none.
        """
        slices, rows, columns = (1, 1, 1, *self.shape)[-3:]
        to_slice, to_row, to_column = (0, 0, 1, *self.strides)[-3:]
        for number in range(slices):
            begin = 4 * number * rows * columns  # bytes
            slice_addresses = [address + begin if address else 0 for address in addresses]
            yield (*slice_addresses, rows, columns, self.offset + number * to_slice, to_row, to_column)


class FlatLayout(NamedTuple):
    """The flat form of an agent: the tables that kernels read, and sizes in floats."""

    nets: np.ndarray  # [nets, layers + 1] LayerRow
    convs: np.ndarray  # [nets, convolutions before the first layer] ConvRow
    tensors: list[FlatTensor]  # of all nets, targets last
    learnt: int  # how many of the tensors learn: the first ones
    segments: np.ndarray  # [segments] Segment
    size: int  # floats that learn
    full_size: int  # floats with those of targets
    turned: int  # floats of all transposed weights
    hidden: int  # floats of a sample's activations
    widest: int  # the most floats of one layer's activations
    log_std: int = 0  # offset of a Gaussian policy's log standard deviation
    log_alpha: int = -1  # offset of SAC's log temperature; -1: not learnt
    value_net: int = -1  # the net that estimates values; -1: none
    value_row: int = 0  # which of that net's outputs is the value
    follows: int = 0  # floats from a parameter with a target to that target
    cells: int = 0  # layers of minGRU in every net, the last ones before the head
    delayed: int = 0  # how many of the first tensors learn only in some updates

    def tensor_table(self, state: Mapping[torch.Tensor, Mapping[str, torch.Tensor]]) -> np.ndarray:
        """Return TensorRow [tensors] with current addresses, valid until torch moves a parameter to other memory.

        `state`: the optimizer's, with the moments of each learning parameter.
        """
        rows: list[tuple[int, ...]] = []
        for number, tensor in enumerate(self.tensors):
            addresses = [tensor.parameter.data_ptr(), 0, 0]
            if number < self.learnt:
                moments = state[tensor.parameter]
                addresses[1:] = moments["exp_avg"].data_ptr(), moments["exp_avg_sq"].data_ptr()
            rows += tensor.table_rows(addresses)
        return np.array(rows, np.dtype(TensorRow))

    def flops(self, *nets: int) -> int:
        """Return the floating-point operations of one sample's forward pass through these nets."""
        layers, convs = self.nets[list(nets)], self.convs[list(nets)]
        pixels = (convs["height"] - convs["side"] + 1) * (convs["across"] - convs["side"] + 1)
        conv_products = pixels * convs["side"] ** 2 * convs["channels"] * convs["filters"]
        return 2 * int((layers["inner"] * layers["width"]).sum() + conv_products.sum())


def padded(width: int) -> int:
    """Round up to a multiple of LANES."""
    return -(-width // LANES) * LANES


class AddedNet(NamedTuple):
    """Offsets of a net that was added: its first float, and its head's weight and bias."""

    begin: int
    weight: int
    bias: int


class LayoutBuilder:
    """Adds nets and vectors one by one; `layout` returns the flat form of all of them."""

    def __init__(self) -> None:
        self.size = 0  # floats that were added so far
        self._turned = 0  # floats of transposed weights so far
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
        """Add a layer norm's scale and shift behind the last bias, `width` floats each; return its true width."""
        if norm is None:
            return 0
        for parameter in (norm.weight, norm.bias):
            self.tensors.append(_flat_vector(parameter, self._take(width)))
        return norm.weight.numel()

    def add_convolutions(
        self, convolutions: Iterable[nn.Conv2d], height: int, across: int, norms: Iterable[nn.LayerNorm] = ()
    ) -> None:
        """Add convolutions of pictures of this size, which the first layer of the next added net reads.

        All nets must have convolutions of the same sizes. `norms`: a layer norm behind each convolution, or none.
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
        """Add a layer of minGRU, first gate, then candidate, each padded; return the first fields of its LayerRow."""
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
        """Add a net: hidden layers, layers of minGRU (`cells`), and a head that joins the rows of all `outputs`.

        `norms`: a layer norm behind each hidden layer, or none.
        """
        begin, hidden_floats = self.size, self._hidden
        if cells:
            hidden_floats += 1  # before all activations: the number of the state that precedes a sample
        layers: list[tuple[int, ...]] = []
        for number, (linear, norm) in enumerate(zip_longest(hidden, norms)):
            inner, width = linear.in_features, padded(linear.out_features)
            shape: tuple[int, ...] = (linear.out_features, inner)
            strides: tuple[int, ...] = (1, width)  # transposed, as kernels read it and compute its gradient
            turned = 0
            if number or self._convs:
                inner, strides = padded(inner), (padded(inner), 1)
                if not number:  # torch orders pictures by channel, then pixel; kernels by pixel, then channel
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
        """Add a parameter that belongs to no net; return its segment, of part 0."""
        count = parameter.numel()
        start = self._take(count)
        self.tensors.append(_flat_vector(parameter, start))
        return start, start + count, 0

    def layout(self, segments: list[tuple[int, int, int]], size: int, learnt: int, **offsets: int) -> FlatLayout:
        """Return the flat form of all that was added; the first `size` floats and `learnt` tensors learn.

        `segments`: (first, last, part) as in Segment; `offsets`: optional fields of FlatLayout, such as log_std.
        """
        nets = np.array(self._nets, np.dtype(LayerRow))
        widths = nets["width"][0, :-1].tolist()
        pieces = [
            (start, min(start + MAX_SEGMENT, last), part)
            for first, last, part in segments
            for start in range(first, last, MAX_SEGMENT)
        ]
        return FlatLayout(
            nets, _table(self._convs).reshape(len(nets), -1), self.tensors, learnt,
            np.array(pieces, np.dtype(Segment)), size, self.size, self._turned, int(nets["hidden"][0, -1]),
            max(*widths, *(conv.row for conv in self._convs), 0), **offsets,
        )  # fmt: skip


def _flat_vector(parameter: torch.Tensor | None, offset: int) -> FlatTensor:
    """Return a vector or single number, stored without gaps."""
    assert parameter is not None
    return FlatTensor(parameter, offset, tuple(parameter.shape), (1,) * parameter.dim())


def _table(convs: list[ConvRow]) -> np.ndarray:
    """Return the convolutions as an array of ConvRow."""
    table = np.zeros(len(convs), np.dtype(ConvRow))
    for number, conv in enumerate(convs):
        for name in names_of(ConvRow):
            table[name][number] = getattr(conv, name)
    return table


def linears(torso: nn.Module) -> list[nn.Linear]:
    """Return the linear layers of a torso, in order."""
    return [layer for layer in torso.children() if isinstance(layer, nn.Linear)]


def layer_norms(torso: nn.Module) -> list[nn.LayerNorm]:
    """Return the layer norms of a torso, in order."""
    return [layer for layer in torso.children() if isinstance(layer, nn.LayerNorm)]
