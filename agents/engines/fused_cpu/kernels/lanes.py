"""The microkernels, written as LLVM vectors of 16 float32: a register block of a matrix product, dots, a transpose.

Everything here takes addresses (int64) and counts of elements; no sizes are checked. A vector is 16 neighbouring
features of one sample, so the three products of a layer (forward, for its input, for its weights) are one block with
other strides. Which block fits the registers of this processor is said by ROWS and COLUMNS.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.cpu import CPUContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from stride.agents.engines.fused_cpu.kernels.calls import Emitted, Typing
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_folder import FEATURES

ROWS, COLUMNS = (4, 4) if "avx512f" in FEATURES else (6, 1)  # accumulators: 16 registers of 32, or 12 of 16
TANH, RELU, TANH_SLOPE, RELU_SLOPE, ADD = range(5)  # what a block does with its sums
TANH_END = 9.1  # beyond it tanh is 1 in single precision

F32, I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
VECTOR, INTS = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)
_intrinsic: Any = intrinsic  # its results are called with the arguments after the first, which types cannot say


def _constant(x: float) -> ir.Constant:
    return ir.Constant(VECTOR, [float(np.float32(x))] * LANES)


def _int(x: int) -> ir.Constant:
    return ir.Constant(I64, x)


def _floats(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, F32.as_pointer())


def _load(builder: ir.IRBuilder, pointer: ir.Value, offset: ir.Value) -> ir.Value:
    value = builder.load(builder.bitcast(builder.gep(pointer, [offset]), VECTOR.as_pointer()))
    value.align = 4
    return value


def _store(builder: ir.IRBuilder, value: ir.Value, pointer: ir.Value, offset: ir.Value) -> None:
    done = builder.store(value, builder.bitcast(builder.gep(pointer, [offset]), VECTOR.as_pointer()))
    done.align = 4


def _splat(builder: ir.IRBuilder, scalar: ir.Value) -> ir.Value:
    empty = ir.Constant(VECTOR, ir.Undefined)
    first = builder.insert_element(empty, scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(INTS, [0] * LANES))


def _vector_function(builder: ir.IRBuilder, name: str, arguments: int) -> Callable[..., ir.Value]:
    kind = ir.FunctionType(VECTOR, [VECTOR] * arguments)
    function = cgutils.get_or_insert_function(builder.module, kind, f"{name}.v{LANES}f32")
    return lambda *values: builder.call(function, values)


def _tanh(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """e / (e + 2) with e = exp(2 x) - 1 = 2^k (exp(r) - 1) + (2^k - 1); 2.5 ulp."""
    fma = _vector_function(builder, "llvm.fma", 3)
    largest, least = _vector_function(builder, "llvm.maxnum", 2), _vector_function(builder, "llvm.minnum", 2)
    whole = _vector_function(builder, "llvm.rint", 1)
    bounded = largest(least(x, _constant(TANH_END)), _constant(-TANH_END))
    bounded = builder.select(builder.fcmp_unordered("uno", x, x), x, bounded)  # maxnum would hide a NaN
    twice = builder.fadd(bounded, bounded)
    k = whole(builder.fmul(twice, _constant(1.44269504)))
    exponent = builder.shl(builder.fptosi(k, INTS), ir.Constant(INTS, [23] * LANES))
    scale = builder.bitcast(builder.add(exponent, ir.Constant(INTS, [0x3F800000] * LANES)), VECTOR)
    r = fma(k, _constant(2.12194440e-4), fma(k, _constant(-0.693359375), twice))
    p = _constant(1.9875691500e-4)
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5):
        p = fma(p, r, _constant(coefficient))
    p = fma(p, builder.fmul(r, r), r)
    e = fma(p, scale, builder.fsub(scale, _constant(1.0)))
    return builder.fdiv(e, builder.fadd(e, _constant(2.0)))


def _finish(builder: ir.IRBuilder, kind: int, total: ir.Value, other: ir.Value | None) -> ir.Value:
    """What a block stores of its sums; `other` is the activation whose slope is asked for."""
    if kind == TANH:
        return _tanh(builder, total)
    if kind == RELU:  # not maxnum, which would hide a NaN
        return builder.select(builder.fcmp_ordered("<", total, _constant(0.0)), _constant(0.0), total)
    if kind == TANH_SLOPE:
        fma = _vector_function(builder, "llvm.fma", 3)
        return fma(builder.fneg(builder.fmul(total, other)), other, total)
    if kind == RELU_SLOPE:
        return builder.select(builder.fcmp_ordered(">", other, _constant(0.0)), total, _constant(0.0))
    return total


def _begin(
    builder: ir.IRBuilder, kind: int, cells: list[tuple[int, int]], out_rows: list[ir.Value], other: ir.Value
) -> dict[tuple[int, int], ir.Value]:
    """What the sums of a block's cells start with; `other` is the bias where there is one."""
    if kind in (TANH, RELU):
        biases = [_load(builder, other, _int(LANES * v)) for v in dict.fromkeys(v for _, v in cells)]
        return {(m, v): biases[v] for m, v in cells}
    if kind == ADD:
        return {(m, v): _load(builder, out_rows[m], _int(LANES * v)) for m, v in cells}
    return dict.fromkeys(cells, _constant(0.0))


@_intrinsic(prefer_literal=True)
def block(
    typing: Typing, rows: types.Literal, vectors: types.Literal, kind: types.Literal, a: types.Type, a_row: types.Type,
    a_inner: types.Type, b: types.Type, b_inner: types.Type, out: types.Type, out_row: types.Type, other: types.Type,
    inner: types.Type,
) -> Emitted:  # fmt: skip
    """out[m, n] = finish(begin + sum_k a[m * a_row + k * a_inner] * b[k * b_inner + n]), m < rows, n < 16 * vectors.

    `begin` is the bias `other[n]` (TANH, RELU), what is there (ADD), or 0 (slopes, whose activation is other[m, n]).
    All sums stay in registers while k runs. `inner` is at least 1: the loop is entered untested.
    """
    m_count, n_count, what = rows.literal_value, vectors.literal_value, kind.literal_value

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        a_, a_row_, a_inner_, b_, b_inner_, out_, out_row_, other_, inner_ = arguments[3:]
        a_, b_, out_, other_ = (_floats(builder, x) for x in (a_, b_, out_, other_))
        fma = _vector_function(builder, "llvm.fma", 3)
        cells = [(m, v) for m in range(m_count) for v in range(n_count)]
        out_rows = [builder.gep(out_, [builder.mul(_int(m), out_row_)]) for m in range(m_count)]
        a_rows = [builder.gep(a_, [builder.mul(_int(m), a_row_)]) for m in range(m_count)]
        begin = _begin(builder, what, cells, out_rows, other_)
        entry, loop, done = builder.block, builder.append_basic_block("inner"), builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(I64)
        k.add_incoming(_int(0), entry)
        sums = {cell: builder.phi(VECTOR) for cell in cells}  # phis first: LLVM wants them at a block's start
        for cell in cells:
            sums[cell].add_incoming(begin[cell], entry)
        b_row, a_offset = builder.gep(b_, [builder.mul(k, b_inner_)]), builder.mul(k, a_inner_)
        columns = [_load(builder, b_row, _int(LANES * v)) for v in range(n_count)]
        added = {}
        for m in range(m_count):
            scalar = _splat(builder, builder.load(builder.gep(a_rows[m], [a_offset])))
            for v in range(n_count):
                added[m, v] = fma(scalar, columns[v], sums[m, v])
        following = builder.add(k, _int(1))
        k.add_incoming(following, loop)
        for cell in cells:
            sums[cell].add_incoming(added[cell], loop)
        builder.cbranch(builder.icmp_signed("<", following, inner_), loop, done)
        builder.position_at_end(done)
        for m, v in cells:
            sloped = what in (TANH_SLOPE, RELU_SLOPE)
            activation = None
            if sloped:
                activation = _load(builder, builder.gep(other_, [builder.mul(_int(m), out_row_)]), _int(LANES * v))
            _store(builder, _finish(builder, what, added[m, v], activation), out_rows[m], _int(LANES * v))
        return context.get_dummy_value()

    return Signature(types.void, (rows, vectors, kind, *[types.int64] * 9), None), emit


def _interleave(builder: ir.IRBuilder, first: ir.Value, second: ir.Value, group: int, halves: int) -> ir.Value:
    """Every other `group` lanes of both, the even ones (halves 0) or the odd ones (1)."""
    picked = []
    for lane in range(LANES):
        piece, within = divmod(lane, group)
        picked.append(LANES * (piece & 1) + (piece - (piece & 1)) * group + within + halves * group)
    return builder.shuffle_vector(first, second, ir.Constant(INTS, picked))


@_intrinsic
def dot16(
    typing: Typing, rows: types.Type, row: types.Type, weights: types.Type, inner: types.Type, out: types.Type,
    bias: types.Type,
) -> Emitted:  # fmt: skip
    """out[s] = bias[0] + sum_k rows[s * row + k] * weights[k] for 16 samples s; `inner` is a multiple of 16, not 0.

    A lane sums every 16th k, then the lanes are added: rounding is not that of a plain loop.
    """

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        rows_, row_, weights_, inner_, out_, bias_ = arguments
        rows_, weights_, out_, bias_ = (_floats(builder, x) for x in (rows_, weights_, out_, bias_))
        fma = _vector_function(builder, "llvm.fma", 3)
        entry, loop, done = builder.block, builder.append_basic_block("inner"), builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(I64)
        k.add_incoming(_int(0), entry)
        sums = [builder.phi(VECTOR) for _ in range(LANES)]
        weight = _load(builder, weights_, k)
        added = []
        for s in range(LANES):
            sample = builder.gep(rows_, [builder.mul(_int(s), row_)])
            added.append(fma(_load(builder, sample, k), weight, sums[s]))
        following = builder.add(k, _int(LANES))
        k.add_incoming(following, loop)
        for phi, value in zip(sums, added, strict=True):
            phi.add_incoming(_constant(0.0), entry)
            phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following, inner_), loop, done)
        builder.position_at_end(done)
        group = 1
        while len(added) > 1:  # a tree that adds lanes and leaves one sample in each
            pairs = zip(added[::2], added[1::2], strict=True)
            added = [
                builder.fadd(_interleave(builder, x, y, group, 0), _interleave(builder, x, y, group, 1))
                for x, y in pairs
            ]
            group *= 2
        _store(builder, builder.fadd(added[0], _splat(builder, builder.load(bias_))), out_, _int(0))
        return context.get_dummy_value()

    return Signature(types.void, (types.int64,) * 6, None), emit


@_intrinsic
def transpose16(
    typing: Typing, source: types.Type, source_row: types.Type, target: types.Type, target_row: types.Type
) -> Emitted:
    """target[j * target_row + i] = source[i * source_row + j] for i, j < 16."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        source_, source_row_, target_, target_row_ = arguments
        source_, target_ = _floats(builder, source_), _floats(builder, target_)
        rows = [_load(builder, source_, builder.mul(_int(i), source_row_)) for i in range(LANES)]
        group = 1
        while group < LANES:  # 1, 2, 4, 8: rows that far apart exchange pieces of as many lanes
            mixed = list(rows)
            for i in range(LANES):
                if not i & group:
                    mixed[i] = _interleave(builder, rows[i], rows[i + group], group, 0)
                    mixed[i + group] = _interleave(builder, rows[i], rows[i + group], group, 1)
            rows, group = mixed, 2 * group
        for i in range(LANES):
            _store(builder, rows[i], target_, builder.mul(_int(i), target_row_))
        return context.get_dummy_value()

    return Signature(types.void, (types.int64,) * 4, None), emit
