"""A vector type of 16 float32 for kernels, with the operators of numbers; each is one machine instruction or a few.

    y = load(address, i) * 2.0 + bias        # vector i of the array at an address, which begins at address + 64 * i
    store(address, i, larger(y, splat(0.0)))

Numba turns a loop into vector instructions only where it is long, and a loop over 16 lanes is not. A number beside a
vector is the same in all lanes. NaN stays NaN in everything here.
"""

import operator
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.cpu import CPUContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from stride.agents.engines.fused_cpu.kernels.calls import Emitted, Typing
from stride.agents.engines.plan.layout import LANES
from stride.utils.simd_math import EXP_32, INVERSE_LN2_32, LN2_32, LOG_32, SQRT_HALF_BITS_32, TANH_END_32

BYTES = 4 * LANES  # bytes of a vector: 64
EXP_ENDS = (-87.0, 88.0)  # exp of a number beyond these is no normal float32; it is computed at the nearer end
FLOAT = ir.FloatType()
INT32 = ir.IntType(32)
INT64 = ir.IntType(64)
FLOATS = ir.VectorType(FLOAT, LANES)
INTS = ir.VectorType(INT32, LANES)
_intrinsic: Any = intrinsic  # its results are called with the arguments after the first, which types cannot express
_register: Any = register_model
_lower: Any = lower_builtin
_callable: Any = type_callable
Writer = Callable[..., ir.Value | None]  # (builder, *arguments): writes the code of one call


class Vector(types.Type):
    """Numba's type of 16 float32."""

    def __init__(self) -> None:
        super().__init__(name="Vector")


VECTOR = Vector()
ADDRESS = types.int64


@_register(Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: object, kind: types.Type) -> None:
        super().__init__(manager, kind, FLOATS)


def compiled(result: types.Type, *arguments: types.Type) -> Callable[[Writer], Any]:
    """Decorator: turns a function that writes LLVM code into one that kernels call with arguments of these types."""

    def decorate(write: Writer) -> Any:
        def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, values: list[ir.Value]) -> ir.Value:
            value = write(builder, *values)
            return context.get_dummy_value() if value is None else value

        @wraps(write)  # Numba looks up the arguments' names
        def typed(typing: Typing, *kinds: types.Type) -> Emitted:
            return Signature(result, arguments, None), emit

        return _intrinsic(typed)

    return decorate


# --- helpers that write code; the functions for kernels below use them


def constant(x: Any, kind: ir.Type = FLOATS) -> ir.Constant:
    """Return a constant vector with the number x in all lanes."""
    return ir.Constant(kind, [float(x) if kind is FLOATS else x] * LANES)


def call_llvm(builder: ir.IRBuilder, name: str, *values: ir.Value) -> ir.Value:
    """Call an LLVM function of vectors by its name, such as "fma" or "rint"."""
    kind = ir.FunctionType(FLOATS, [FLOATS] * len(values))
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}f32"), values)


def splat_scalar(builder: ir.IRBuilder, scalar: ir.Value) -> ir.Value:
    """Return a vector with this scalar float32 in all lanes."""
    empty = ir.Constant(FLOATS, ir.Undefined)
    first = builder.insert_element(empty, scalar, ir.Constant(INT32, 0))
    return builder.shuffle_vector(first, empty, constant(0, INTS))


def _pointer(builder: ir.IRBuilder, address: ir.Value, i: ir.Value) -> ir.Value:
    """Return the pointer to vector i of the array at `address`."""
    offset = builder.mul(i, ir.Constant(INT64, BYTES))
    return builder.inttoptr(builder.add(address, offset), FLOATS.as_pointer())


@compiled(VECTOR, ADDRESS, types.int64)
def load(builder: ir.IRBuilder, address: ir.Value, i: ir.Value) -> ir.Value:
    """Return vector i of the array at `address`, which need not be aligned."""
    value = builder.load(_pointer(builder, address, i))
    value.align = 4
    return value


@compiled(types.void, ADDRESS, types.int64, VECTOR)
def store(builder: ir.IRBuilder, address: ir.Value, i: ir.Value, value: ir.Value) -> None:
    """Overwrite vector i of the array at `address`."""
    builder.store(value, _pointer(builder, address, i)).align = 4


@compiled(VECTOR, types.float32)
def splat(builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
    """Return a vector with this number in all lanes."""
    return splat_scalar(builder, number)


@compiled(VECTOR, types.int64)
def first_lanes(builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    """Return 1 in the first `count` lanes and 0 in the others; `count` may be below 0 or above 16."""
    empty = ir.Constant(INTS, ir.Undefined)
    first = builder.insert_element(empty, builder.trunc(count, INT32), ir.Constant(INT32, 0))
    limit = builder.shuffle_vector(first, empty, constant(0, INTS))
    lanes = ir.Constant(INTS, [*range(LANES)])
    return builder.select(builder.icmp_signed("<", lanes, limit), constant(1), constant(0))


@compiled(types.float32, VECTOR)
def total(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Return the sum of all lanes. The upper half is added to the lower half until one lane is left."""
    count = LANES
    while count > 1:
        count //= 2
        halves = [ir.Constant(ir.VectorType(INT32, count), [*range(first, first + count)]) for first in (0, count)]
        low, high = (builder.shuffle_vector(x, ir.Constant(x.type, ir.Undefined), half) for half in halves)
        x = builder.fadd(low, high)
    return builder.extract_element(x, ir.Constant(INT32, 0))


# --- operators


def _to_vector(context: CPUContext, builder: ir.IRBuilder, kind: types.Type, value: ir.Value) -> ir.Value:
    """Return a vector as it is, and a number of any type as float32 in all lanes."""
    return value if kind is VECTOR else splat_scalar(builder, context.cast(builder, value, kind, types.float32))


def _vector_if_any(*operands: types.Type) -> types.Type | None:
    """Return the type of an operator's result: Vector where operands are vectors and numbers, else None (no match)."""
    allowed = all(operand is VECTOR or isinstance(operand, types.Number) for operand in operands)
    return VECTOR if allowed and VECTOR in operands else None


def _define(operation: Callable[..., object], instruction: str, *operand_kinds: tuple[Any, ...]) -> None:
    """Define a Python operator for vectors by an instruction of LLVM, for each tuple of operand types."""

    @_callable(operation)
    def typed(context: object) -> Callable[..., types.Type | None]:
        if len(operand_kinds[0]) == 1:
            return lambda x: _vector_if_any(x)
        return lambda x, y: _vector_if_any(x, y)

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, values: list[ir.Value]) -> ir.Value:
        operands = zip(signature.args, values, strict=True)
        return getattr(builder, instruction)(*(_to_vector(context, builder, *operand) for operand in operands))

    for kinds in operand_kinds:
        _lower(operation, *kinds)(emit)


_pairs = ((Vector, Vector), (Vector, types.Number), (types.Number, Vector))
_define(operator.add, "fadd", *_pairs)
_define(operator.sub, "fsub", *_pairs)
_define(operator.mul, "fmul", *_pairs)
_define(operator.truediv, "fdiv", *_pairs)
_define(operator.neg, "fneg", (Vector,))

# --- functions


def _polynomial(builder: ir.IRBuilder, r: ir.Value, coefficients: Sequence[object]) -> ir.Value:
    """Return the polynomial of r; the first coefficient is that of r^0."""
    p = constant(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        p = call_llvm(builder, "fma", p, r, constant(coefficient))
    return p


def _clip(builder: ir.IRBuilder, x: ir.Value, low: float, high: float) -> ir.Value:
    """Limit x to [low, high]; NaN stays, as no comparison with it holds."""
    for end, sign in ((low, "<"), (high, ">")):
        x = builder.select(builder.fcmp_ordered(sign, x, constant(end)), constant(end), x)
    return x


def _exp_parts(builder: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return (p, 2^k) with exp(x) = 2^k (1 + p).

    x = k ln 2 + r with |r| <= ln 2 / 2; p = exp(r) - 1 is a polynomial, and 2^k is made of its exponent bits.
    """
    k = call_llvm(builder, "rint", builder.fmul(x, constant(INVERSE_LN2_32)))
    r = call_llvm(builder, "fma", k, constant(-LN2_32[0]), x)
    r = call_llvm(builder, "fma", k, constant(-LN2_32[1]), r)
    p = call_llvm(builder, "fma", _polynomial(builder, r, EXP_32), builder.fmul(r, r), r)
    exponent = builder.shl(builder.add(builder.fptosi(k, INTS), constant(127, INTS)), constant(23, INTS))
    return p, builder.bitcast(exponent, FLOATS)


def _exp(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    p, scale = _exp_parts(builder, _clip(builder, x, *EXP_ENDS))
    return call_llvm(builder, "fma", p, scale, scale)


exp = compiled(VECTOR, VECTOR)(_exp)  # error at most 1 ulp; x is limited to EXP_ENDS


@compiled(VECTOR, VECTOR)
def tanh(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Return tanh x with an error of at most 2.5 ulp, from e = exp(2 x) - 1 as e / (e + 2)."""
    clipped = _clip(builder, x, -float(TANH_END_32), float(TANH_END_32))
    p, scale = _exp_parts(builder, builder.fadd(clipped, clipped))
    e = call_llvm(builder, "fma", p, scale, builder.fsub(scale, constant(1)))  # exp(2 x) - 1
    return builder.fdiv(e, builder.fadd(e, constant(2)))


@compiled(VECTOR, VECTOR)
def sigmoid(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Return 1 / (1 + exp(-x))."""
    return builder.fdiv(constant(1), builder.fadd(constant(1), _exp(builder, builder.fneg(x))))


@compiled(VECTOR, VECTOR)
def log(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Return the natural logarithm; x must be a normal number above 0.

    x = 2^k (1 + f) with 1 + f from sqrt(1/2) to sqrt(2), so log x = k ln 2 + log(1 + f), the latter a polynomial.
    """
    bits = builder.bitcast(x, INTS)
    exponent = builder.ashr(builder.sub(bits, constant(SQRT_HALF_BITS_32, INTS)), constant(23, INTS))
    mantissa = builder.bitcast(builder.sub(bits, builder.shl(exponent, constant(23, INTS))), FLOATS)
    f = builder.fsub(mantissa, constant(1))
    k = builder.sitofp(exponent, FLOATS)
    z = builder.fmul(f, f)
    tail = call_llvm(builder, "fma", k, constant(LN2_32[1]), builder.fmul(constant(-0.5), z))
    tail = call_llvm(builder, "fma", builder.fmul(f, z), _polynomial(builder, f, LOG_32), tail)
    result = call_llvm(builder, "fma", k, constant(LN2_32[0]), builder.fadd(f, tail))
    return builder.select(builder.fcmp_unordered("uno", x, x), x, result)


@compiled(VECTOR, VECTOR)
def sqrt(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Return the square root."""
    return call_llvm(builder, "sqrt", x)


@compiled(VECTOR, VECTOR)
def rsqrt(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Return 1 / sqrt(x) of numbers above 0."""
    return builder.fdiv(constant(1), call_llvm(builder, "sqrt", x))


@compiled(VECTOR, VECTOR, VECTOR)
def larger(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """Return the larger of two numbers; x where one of them is NaN."""
    return builder.select(builder.fcmp_ordered("<", x, y), y, x)


@compiled(VECTOR, VECTOR, VECTOR)
def at_most(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """Return 1 where x <= y, else 0."""
    return builder.select(builder.fcmp_ordered("<=", x, y), constant(1), constant(0))
