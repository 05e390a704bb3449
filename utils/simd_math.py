"""sin, cos, exp, log and tanh for Numba kernels, as polynomials without branches, of which LLVM makes vector code.

Worst errors measured (tests/utils/test_simd_math.py): sin, cos 0.8 ulp for |x| <= 50,000; exp, log 0.9; tanh 2.3. Names
that end in 32 are single precision: sin, cos 1e-7 for |x| <= 8,000; exp, log 1.0 ulp; tanh 2.3. -0.0 becomes 0.0.
The caller's fastmath flags "contract", "nsz" and "arcp" do not change results; the flag "reassoc" would break them.
Coefficients of sin, cos, log: Sun Microsystems' fdlibm, 1993; single precision: Moshier's Cephes.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from stride.utils.kernel_cache import njit

Float = float | np.float64
Single = np.float32
_intrinsic: Any = intrinsic  # as Any: an intrinsic is called without its first argument, which mypy cannot know

TWO_OVER_PI = 2.0 / math.pi
# pi / 2 as a sum of three numbers of 33, 33 and 53 bits, so that its product with a small integer is exact
HALF_PI = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
SIN = (
    -1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
    2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10,
)  # fmt: skip
COS = (
    4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
    -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11,
)  # fmt: skip
NEAR_ZERO_SIN = (  # for |x| <= 0.21, fitted at the Chebyshev points; relative errors 2**-54.8 (sin), 2**-62.8 (cos)
    -0.16666666666666594, 0.008333333332796476, -0.000198412637541691, 2.753523185100073e-06,
)  # fmt: skip
NEAR_ZERO_COS = (0.0416666666666666, -0.0013888888888441472, 2.4801582228634603e-05, -2.7538912057806273e-07)
LN2 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)  # 33 + 53 bits
EXP = (  # (exp(r) - 1 - r) / r**2, fitted at the Chebyshev points of |r| <= ln(2) / 2: relative error of exp(r) 2**-61
    0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326084, 0.0013888888888883711,
    0.0001984126987500228, 2.480158732567746e-05, 2.755725517000089e-06, 2.755727347871858e-07,
    2.5105312729622103e-08, 2.09147553258932e-09,
)  # fmt: skip
LOG = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
EXP_LOW, EXP_HIGH, TANH_END = -746.0, 710.0, 22.0  # beyond them exp is 0 or inf, tanh is 1

F = np.float32
TWO_OVER_PI_32 = F(2.0 / math.pi)
HALF_PI_32 = (F(1.5703125), F(4.837512969970703125e-4), F(7.54978995489188216e-8))
SIN_32 = (F(-1.6666654611e-1), F(8.3321608736e-3), F(-1.9515295891e-4))
COS_32 = (F(4.166664568298827e-2), F(-1.388731625493765e-3), F(2.443315711809948e-5))
LN2_32 = (F(0.693359375), F(-2.12194440e-4))
INVERSE_LN2_32 = F(1.0 / math.log(2.0))
EXP_32 = (F(0.5), F(0.1666666716), F(0.041666463), F(0.0083333105), F(0.0013933731), F(0.00019891079))
LOG_32 = (
    F(3.3333331174e-1), F(-2.4999993993e-1), F(2.0000714765e-1), F(-1.6668057665e-1), F(1.4249322787e-1),
    F(-1.2420140846e-1), F(1.1676998740e-1), F(-1.1514610310e-1), F(7.0376836292e-2),
)  # fmt: skip
SQRT_HALF_BITS_32 = 0x3F3504F3
EXP_LOW_32, EXP_HIGH_32, TANH_END_32 = F(-104.0), F(89.0), F(9.1)


def _llvm(name: str, n: int) -> Any:
    """Return the code of an LLVM intrinsic with `n` floating-point arguments; Numba's may call libm instead."""

    def emit(context: object, builder: ir.IRBuilder, signature: object, arguments: Sequence[ir.Value]) -> Any:
        kind = arguments[0].type
        function = builder.module.declare_intrinsic(name, [kind], ir.FunctionType(kind, [kind] * n))
        return builder.call(function, arguments)

    return emit


@_intrinsic
def nearest_integer(typing_context: object, x: types.Float) -> Any:
    """Return the nearest integer (half to even) as a float.

    Unlike adding and subtracting 1.5 * 2**52, this stays correct with any fastmath flag.
    """
    return Signature(x, (x,), None), _llvm("llvm.rint", 1)


@_intrinsic
def round_down(typing_context: object, x: types.Float) -> Any:
    """Return the largest integer <= x as a float."""
    return Signature(x, (x,), None), _llvm("llvm.floor", 1)


@_intrinsic
def mul_add(typing_context: object, a: types.Float, b: types.Float, c: types.Float) -> Any:
    """Return a * b + c, rounded once if the processor can (every x86 since 2013), with any flags of the caller."""
    return Signature(a, (a, b, c), None), _llvm("llvm.fmuladd", 3)


@_intrinsic
def polynomial(typing_context: object, x: types.Float, coefficients: types.UniTuple) -> Any:
    """Return coefficients[0] + x * (coefficients[1] + x * ...); each step is a mul_add."""

    def emit(context: object, builder: ir.IRBuilder, signature: object, arguments: Sequence[ir.Value]) -> Any:
        x_value, packed = arguments
        multiply_add = _llvm("llvm.fmuladd", 3)
        result = builder.extract_value(packed, coefficients.count - 1)
        for index in reversed(range(coefficients.count - 1)):
            coefficient = builder.extract_value(packed, index)
            result = multiply_add(context, builder, signature, (x_value, result, coefficient))
        return result

    return Signature(x, (x, coefficients), None), emit


@_intrinsic
def float_of_bits(typing_context: object, bits: Any) -> Any:
    """Return the float64 with the bits of an int64, or the float32 with the bits of an int32."""
    kind, result = (types.float64, ir.DoubleType()) if bits.bitwidth == 64 else (types.float32, ir.FloatType())
    return Signature(kind, (bits,), None), lambda _, builder, __, arguments: builder.bitcast(arguments[0], result)


@_intrinsic
def bits_of_float(typing_context: object, x: types.Float) -> Any:
    """Return the bits of a float64 as int64, or of a float32 as int32."""
    kind = types.Integer.from_bitwidth(x.bitwidth, True)
    bits = ir.IntType(x.bitwidth)
    return Signature(kind, (x,), None), lambda _, builder, __, arguments: builder.bitcast(arguments[0], bits)


@njit(inline="always")
def sincos_near_zero(x: Float) -> tuple[Float, Float]:
    """Return sin(x) and cos(x) for |x| <= 0.21 (12 degrees), in a third of the time; the error at 0.42 is 1e-13."""
    z = x * x
    zz = z * z
    s, c = NEAR_ZERO_SIN, NEAR_ZERO_COS
    sine = mul_add(zz, mul_add(z, s[3], s[2]), mul_add(z, s[1], s[0]))  # in pairs: fewer steps wait for each other
    cosine = mul_add(zz, mul_add(z, c[3], c[2]), mul_add(z, c[1], c[0]))
    return mul_add(z * x, sine, x), mul_add(z, mul_add(z, cosine, -0.5), 1.0)


@njit(inline="always")
def _turned(quadrant: np.int32, s: Float, c: Float) -> tuple[Float, Float]:
    """Return sin and cos of an angle x from s = sin(r), c = cos(r), where r = x - quadrant * pi / 2."""
    odd = (quadrant & np.int32(1)) != 0
    sine = c if odd else s
    cosine = s if odd else c
    sine = -sine if (quadrant & np.int32(2)) != 0 else sine
    cosine = -cosine if (np.int32(quadrant + np.int32(1)) & np.int32(2)) != 0 else cosine
    return sine, cosine


@njit(inline="always")
def sincos(x: Float) -> tuple[Float, Float]:
    """Return sin(x) and cos(x); NaN for NaN and infinities."""
    turns = nearest_integer(x * TWO_OVER_PI)
    quadrant = np.int32(turns)
    a, b = mul_add(-turns, HALF_PI[0], x), turns * HALF_PI[1]  # both exact for |turns| < 2**20
    rest = a - b
    tail = mul_add(-turns, HALF_PI[2], (a - rest) - b)
    near = rest + tail
    tail = (rest - near) + tail
    z = near * near
    v = z * near
    s = near - (mul_add(z, mul_add(0.5, tail, -(v * polynomial(z, SIN[1:]))), -tail) - v * SIN[0])
    half = 0.5 * z
    w = 1.0 - half
    c = w + (((1.0 - w) - half) + mul_add(z * z, polynomial(z, COS), -(near * tail)))
    return _turned(quadrant, s, c)


@njit(inline="always")
def sin(x: Float) -> Float:
    """sin(x)."""
    return sincos(x)[0]


@njit(inline="always")
def cos(x: Float) -> Float:
    """cos(x)."""
    return sincos(x)[1]


@njit(inline="always")
def _power_of_two(k: int | np.integer) -> Float:
    """2**k for -1022 <= k <= 1023."""
    return float_of_bits((np.int64(k) + np.int64(1023)) << np.int64(52))


@njit(inline="always")
def _exp_parts(x: Float) -> tuple[Float, np.int32]:
    """Return (p, k) with exp(x) = 2**k * (1 + p) and |p| < 0.42."""
    turns = nearest_integer(x * (1.0 / 0.6931471805599453))
    a, b = mul_add(-turns, LN2[0], x), turns * LN2[1]
    r = a - b
    error = (a - r) - b
    return r + mul_add(r * r, polynomial(r, EXP), error), np.int32(turns)


@njit(inline="always")
def exp(x: Float) -> Float:
    """Return e**x; the result may be inf or subnormal."""
    inside = EXP_LOW if x < EXP_LOW else x
    inside = EXP_HIGH if inside > EXP_HIGH else inside
    p, k = _exp_parts(inside)
    half = np.int32(k >> np.int32(1))  # in two steps: 2**k itself may be out of range where exp(x) is not
    return ((1.0 + p) * _power_of_two(half)) * _power_of_two(np.int32(k - half))


@njit(inline="always")
def log(x: Float) -> Float:
    """Return the natural logarithm: -inf at 0, NaN for negative x."""
    small = x < 2.2250738585072014e-308
    bits = bits_of_float(x * 18014398509481984.0 if small else x)
    exponent = np.int32((bits - np.int64(SQRT_HALF_BITS)) >> np.int64(52))
    f = float_of_bits(bits - (np.int64(exponent) << np.int64(52))) - 1.0  # of a mantissa in [sqrt(1/2), sqrt(2))
    k = np.float64(exponent) - (54.0 if small else 0.0)
    s = f / (2.0 + f)
    z = s * s
    r = z * polynomial(z, LOG)
    half = 0.5 * f * f
    result = k * LN2[0] - ((half - mul_add(s, half + r, k * LN2[1])) - f)
    result = x if x == math.inf else result
    result = -math.inf if x == 0.0 else result
    return result if x >= 0.0 else math.nan


@njit(inline="always")
def tanh(x: Float) -> Float:
    """Return the hyperbolic tangent: tanh(-x) = -tanh(x) exactly, and exactly +-1 for |x| >= 22."""
    size = abs(x)
    p, k = _exp_parts(2.0 * (TANH_END if size > TANH_END else size))
    scale = _power_of_two(k)
    t = mul_add(scale, p, scale - 1.0)  # exp(2 x) - 1
    result = t / (t + 2.0)
    return -result if x < 0.0 else result


@njit(inline="always")
def sincos32(x: Single) -> tuple[Single, Single]:
    """Return sin(x) and cos(x) in single precision."""
    turns = nearest_integer(x * TWO_OVER_PI_32)
    quadrant = np.int32(turns)
    r = mul_add(-turns, HALF_PI_32[2], mul_add(-turns, HALF_PI_32[1], mul_add(-turns, HALF_PI_32[0], x)))
    z = r * r
    s = mul_add(r * z, polynomial(z, SIN_32), r)
    c = mul_add(z * z, polynomial(z, COS_32), mul_add(F(-0.5), z, F(1.0)))
    return _turned(quadrant, s, c)


@njit(inline="always")
def _power_of_two_32(k: int | np.integer) -> Single:
    return float_of_bits(np.int32(np.int32(k + np.int32(127)) << np.int32(23)))


@njit(inline="always")
def _exp_parts_32(x: Single) -> tuple[Single, np.int32]:
    turns = nearest_integer(x * INVERSE_LN2_32)
    r = mul_add(-turns, LN2_32[1], mul_add(-turns, LN2_32[0], x))
    return mul_add(r * r, polynomial(r, EXP_32), r), np.int32(turns)


@njit(inline="always")
def exp32(x: Single) -> Single:
    """Return e**x in single precision."""
    inside = EXP_LOW_32 if x < EXP_LOW_32 else x
    inside = EXP_HIGH_32 if inside > EXP_HIGH_32 else inside
    p, k = _exp_parts_32(inside)
    half = np.int32(k >> np.int32(1))
    return ((F(1.0) + p) * _power_of_two_32(half)) * _power_of_two_32(np.int32(k - half))


@njit(inline="always")
def log32(x: Single) -> Single:
    """Return the natural logarithm in single precision: -inf at 0, NaN for negative x."""
    small = x < F(1.17549435e-38)
    bits = bits_of_float(x * F(8388608.0) if small else x)
    exponent = np.int32(np.int32(bits - np.int32(SQRT_HALF_BITS_32)) >> np.int32(23))
    f = float_of_bits(np.int32(bits - np.int32(exponent << np.int32(23)))) - F(1.0)
    k = F(exponent) - (F(23.0) if small else F(0.0))
    z = f * f
    result = mul_add(k, LN2_32[0], f + mul_add(f * z, polynomial(f, LOG_32), mul_add(k, LN2_32[1], F(-0.5) * z)))
    result = x if x == F(math.inf) else result
    result = F(-math.inf) if x == F(0.0) else result
    return result if x >= F(0.0) else F(math.nan)


@njit(inline="always")
def tanh32(x: Single) -> Single:
    """Return the hyperbolic tangent in single precision: exactly odd, exactly +-1 for |x| >= 9.1."""
    size = abs(x)
    p, k = _exp_parts_32(F(2.0) * (TANH_END_32 if size > TANH_END_32 else size))
    scale = _power_of_two_32(k)
    t = mul_add(scale, p, scale - F(1.0))
    result = t / (t + F(2.0))
    return -result if x < F(0.0) else result
