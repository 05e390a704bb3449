// Adds the episodes that ended in a rollout to the window of the last episodes, like Window.add of collector.py.
#include "agents/experience/collector.py"
#include "utils/device_math.cuh"

const int THREADS = 1024, WARPS = THREADS / 32;

struct Ranked {
  int rank, all;  // how many of the threads 0 to this one count, and how many of all threads
};

// Ranks this thread ranked the threads of the block whose `counts` is true. `sums` [WARPS] is in shared memory.
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

// Runs as one block. The columns are [steps * worlds], in the order of time. Reads from the end, THREADS entries at a
// time, until the last WINDOW episodes are found; ends before those are only counted.
extern "C" __global__ void __launch_bounds__(THREADS)
    note_episodes(const u8* terminated, const u8* truncated, const float* returns, const float* lengths, i64 size,
                  float* ring, i64* count) {
  __shared__ i64 ends[WINDOW];  // entries of the last episodes' ends, newest first
  __shared__ int sums[WARPS];
  i64 found = 0, entry = size - 1 - threadIdx.x, first = *count;
  for (i64 last = size; last > 0 && found < WINDOW; last -= THREADS, entry -= THREADS) {
    bool ended = entry >= 0 && (terminated[entry] | truncated[entry]);
    Ranked ranked = rank(ended, sums);
    if (ended && found + ranked.rank <= WINDOW) ends[found + ranked.rank - 1] = entry;
    found += ranked.all;
  }
  int kept = found < WINDOW ? (int)found : WINDOW, earlier = 0;
  for (; entry >= 0; entry -= THREADS) earlier += terminated[entry] | truncated[entry];
#pragma unroll
  for (int lanes = 16; lanes; lanes /= 2) earlier += __shfl_xor_sync(~0u, earlier, lanes);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = earlier;
  __syncthreads();
  for (int k = 0; k < WARPS; k++) found += sums[k];
  if (threadIdx.x < kept) {
    i64 column = (first + found - 1 - threadIdx.x) % WINDOW;
    ring[column] = returns[ends[threadIdx.x]];
    ring[WINDOW + 1 + column] = lengths[ends[threadIdx.x]];
  }
  if (threadIdx.x == 0) *count = first + found;
}
