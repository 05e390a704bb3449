// How many fused multiply-adds a device makes at most: STEPS of them in each of CHAINS chains that a thread keeps apart.
const int STEPS = 1024, CHAINS = 8;

extern "C" __global__ void peak(float* out, float by, float more, int size) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float chain[CHAINS], sum = 0.0f;
#pragma unroll
  for (int k = 0; k < CHAINS; k++) chain[k] = (float)(i % 7 + k);
#pragma unroll 8
  for (int step = 0; step < STEPS; step++)
#pragma unroll
    for (int k = 0; k < CHAINS; k++) chain[k] = fmaf(chain[k], by, more);
#pragma unroll
  for (int k = 0; k < CHAINS; k++) sum += chain[k];
  if (i < size) out[i] = sum;
}
