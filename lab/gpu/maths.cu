// The functions of device_math.cuh over many numbers, and words of Philox: what gpu_check.py hashes.
#include "utils/device_math.cuh"

#define EACH                                        \
  int i = blockIdx.x * blockDim.x + threadIdx.x;    \
  if (i >= size) return;

extern "C" __global__ void maths_doubles(const double* x, const double* small, const double* turns, double* out, int size) {
  EACH
  simd_math::sincos_near_zero(small[i], out[i], out[size + i]);
  simd_math::sincos(turns[i], out[2 * size + i], out[3 * size + i]);
  out[4 * size + i] = simd_math::exp(x[i]);
  out[5 * size + i] = simd_math::log(x[i]);
  out[6 * size + i] = simd_math::tanh(x[i]);
}

extern "C" __global__ void maths_singles(const float* x, const float* turns, float* out, int size) {
  EACH
  simd_math::sincos32(turns[i], out[i], out[size + i]);
  out[2 * size + i] = simd_math::exp32(x[i]);
  out[3 * size + i] = simd_math::log32(x[i]);
  out[4 * size + i] = simd_math::tanh32(x[i]);
}

extern "C" __global__ void maths_philox(u32 c1, u32 c2, u32 c3, u32 k0, u32 k1, u32* out, int size) {
  EACH
  Words drawn = philox(i / 4, c1, c2, c3, k0, k1);
  out[i] = i % 4 == 0 ? drawn.a : i % 4 == 1 ? drawn.b : i % 4 == 2 ? drawn.c : drawn.d;
}
