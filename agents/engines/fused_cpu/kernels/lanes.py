"""The innermost kernels, written in LLVM vectors of 16 float32: matrix product, dot product, transpose.

All functions take addresses (int64) and sizes and strides in elements; nothing is checked. A vector is 16 neighbouring
features of one sample. A layer needs three products: its outputs, the slopes at its inputs, the gradient of its
weights. All three are `block` with different strides. ROWS and COLUMNS are the block that fits this processor's
registers.
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

# rows, and vectors of columns, of a block; each is a sum in a register: 16 of AVX-512's 32, or 12 of AVX2's 16 (there a
# vector takes two registers)
ROWS, COLUMNS = (4, 4) if "avx512f" in FEATURES else (6, 1)
# vectors of columns of a block of 4, 2 or 1 rows, for the rows that are left over. With fewer than about 8 sums an
# addition waits for the one before it
VECTORS_OF_4_ROWS, VECTORS_OF_2_ROWS, VECTORS_OF_1_ROW = (4, 4, 4) if "avx512f" in FEATURES else (1, 2, 4)
DOTS_AT_ONCE = 16 if "avx512f" in FEATURES else 4  # samples whose dot products are summed at once, in registers
TANH, RELU, TANH_SLOPE, RELU_SLOPE, ADD, LINEAR = range(6)  # what a block does with its sums, see `block`
TANH_END = 9.1  # tanh of a larger number is 1 in single precision
_intrinsic: Any = intrinsic  # its results are called with the arguments after the first, which types cannot express


def _single(x: float) -> ir.Constant:
    """Return x, rounded to float32, in all lanes."""
    return constant(np.float32(x))


def _int(x: int) -> ir.Constant:
    return ir.Constant(INT64, x)


def _pointer(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, FLOAT.as_pointer())


def _load(builder: ir.IRBuilder, pointer: ir.Value, offset: ir.Value) -> ir.Value:
    value = builder.load(builder.bitcast(builder.gep(pointer, [offset]), FLOATS.as_pointer()))
    value.align = 4  # a vector may begin at any float
    return value


def _store(builder: ir.IRBuilder, value: ir.Value, pointer: ir.Value, offset: ir.Value) -> None:
    builder.store(value, builder.bitcast(builder.gep(pointer, [offset]), FLOATS.as_pointer())).align = 4


def _tanh(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Return tanh x = e / (e + 2) with e = exp(2 x) - 1 = 2^k (exp(r) - 1) + (2^k - 1); error at most 2.5 ulp.

    NaN stays NaN. The polynomial is in h = r / 2, with powers of 2 in its coefficients, which changes no bit.
    """
    # each turn is one instruction, min or max, which returns its second operand where one is NaN
    for end, sign in ((TANH_END, "<"), (-TANH_END, ">")):
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
    """Return the value that a block stores for a sum; `other` is the activation that the slope belongs to."""
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
    """Begin a loop that runs at least once; return its counter, from 0 on, and sums that begin with these vectors."""
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
    """End the loop: `added` are the sums of the next turn; the loop ends when the counter reaches `end`."""
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
    """out[m, n] = finish(begin + sum_k a[m * a_row + k * a_inner] * b[k, n]) for m < rows, n < 16 * vectors, k < inner.

    rows, vectors and kind are constants in the code. Row k + 1 of b begins b_inner floats after row k; in a row, vector
    v + 1 begins b_vector floats after vector v. By kind:
      TANH, RELU, LINEAR       begin = other[n], a bias; finish is the activation function
      ADD                      begin = out[m, n]
      TANH_SLOPE, RELU_SLOPE   begin = 0; the sum is multiplied by the derivative at the activation other[m, n]
    All sums stay in registers while k runs. `inner` must be at least 1.
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
    """Return every second group of `group` lanes of both vectors: the even groups (halves 0) or the odd ones (1)."""
    lanes = []
    for lane in range(LANES):
        piece, offset = divmod(lane, group)
        source = piece & 1
        lanes.append(LANES * source + (piece - source + halves) * group + offset)
    return builder.shuffle_vector(first, second, ir.Constant(INTS, lanes))


def _pairs_added(builder: ir.IRBuilder, vectors: list[ir.Value], group: int) -> list[ir.Value]:
    """Add lanes pairwise until one vector is left, in which each lane is the sum of one of the given vectors.

    `group` is 1 at first; after each round a group of lanes has the partial sums of twice as many vectors.
    """
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
    """out[s] = bias[0] + sum_k rows[s * row + k] * weights[k] for 16 samples s and k < inner.

    `inner` is a multiple of 16, not 0. Each lane sums every 16th k, then the lanes are added, so the result is rounded
    differently from that of a plain loop.
    """
    rows, weights, out, bias = (_pointer(builder, address) for address in (rows, weights, out, bias))
    dots = []
    for first in range(0, LANES, DOTS_AT_ONCE):
        k, sums = _begin_loop(builder, [_single(0.0)] * DOTS_AT_ONCE)
        weight = _load(builder, weights, k)
        added = []
        for s in range(DOTS_AT_ONCE):
            sample = builder.gep(rows, [builder.mul(_int(first + s), row)])
            added.append(call_llvm(builder, "fma", _load(builder, sample, k), weight, sums[s]))
        _end_loop(builder, k, LANES, inner, sums, added)
        dots += _pairs_added(builder, added, 1)
    dots = _pairs_added(builder, dots, DOTS_AT_ONCE)
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
    while group < LANES:  # 1, 2, 4, 8: rows i and i + group exchange groups of so many lanes
        mixed = list(rows)
        for i in range(LANES):
            if not i & group:
                mixed[i] = _interleave(builder, rows[i], rows[i + group], group, 0)
                mixed[i + group] = _interleave(builder, rows[i], rows[i + group], group, 1)
        rows = mixed
        group *= 2
    for i in range(LANES):
        _store(builder, rows[i], target, builder.mul(_int(i), target_row))
