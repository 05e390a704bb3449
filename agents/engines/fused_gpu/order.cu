// The order of a rollout's rows in every epoch: `permutation` of utils/counter_rng.py, by a radix sort without atomics.
//
// draw_rows draws a random word for each row; the rows' order is that of their sorted words. Arrays are [epochs, rows],
// and `blocks` blocks sort an epoch. Each pass sorts by four bits of the words and keeps the order of equal ones:
// `count_digits` counts each digit in each block, `place_digits` computes where each of these groups begins, and
// `move_digits` moves every row there.
#include "utils/device_math.cuh"

const int THREADS = 256, ROWS_PER_THREAD = 16, BLOCK_ROWS = THREADS * ROWS_PER_THREAD;
const int DIGITS = 16;

DEVICE int smaller(int a, int b) { return a < b ? a : b; }

extern "C" __global__ void draw_rows(const i64* key, int* words, int* rows, int size, int epochs) {
  int fours = (size + 3) / 4, at = blockIdx.x * blockDim.x + threadIdx.x, epoch = at / fours, four = at % fours;
  if (epoch >= epochs) return;
  Words drawn = philox((u32)four, (u32)(key[0] + epoch), (u32)key[1], (u32)key[2], (u32)key[3], (u32)key[4]);
  u32 lane[4] = {drawn.a, drawn.b, drawn.c, drawn.d};
  for (int k = 0; k < 4 && 4 * four + k < size; k++) {
    words[(i64)epoch * size + 4 * four + k] = (int)lane[k];
    rows[(i64)epoch * size + 4 * four + k] = 4 * four + k;
  }
}

// Replaces every number by the sum of the numbers before it; returns the sum of all. `sums` [THREADS / 32] is in shared
// memory, `numbers` may be.
DEVICE int prefix_sums(int* numbers, int count, int* sums) {
  int per_thread = (count + THREADS - 1) / THREADS, first = smaller(per_thread * (int)threadIdx.x, count);
  int last = smaller(first + per_thread, count), own_sum = 0, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int k = first; k < last; k++) own_sum += numbers[k];
  int sum_to_here = own_sum;
#pragma unroll
  for (int below = 1; below < 32; below *= 2) {
    int more = __shfl_up_sync(~0u, sum_to_here, below);
    sum_to_here += lane >= below ? more : 0;
  }
  if (lane == 31) sums[warp] = sum_to_here;
  __syncthreads();
  int before = sum_to_here - own_sum, all = 0;
  for (int k = 0; k < THREADS / 32; k++) {
    before += k < warp ? sums[k] : 0;
    all += sums[k];
  }
  for (int k = first; k < last; k++) {
    int number = numbers[k];
    numbers[k] = before;
    before += number;
  }
  __syncthreads();
  return all;
}

struct Piece {  // a thread's rows [first, last) of its epoch
  i64 base;
  int first, last, epoch, block;
};

DEVICE Piece piece(int size, int blocks) {
  int epoch = blockIdx.x / blocks, block = blockIdx.x % blocks;
  int first = smaller(block * BLOCK_ROWS + ROWS_PER_THREAD * (int)threadIdx.x, size);
  return {(i64)epoch * size, first, smaller(first + ROWS_PER_THREAD, size), epoch, block};
}

// Fills counts [DIGITS, THREADS]: how many of the block's rows have a smaller digit, or the same digit and belong to an
// earlier thread. So it is where this thread's first row with the digit goes within the block.
DEVICE void rank_digits(const int* words, const Piece& mine, int shift, int* counts, int* sums) {
  for (int digit = 0; digit < DIGITS; digit++) counts[digit * THREADS + threadIdx.x] = 0;
  for (int k = mine.first; k < mine.last; k++)
    counts[((u32)words[mine.base + k] >> shift) % DIGITS * THREADS + threadIdx.x]++;
  __syncthreads();
  prefix_sums(counts, DIGITS * THREADS, sums);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    count_digits(const int* words, int* block_counts, int size, int blocks, int shift) {
  __shared__ int counts[DIGITS * THREADS + 1], sums[THREADS / 32];
  Piece mine = piece(size, blocks);
  rank_digits(words, mine, shift, counts, sums);
  if (threadIdx.x == 0) counts[DIGITS * THREADS] = smaller(BLOCK_ROWS, size - mine.block * BLOCK_ROWS);
  __syncthreads();
  int digit = threadIdx.x;
  if (digit < DIGITS)  // block_counts [epochs, DIGITS, blocks]
    block_counts[(mine.epoch * DIGITS + digit) * blocks + mine.block] =
        counts[(digit + 1) * THREADS] - counts[digit * THREADS];
}

// One block per epoch: replaces each count by where that group of rows begins in the epoch.
extern "C" __global__ void __launch_bounds__(THREADS) place_digits(int* block_counts, int blocks) {
  __shared__ int sums[THREADS / 32];
  prefix_sums(block_counts + blockIdx.x * DIGITS * blocks, DIGITS * blocks, sums);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    move_digits(const int* words, const int* rows, const int* block_counts, int* next_words, int* next_rows, int size,
                int blocks, int shift) {
  __shared__ int counts[DIGITS * THREADS], sums[THREADS / 32], begin[DIGITS];
  Piece mine = piece(size, blocks);
  rank_digits(words, mine, shift, counts, sums);
  if (threadIdx.x < DIGITS)  // where the block's rows of a digit go, less its rows of smaller digits
    begin[threadIdx.x] =
        block_counts[(mine.epoch * DIGITS + threadIdx.x) * blocks + mine.block] - counts[threadIdx.x * THREADS];
  __syncthreads();
  for (int k = mine.first; k < mine.last; k++) {
    int word = words[mine.base + k];
    int digit = ((u32)word >> shift) % DIGITS, place = begin[digit] + counts[digit * THREADS + threadIdx.x]++;
    next_words[mine.base + place] = word;
    next_rows[mine.base + place] = rows[mine.base + k];
  }
}
