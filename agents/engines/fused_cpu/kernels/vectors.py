"""Arithmetic on vectors of 16 float32 inside kernels: written like numbers, each operation one instruction or a few.

Numba vectorises loops only where they are long; over 16 lanes side by side there is nothing left of a loop. A vector
lies at an address, the i-th of an array 64 bytes times i behind its begin; numbers beside a vector are meant for all
lanes. NaN stays NaN in everything here.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.cpu import CPUContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from stride.agents.engines.fused_cpu.kernels.calls import Emitted, Typing
from stride.agents.engines.plan.layout import LANES
from stride.utils.simd_math import (
    EXP_32,
    INVERSE_LN2_32,
    LN2_32,
    LOG_32,
    SQRT_HALF_BITS_32,
    TANH_END_32,
)

BYTES = 4 * LANES  # of a vector
EXP_ENDS = (-87.0, 88.0)  # beyond them exp would leave the normal numbers
FLOATS, INTS = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(ir.IntType(32), LANES)
_intrinsic: Any = intrinsic  # its results are called with the arguments after the first, which types cannot say
_register: Any = register_model
_lower: Any = lower_builtin
_callable: Any = type_callable


class Vector(types.Type):
    """What Numba calls 16 float32."""

    def __init__(self) -> None:
        super().__init__(name="Vector")


VECTOR = Vector()


@_register(Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: object, kind: types.Type) -> None:
        super().__init__(manager, kind, FLOATS)


def _all(kind: ir.VectorType, x: float) -> ir.Constant:
    return ir.Constant(kind, [x] * LANES)


def _number(x: Any) -> ir.Constant:
    return _all(FLOATS, float(x))


def _pointer(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    offset = builder.mul(arguments[1], ir.Constant(ir.IntType(64), BYTES))
    return builder.inttoptr(builder.add(arguments[0], offset), FLOATS.as_pointer())


@_intrinsic
def load(typing: Typing, address: types.Type, i: types.Type) -> Emitted:
    """The i-th vector there."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        found = builder.load(_pointer(builder, arguments))
        found.align = 4
        return found

    return Signature(VECTOR, (types.int64, types.int64), None), emit


@_intrinsic
def store(typing: Typing, address: types.Type, i: types.Type, value: types.Type) -> Emitted:
    """Becomes the i-th vector there."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        builder.store(arguments[2], _pointer(builder, arguments)).align = 4
        return context.get_dummy_value()

    return Signature(types.void, (types.int64, types.int64, VECTOR), None), emit


@_intrinsic
def splat(typing: Typing, number: types.Type) -> Emitted:
    """This number in all lanes."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        return _spread(context, builder, types.float32, arguments[0])

    return Signature(VECTOR, (types.float32,), None), emit


def _spread(context: CPUContext, builder: ir.IRBuilder, kind: types.Type, value: ir.Value) -> ir.Value:
    """A vector as it is, a number in all lanes."""
    if kind is VECTOR:
        return value
    number, empty = context.cast(builder, value, kind, types.float32), ir.Constant(FLOATS, ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, empty, _all(INTS, 0))


def _define(operation: Callable[..., object], instruction: str) -> None:
    """What this operator does where a vector is on either side, or on the only one."""

    @_callable(operation)
    def typed(context: object) -> Callable[..., types.Type | None]:
        def result(x: types.Type, y: types.Type = VECTOR) -> types.Type | None:
            sound = {x, y} == {VECTOR} or (VECTOR in (x, y) and any(isinstance(z, types.Number) for z in (x, y)))
            return VECTOR if sound else None

        return result

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        both = zip(signature.args, arguments, strict=True)
        return getattr(builder, instruction)(*(_spread(context, builder, *each) for each in both))

    for kinds in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        _lower(operation, *kinds)(emit)


def _negate() -> None:
    @_callable(operator.neg)
    def typed(context: object) -> Callable[..., types.Type | None]:
        def result(x: types.Type) -> types.Type | None:
            return VECTOR if x is VECTOR else None

        return result

    @_lower(operator.neg, Vector)
    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        return builder.fneg(arguments[0])


for _operation, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define(_operation, _instruction)
_negate()


def _function(emit_value: Callable[..., ir.Value], count: int) -> Any:
    """A function of so many vectors, by what it puts into the code."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        return emit_value(builder, *arguments)

    def one(typing: Typing, x: types.Type) -> Emitted:
        return Signature(VECTOR, (VECTOR,), None), emit

    def two(typing: Typing, x: types.Type, y: types.Type) -> Emitted:
        return Signature(VECTOR, (VECTOR, VECTOR), None), emit

    return _intrinsic(one if count == 1 else two)


def _llvm(builder: ir.IRBuilder, name: str, *values: ir.Value) -> ir.Value:
    kind = ir.FunctionType(FLOATS, [FLOATS] * len(values))
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}f32"), values)


def _polynomial(builder: ir.IRBuilder, r: ir.Value, coefficients: Sequence[object]) -> ir.Value:
    """The first coefficient is that of r^0."""
    p = _number(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        p = _llvm(builder, "fma", p, r, _number(coefficient))
    return p


def _within(builder: ir.IRBuilder, x: ir.Value, low: float, high: float) -> ir.Value:
    for end, sign in ((low, "<"), (high, ">")):
        x = builder.select(builder.fcmp_ordered(sign, x, _number(end)), _number(end), x)
    return x


def _exp_parts(builder: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(p, 2^k) with exp(x) = 2^k (1 + p)."""
    turns = _llvm(builder, "rint", builder.fmul(x, _number(INVERSE_LN2_32)))
    r = _llvm(builder, "fma", turns, _number(-LN2_32[1]), _llvm(builder, "fma", turns, _number(-LN2_32[0]), x))
    p = _llvm(builder, "fma", _polynomial(builder, r, EXP_32), builder.fmul(r, r), r)
    exponent = builder.shl(builder.add(builder.fptosi(turns, INTS), _all(INTS, 127)), _all(INTS, 23))
    return p, builder.bitcast(exponent, FLOATS)


def _exp(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    p, scale = _exp_parts(builder, _within(builder, x, *EXP_ENDS))
    return _llvm(builder, "fma", p, scale, scale)


def _tanh(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    inside = _within(builder, x, -float(TANH_END_32), float(TANH_END_32))
    p, scale = _exp_parts(builder, builder.fadd(inside, inside))
    e = _llvm(builder, "fma", p, scale, builder.fsub(scale, _number(1)))  # exp(2 x) - 1
    return builder.fdiv(e, builder.fadd(e, _number(2)))


def _sigmoid(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return builder.fdiv(_number(1), builder.fadd(_number(1), _exp(builder, builder.fneg(x))))


def _log(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    bits = builder.bitcast(x, INTS)
    exponent = builder.ashr(builder.sub(bits, _all(INTS, SQRT_HALF_BITS_32)), _all(INTS, 23))
    mantissa = builder.bitcast(builder.sub(bits, builder.shl(exponent, _all(INTS, 23))), FLOATS)
    f, k = builder.fsub(mantissa, _number(1)), builder.sitofp(exponent, FLOATS)
    z = builder.fmul(f, f)
    tail = _llvm(builder, "fma", k, _number(LN2_32[1]), builder.fmul(_number(-0.5), z))
    tail = _llvm(builder, "fma", builder.fmul(f, z), _polynomial(builder, f, LOG_32), tail)
    found = _llvm(builder, "fma", k, _number(LN2_32[0]), builder.fadd(f, tail))
    return builder.select(builder.fcmp_unordered("uno", x, x), x, found)


def _rsqrt(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return builder.fdiv(_number(1), _llvm(builder, "sqrt", x))


def _sqrt(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return _llvm(builder, "sqrt", x)


def _larger(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered("<", x, y), y, x)


def _at_most(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered("<=", x, y), _number(1), _number(0))


exp = _function(_exp, 1)  # 1 ulp from -87 to 88, at which it stays
tanh = _function(_tanh, 1)  # 2.5 ulp
sigmoid = _function(_sigmoid, 1)
log = _function(_log, 1)  # of a normal number above 0
rsqrt = _function(_rsqrt, 1)  # of a number above 0
sqrt = _function(_sqrt, 1)
larger = _function(_larger, 2)  # of two; the first where it is NaN
at_most = _function(_at_most, 2)  # 1 where x <= y, else 0
