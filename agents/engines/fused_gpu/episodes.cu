// The episodes that ended in a rollout, into the window of the last ones: what Window.add of collector.py does.
#include "agents/experience/collector.py"
#include "utils/device_math.cuh"

const int THREADS = 1024, WARPS = THREADS / 32;

struct Ranked {
  int rank, all;  // how many of the threads up to this one, and of all
};

// Among those threads that say so; `sums` [WARPS] is shared.
DEVICE Ranked rank(bool counts, int* sums) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = counts, all = 0;
#pragma unroll
  for (int below = 1; below < 32; below *= 2) {
    int more = __shfl_up_sync(~0u, rank, below);
    rank += lane >= below ? more : 0;
  }
  if (lane == 31) sums[warp] = rank;
  __syncthreads();
  for (int k = 0; k < WARPS; k++) {
    rank += k < warp ? sums[k] : 0;
    all += sums[k];
  }
  __syncthreads();  // before they are written again
  return {rank, all};
}

// One block. All [steps * worlds], in the order of time; from the end on, until the window is full, then only counted.
extern "C" __global__ void __launch_bounds__(THREADS)
    note_episodes(const u8* terminated, const u8* truncated, const float* returns, const float* lengths, i64 size,
                  float* ring, i64* count) {
  __shared__ i64 ends[WINDOW];
  __shared__ int sums[WARPS];
  i64 found = 0, here = size - 1 - threadIdx.x, first = *count;
  for (i64 last = size; last > 0 && found < WINDOW; last -= THREADS, here -= THREADS) {
    bool ended = here >= 0 && (terminated[here] | truncated[here]);
    Ranked among = rank(ended, sums);
    if (ended && found + among.rank <= WINDOW) ends[found + among.rank - 1] = here;
    found += among.all;
  }
  int kept = found < WINDOW ? (int)found : WINDOW, mine = 0;
  for (; here >= 0; here -= THREADS) mine += terminated[here] | truncated[here];
#pragma unroll
  for (int lanes = 16; lanes; lanes /= 2) mine += __shfl_xor_sync(~0u, mine, lanes);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = mine;
  __syncthreads();
  for (int k = 0; k < WARPS; k++) found += sums[k];
  if (threadIdx.x < kept) {
    i64 place = (first + found - 1 - threadIdx.x) % WINDOW;
    ring[place] = returns[ends[threadIdx.x]];
    ring[WINDOW + 1 + place] = lengths[ends[threadIdx.x]];
  }
  if (threadIdx.x == 0) *count = first + found;
}
