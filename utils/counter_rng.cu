// The tables of counter_rng.py: a thread draws a block of four words. The iteration is read from the device, where a graph
// that is replayed finds another one each time.
#include "utils/device_math.cuh"

DEVICE Words block_of(i64 block, const i64* iteration, u32 purpose, u32 rank, u32 seed_lo, u32 seed_hi) {
  return philox((u32)block, (u32)*iteration, purpose, rank, seed_lo, seed_hi);
}

extern "C" __global__ void draw_words(i64* out, const i64* iteration, i64 size, u32 purpose, u32 rank, u32 seed_lo,
                                      u32 seed_hi) {
  i64 block = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (4 * block >= size) return;
  Words words = block_of(block, iteration, purpose, rank, seed_lo, seed_hi);
  u32 lane[4] = {words.a, words.b, words.c, words.d};
  for (int k = 0; k < 4 && 4 * block + k < size; k++) out[4 * block + k] = lane[k];
}

extern "C" __global__ void draw_uniforms(float* out, const i64* iteration, i64 size, u32 purpose, u32 rank, u32 seed_lo,
                                         u32 seed_hi) {
  i64 block = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (4 * block >= size) return;
  Words words = block_of(block, iteration, purpose, rank, seed_lo, seed_hi);
  u32 lane[4] = {words.a, words.b, words.c, words.d};
  for (int k = 0; k < 4 && 4 * block + k < size; k++) out[4 * block + k] = to_uniform(lane[k]);
}
