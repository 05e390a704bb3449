// Arithmetic for GPU code: the random numbers of utils/counter_rng.py (Philox) and the functions of utils/simd_math.py,
// bit for bit. Only fma() is fused: the compiler must not fuse others (OPTIONS in utils/cuda_kernels.py).
#include "utils/counter_rng.py"
#include "utils/simd_math.py"
#define PI 0x1.921fb54442d18p+1
#define INFINITE __longlong_as_double(0x7ff0000000000000)
#define NOT_A_NUMBER __longlong_as_double(0x7ff8000000000000)
#define DEVICE __device__ __forceinline__
// DYNAMIC_SHARED(name): the block's shared memory, as many floats as the launch asks for, aligned for float4
#ifndef DYNAMIC_SHARED
extern __shared__ float4 dynamic_shared[];
#define DYNAMIC_SHARED(NAME) float* NAME = &dynamic_shared[0].x
#endif

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct Words {
  u32 a, b, c, d;
};

// Philox4x32-10: four random words (32 bits each) from a counter c and a key k.
DEVICE Words philox(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1) {
#pragma unroll
  for (int round = 0; round < 10; round++) {
    u64 product_0 = (u64)c0 * (u32)MULTIPLIER_0, product_1 = (u64)c2 * (u32)MULTIPLIER_1;
    c0 = (u32)(product_1 >> 32) ^ c1 ^ k0;
    c2 = (u32)(product_0 >> 32) ^ c3 ^ k1;
    c1 = (u32)product_1;
    c3 = (u32)product_0;
    k0 += (u32)WEYL_0;
    k1 += (u32)WEYL_1;
  }
  return {c0, c1, c2, c3};
}

// The upper 24 bits of a word as a float32 in [0, 1), a multiple of 2**-24.
DEVICE float to_uniform(u32 word) { return (float)(word >> 8) * 0x1p-24f; }

// Python's min(max(x, low), high): NaN stays NaN.
template <class T>
DEVICE T clip(T x, T low, T high) {
  x = low > x ? low : x;
  return high < x ? high : x;
}

// In a namespace, since CUDA has functions of these names that round differently. utils/simd_math.py explains them.
namespace simd_math {

DEVICE void sincos_near_zero(double x, double& sine, double& cosine) {
  double z = x * x, zz = z * z;
  double s = fma(zz, fma(z, NEAR_ZERO_SIN_3, NEAR_ZERO_SIN_2), fma(z, NEAR_ZERO_SIN_1, NEAR_ZERO_SIN_0));
  double c = fma(zz, fma(z, NEAR_ZERO_COS_3, NEAR_ZERO_COS_2), fma(z, NEAR_ZERO_COS_1, NEAR_ZERO_COS_0));
  sine = fma(z * x, s, x);
  cosine = fma(z, fma(z, c, -0.5), 1.0);
}

DEVICE double sin_tail(double z) { return fma(z, fma(z, fma(z, fma(z, SIN_5, SIN_4), SIN_3), SIN_2), SIN_1); }

DEVICE double cos_tail(double z) {
  return fma(z, fma(z, fma(z, fma(z, fma(z, COS_5, COS_4), COS_3), COS_2), COS_1), COS_0);
}

DEVICE void sincos(double x, double& sine, double& cosine) {
  double turns = rint(x * TWO_OVER_PI);
  int quadrant = (int)turns;
  double a = fma(-turns, HALF_PI_0, x), b = turns * HALF_PI_1;
  double rest = a - b;
  double tail = fma(-turns, HALF_PI_2, (a - rest) - b);
  double near = rest + tail;
  tail = (rest - near) + tail;
  double z = near * near;
  double v = z * near;
  double s = near - (fma(z, fma(0.5, tail, -(v * sin_tail(z))), -tail) - v * SIN_0);
  double half = 0.5 * z;
  double w = 1.0 - half;
  double c = w + (((1.0 - w) - half) + fma(z * z, cos_tail(z), -(near * tail)));
  bool odd = quadrant & 1;
  sine = odd ? c : s;
  cosine = odd ? s : c;
  sine = quadrant & 2 ? -sine : sine;
  cosine = ((u32)quadrant + 1) & 2 ? -cosine : cosine;
}

DEVICE double sin(double x) {
  double sine, cosine;
  sincos(x, sine, cosine);
  return sine;
}

DEVICE double cos(double x) {
  double sine, cosine;
  sincos(x, sine, cosine);
  return cosine;
}

DEVICE double power_of_two(int k) { return __longlong_as_double((i64)((u64)((i64)k + 1023) << 52)); }

DEVICE double exp_parts(double x, int& k) {  // exp(x) = 2**k * (1 + the result)
  double turns = rint(x * (1.0 / 0.6931471805599453));
  double a = fma(-turns, LN2_0, x), b = turns * LN2_1;
  double r = a - b;
  double error = (a - r) - b;
  double q = fma(r, fma(r, fma(r, fma(r, fma(r, EXP_10, EXP_9), EXP_8), EXP_7), EXP_6), EXP_5);
  q = fma(r, fma(r, fma(r, fma(r, fma(r, q, EXP_4), EXP_3), EXP_2), EXP_1), EXP_0);
  k = (int)turns;
  return r + fma(r * r, q, error);
}

DEVICE double exp(double x) {
  int k;
  double p = exp_parts(clip(x, EXP_LOW, EXP_HIGH), k);
  int half = k >> 1;  // 2**k in two factors, since 2**k may be out of range although exp(x) is not
  return ((1.0 + p) * power_of_two(half)) * power_of_two(k - half);
}

DEVICE double log(double x) {
  bool small = x < 2.2250738585072014e-308;
  i64 bits = __double_as_longlong(small ? x * 18014398509481984.0 : x);
  int exponent = (int)((bits - SQRT_HALF_BITS) >> 52);
  double f = __longlong_as_double(bits - (i64)((u64)(i64)exponent << 52)) - 1.0;
  double k = (double)exponent - (small ? 54.0 : 0.0);
  double s = f / (2.0 + f);
  double z = s * s;
  double r = fma(z, fma(z, fma(z, LOG_6, LOG_5), LOG_4), LOG_3);
  r = z * fma(z, fma(z, fma(z, r, LOG_2), LOG_1), LOG_0);
  double half = 0.5 * f * f;
  double result = k * LN2_0 - ((half - fma(s, half + r, k * LN2_1)) - f);
  result = x == INFINITE ? x : result;
  result = x == 0.0 ? -INFINITE : result;
  return x >= 0.0 ? result : NOT_A_NUMBER;
}

DEVICE double tanh(double x) {
  double size = fabs(x);
  int k;
  double p = exp_parts(2.0 * (size > TANH_END ? TANH_END : size), k);
  double scale = power_of_two(k);
  double t = fma(scale, p, scale - 1.0);
  double result = t / (t + 2.0);
  return x < 0.0 ? -result : result;
}

DEVICE void sincos32(float x, float& sine, float& cosine) {
  float turns = rintf(x * TWO_OVER_PI_32);
  int quadrant = (int)turns;
  float r = fmaf(-turns, HALF_PI_32_2, fmaf(-turns, HALF_PI_32_1, fmaf(-turns, HALF_PI_32_0, x)));
  float z = r * r;
  float s = fmaf(r * z, fmaf(z, fmaf(z, SIN_32_2, SIN_32_1), SIN_32_0), r);
  float c = fmaf(z * z, fmaf(z, fmaf(z, COS_32_2, COS_32_1), COS_32_0), fmaf(-0.5f, z, 1.0f));
  bool odd = quadrant & 1;
  sine = odd ? c : s;
  cosine = odd ? s : c;
  sine = quadrant & 2 ? -sine : sine;
  cosine = ((u32)quadrant + 1) & 2 ? -cosine : cosine;
}

DEVICE float power_of_two_32(int k) { return __int_as_float((int)((u32)(k + 127) << 23)); }

DEVICE float exp_parts_32(float x, int& k) {
  float turns = rintf(x * INVERSE_LN2_32);
  float r = fmaf(-turns, LN2_32_1, fmaf(-turns, LN2_32_0, x));
  float q = fmaf(r, fmaf(r, fmaf(r, EXP_32_5, EXP_32_4), EXP_32_3), EXP_32_2);
  k = (int)turns;
  return fmaf(r * r, fmaf(r, fmaf(r, q, EXP_32_1), EXP_32_0), r);
}

DEVICE float exp32(float x) {
  int k;
  float p = exp_parts_32(clip(x, EXP_LOW_32, EXP_HIGH_32), k);
  int half = k >> 1;
  return ((1.0f + p) * power_of_two_32(half)) * power_of_two_32(k - half);
}

DEVICE float log32(float x) {
  bool small = x < 1.17549435e-38f;
  int bits = __float_as_int(small ? x * 8388608.0f : x);
  int exponent = (bits - SQRT_HALF_BITS_32) >> 23;
  float f = __int_as_float(bits - (int)((u32)exponent << 23)) - 1.0f;
  float k = (float)exponent - (small ? 23.0f : 0.0f);
  float z = f * f;
  float p = fmaf(f, fmaf(f, fmaf(f, fmaf(f, LOG_32_8, LOG_32_7), LOG_32_6), LOG_32_5), LOG_32_4);
  p = fmaf(f, fmaf(f, fmaf(f, fmaf(f, p, LOG_32_3), LOG_32_2), LOG_32_1), LOG_32_0);
  float result = fmaf(k, LN2_32_0, f + fmaf(f * z, p, fmaf(k, LN2_32_1, -0.5f * z)));
  result = x == (float)INFINITE ? x : result;
  result = x == 0.0f ? -(float)INFINITE : result;
  return x >= 0.0f ? result : (float)NOT_A_NUMBER;
}

DEVICE float tanh32(float x) {
  float size = fabsf(x);
  int k;
  float p = exp_parts_32(2.0f * (size > TANH_END_32 ? TANH_END_32 : size), k);
  float scale = power_of_two_32(k);
  float t = fmaf(scale, p, scale - 1.0f);
  float result = t / (t + 2.0f);
  return x < 0.0f ? -result : result;
}

}  // namespace simd_math
