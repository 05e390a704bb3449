"""The microkernels, written as LLVM vectors of 16 float32: a register block of a matrix product, dots, a transpose.

Everything here takes addresses (int64) and counts of elements; no sizes are checked. A vector is 16 neighbouring
features of one sample, so the three products of a layer (forward, for its input, for its weights) are one block with
other strides. Which block fits the registers of this processor is said by ROWS and COLUMNS.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.core.cpu import CPUContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from stride.agents.engines.fused_cpu.kernels.calls import Emitted, Typing
from stride.agents.engines.fused_cpu.kernels.vectors import (
    FLOAT,
    FLOATS,
    INT64,
    INTS,
    call_llvm,
    compiled,
    constant,
    splat_scalar,
)
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_folder import FEATURES

ROWS, COLUMNS = (4, 4) if "avx512f" in FEATURES else (6, 1)  # accumulators: 16 registers of 32, or 12 of 16
# vectors of columns for 4, 2 and 1 rows: fewer than 8 registers of sums wait for themselves
OF_FOUR, OF_TWO, OF_ONE = (4, 4, 4) if "avx512f" in FEATURES else (1, 2, 4)
GROUP = 16 if "avx512f" in FEATURES else 4  # samples whose dots are summed side by side, in registers
TANH, RELU, TANH_SLOPE, RELU_SLOPE, ADD, LINEAR = range(6)  # what a block does with its sums
TANH_END = 9.1  # beyond it tanh is 1 in single precision
_intrinsic: Any = intrinsic  # its results are called with the arguments after the first, which types cannot express


def _single(x: float) -> ir.Constant:
    return constant(np.float32(x))


def _int(x: int) -> ir.Constant:
    return ir.Constant(INT64, x)


def _pointer(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, FLOAT.as_pointer())


def _load(builder: ir.IRBuilder, pointer: ir.Value, offset: ir.Value) -> ir.Value:
    value = builder.load(builder.bitcast(builder.gep(pointer, [offset]), FLOATS.as_pointer()))
    value.align = 4
    return value


def _store(builder: ir.IRBuilder, value: ir.Value, pointer: ir.Value, offset: ir.Value) -> None:
    builder.store(value, builder.bitcast(builder.gep(pointer, [offset]), FLOATS.as_pointer())).align = 4


def _tanh(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """e / (e + 2) with e = exp(2 x) - 1 = 2^k (exp(r) - 1) + (2^k - 1); 2.5 ulp. NaN stays NaN.

    h is r / 2, which takes powers of 2 from the coefficients and changes no bit.
    """
    for end, sign in ((TANH_END, "<"), (-TANH_END, ">")):  # each one instruction, of which NaN is the second operand
        x = builder.select(builder.fcmp_ordered(sign, _single(end), x), _single(end), x)
    k = call_llvm(builder, "rint", builder.fmul(x, _single(2 * 1.44269504)))
    exponent = builder.shl(builder.fptosi(k, INTS), constant(23, INTS))
    scale = builder.bitcast(builder.add(exponent, constant(0x3F800000, INTS)), FLOATS)
    h = call_llvm(builder, "fma", k, _single(-0.693359375 / 2), x)
    h = call_llvm(builder, "fma", k, _single(2.12194440e-4 / 2), h)
    p = _single(1.9875691500e-4 * 128)
    power = 128
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5):
        power //= 2
        p = call_llvm(builder, "fma", p, h, _single(coefficient * power))
    p = call_llvm(builder, "fma", p, builder.fmul(h, h), builder.fadd(h, h))
    e = call_llvm(builder, "fma", p, scale, builder.fsub(scale, _single(1.0)))
    return builder.fdiv(e, builder.fadd(e, _single(2.0)))


def _finish(builder: ir.IRBuilder, kind: int, total: ir.Value, other: ir.Value | None) -> ir.Value:
    """The value that a block stores for a sum; `other` is the activation whose slope is asked for."""
    zero = _single(0.0)
    if kind == TANH:
        return _tanh(builder, total)
    if kind == RELU:  # not maxnum, which would hide a NaN
        return builder.select(builder.fcmp_ordered("<", total, zero), zero, total)
    if kind == TANH_SLOPE:
        return call_llvm(builder, "fma", builder.fneg(builder.fmul(total, other)), other, total)
    if kind == RELU_SLOPE:
        return builder.select(builder.fcmp_ordered(">", other, zero), total, zero)
    return total


def _begin_loop(builder: ir.IRBuilder, begin: list[ir.Value]) -> tuple[ir.Value, list[ir.Value]]:
    """Begin a loop that is entered untested: its counter from 0 on, and sums that begin with these vectors."""
    entry = builder.block
    loop = builder.append_basic_block("inner")
    builder.branch(loop)
    builder.position_at_end(loop)
    counter = builder.phi(INT64)
    counter.add_incoming(_int(0), entry)
    sums = []
    for value in begin:  # LLVM wants all phis at a block's start
        phi = builder.phi(FLOATS)
        phi.add_incoming(value, entry)
        sums.append(phi)
    return counter, sums


def _end_loop(
    builder: ir.IRBuilder, counter: ir.Value, step: int, end: ir.Value, sums: list[ir.Value], added: list[ir.Value]
) -> None:
    """End the loop: the sums of the next turn are `added`; go on behind it once the counter has reached `end`."""
    loop = builder.block
    done = builder.append_basic_block("done")
    following = builder.add(counter, _int(step))
    counter.add_incoming(following, loop)
    for phi, value in zip(sums, added, strict=True):
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", following, end), loop, done)
    builder.position_at_end(done)


@_intrinsic(prefer_literal=True)
def block(
    typing: Typing, rows: types.Literal, vectors: types.Literal, kind: types.Literal, a: types.Type, a_row: types.Type,
    a_inner: types.Type, b: types.Type, b_inner: types.Type, b_vector: types.Type, out: types.Type,
    out_row: types.Type, other: types.Type, inner: types.Type,
) -> Emitted:  # fmt: skip
    """out[m, n] = finish(begin + sum_k a[m * a_row + k * a_inner] * b[k, n]), m < rows, n < 16 * vectors.

    Row k of b is b_inner floats behind row k - 1, and its vector v is b_vector floats behind vector v - 1.
    `begin` is the bias `other[n]` (TANH, RELU, LINEAR), the value stored there (ADD), or 0 (slopes, whose activation is
    other[m, n]). All sums stay in registers while k runs. `inner` is at least 1: the loop is entered untested.
    """
    row_count = rows.literal_value
    vector_count = vectors.literal_value
    finish = kind.literal_value

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, values: list[ir.Value]) -> ir.Value:
        a_, a_row_, a_inner_, b_, b_inner_, b_vector_, out_, out_row_, other_, inner_ = values[3:]
        a_, b_, out_, other_ = (_pointer(builder, address) for address in (a_, b_, out_, other_))
        cells = [(m, v) for m in range(row_count) for v in range(vector_count)]
        offsets = [_int(LANES * v) for v in range(vector_count)]
        b_offsets = [builder.mul(_int(v), b_vector_) for v in range(vector_count)]
        out_rows = [builder.gep(out_, [builder.mul(_int(m), out_row_)]) for m in range(row_count)]
        a_rows = [builder.gep(a_, [builder.mul(_int(m), a_row_)]) for m in range(row_count)]
        begin = dict.fromkeys(cells, _single(0.0))
        if finish in (TANH, RELU, LINEAR):
            biases = [_load(builder, other_, offset) for offset in offsets]
            begin = {(m, v): biases[v] for m, v in cells}
        elif finish == ADD:
            begin = {(m, v): _load(builder, out_rows[m], offsets[v]) for m, v in cells}
        k, phis = _begin_loop(builder, list(begin.values()))
        sums = dict(zip(cells, phis, strict=True))
        b_row = builder.gep(b_, [builder.mul(k, b_inner_)])
        a_offset = builder.mul(k, a_inner_)
        columns = [_load(builder, b_row, offset) for offset in b_offsets]
        added = {}
        for m in range(row_count):
            scalar = splat_scalar(builder, builder.load(builder.gep(a_rows[m], [a_offset])))
            for v in range(vector_count):
                added[m, v] = call_llvm(builder, "fma", scalar, columns[v], sums[m, v])
        _end_loop(builder, k, 1, inner_, phis, list(added.values()))
        for m, v in cells:
            activation = None
            if finish in (TANH_SLOPE, RELU_SLOPE):
                activation_row = builder.gep(other_, [builder.mul(_int(m), out_row_)])
                activation = _load(builder, activation_row, offsets[v])
            _store(builder, _finish(builder, finish, added[m, v], activation), out_rows[m], offsets[v])
        return context.get_dummy_value()

    return Signature(types.void, (rows, vectors, kind, *[types.int64] * 10), None), emit


def _interleave(builder: ir.IRBuilder, first: ir.Value, second: ir.Value, group: int, halves: int) -> ir.Value:
    """Every other `group` lanes of both, the even ones (halves 0) or the odd ones (1)."""
    lanes = []
    for lane in range(LANES):
        piece, offset = divmod(lane, group)
        source = piece & 1
        lanes.append(LANES * source + (piece - source + halves) * group + offset)
    return builder.shuffle_vector(first, second, ir.Constant(INTS, lanes))


def _pairs_added(builder: ir.IRBuilder, vectors: list[ir.Value], group: int) -> list[ir.Value]:
    """A tree that adds lanes, from groups of `group` of them on, and leaves one sample in each; down to one vector."""
    while len(vectors) > 1:
        halves = []
        for x, y in zip(vectors[::2], vectors[1::2], strict=True):
            halves.append(builder.fadd(_interleave(builder, x, y, group, 0), _interleave(builder, x, y, group, 1)))
        vectors = halves
        group *= 2
    return vectors


@compiled(types.void, *[types.int64] * 6)
def dot16(
    builder: ir.IRBuilder, rows: ir.Value, row: ir.Value, weights: ir.Value, inner: ir.Value, out: ir.Value,
    bias: ir.Value,
) -> None:  # fmt: skip
    """out[s] = bias[0] + sum_k rows[s * row + k] * weights[k] for 16 samples s; `inner` is a multiple of 16, not 0.

    A lane sums every 16th k, then the lanes are added: rounding is not that of a plain loop.
    """
    rows, weights, out, bias = (_pointer(builder, address) for address in (rows, weights, out, bias))
    dots = []
    for first in range(0, LANES, GROUP):
        k, sums = _begin_loop(builder, [_single(0.0)] * GROUP)
        weight = _load(builder, weights, k)
        added = []
        for s in range(GROUP):
            sample = builder.gep(rows, [builder.mul(_int(first + s), row)])
            added.append(call_llvm(builder, "fma", _load(builder, sample, k), weight, sums[s]))
        _end_loop(builder, k, LANES, inner, sums, added)
        dots += _pairs_added(builder, added, 1)
    dots = _pairs_added(builder, dots, GROUP)
    _store(builder, builder.fadd(dots[0], splat_scalar(builder, builder.load(bias))), out, _int(0))


@compiled(types.void, *[types.int64] * 4)
def transpose16(
    builder: ir.IRBuilder, source: ir.Value, source_row: ir.Value, target: ir.Value, target_row: ir.Value
) -> None:
    """target[j * target_row + i] = source[i * source_row + j] for i, j < 16."""
    source = _pointer(builder, source)
    target = _pointer(builder, target)
    rows = [_load(builder, source, builder.mul(_int(i), source_row)) for i in range(LANES)]
    group = 1
    while group < LANES:  # 1, 2, 4, 8: rows that far apart exchange pieces of as many lanes
        mixed = list(rows)
        for i in range(LANES):
            if not i & group:
                mixed[i] = _interleave(builder, rows[i], rows[i + group], group, 0)
                mixed[i + group] = _interleave(builder, rows[i], rows[i + group], group, 1)
        rows = mixed
        group *= 2
    for i in range(LANES):
        _store(builder, rows[i], target, builder.mul(_int(i), target_row))
