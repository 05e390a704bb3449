// The order of a rollout's rows in every epoch: `permutation` of utils/counter_rng.py, sorted by radix, without atomics.
//
// Epochs lie one behind the other, `blocks` blocks for each. A pass sorts by four bits, equals as they came: `count_digits`
// says how often a block meets each digit, `place_digits` where that begins, `move_digits` puts every row there.
#include "utils/device_math.cuh"

const int THREADS = 256, EACH = 16, BLOCK = THREADS * EACH;  // rows of a block, those of a thread side by side
const int DIGITS = 16;

DEVICE int least(int a, int b) { return a < b ? a : b; }

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

// Every number becomes the sum of those before it; the sum of all. `sums` [THREADS / 32] is shared, as may be `numbers`.
DEVICE int add_before(int* numbers, int count, int* sums) {
  int each = (count + THREADS - 1) / THREADS, first = least(each * (int)threadIdx.x, count);
  int last = least(first + each, count), mine = 0, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int k = first; k < last; k++) mine += numbers[k];
  int upto = mine;
#pragma unroll
  for (int below = 1; below < 32; below *= 2) {
    int more = __shfl_up_sync(~0u, upto, below);
    upto += lane >= below ? more : 0;
  }
  if (lane == 31) sums[warp] = upto;
  __syncthreads();
  int before = upto - mine, all = 0;
  for (int k = 0; k < THREADS / 32; k++) {
    before += k < warp ? sums[k] : 0;
    all += sums[k];
  }
  for (int k = first; k < last; k++) {
    int here = numbers[k];
    numbers[k] = before;
    before += here;
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
  int first = least(block * BLOCK + EACH * (int)threadIdx.x, size);
  return {(i64)epoch * size, first, least(first + EACH, size), epoch, block};
}

// counts [DIGITS, THREADS]: how many of a block's rows have a lesser digit, or the same and come before a thread's.
DEVICE void rank(const int* words, const Piece& mine, int shift, int* counts, int* sums) {
  for (int digit = 0; digit < DIGITS; digit++) counts[digit * THREADS + threadIdx.x] = 0;
  for (int k = mine.first; k < mine.last; k++)
    counts[((u32)words[mine.base + k] >> shift) % DIGITS * THREADS + threadIdx.x]++;
  __syncthreads();
  add_before(counts, DIGITS * THREADS, sums);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    count_digits(const int* words, int* found, int size, int blocks, int shift) {
  __shared__ int counts[DIGITS * THREADS + 1], sums[THREADS / 32];
  Piece mine = piece(size, blocks);
  rank(words, mine, shift, counts, sums);
  if (threadIdx.x == 0) counts[DIGITS * THREADS] = least(BLOCK, size - mine.block * BLOCK);
  __syncthreads();
  int digit = threadIdx.x;
  if (digit < DIGITS)  // found [epochs, DIGITS, blocks]
    found[(mine.epoch * DIGITS + digit) * blocks + mine.block] = counts[(digit + 1) * THREADS] - counts[digit * THREADS];
}

extern "C" __global__ void __launch_bounds__(THREADS) place_digits(int* found, int blocks) {  // a block an epoch
  __shared__ int sums[THREADS / 32];
  add_before(found + blockIdx.x * DIGITS * blocks, DIGITS * blocks, sums);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    move_digits(const int* words, const int* rows, const int* found, int* next_words, int* next_rows, int size,
                int blocks, int shift) {
  __shared__ int counts[DIGITS * THREADS], sums[THREADS / 32], begin[DIGITS];
  Piece mine = piece(size, blocks);
  rank(words, mine, shift, counts, sums);
  if (threadIdx.x < DIGITS)  // where the block's rows of a digit go, less those of lesser digits
    begin[threadIdx.x] = found[(mine.epoch * DIGITS + threadIdx.x) * blocks + mine.block] - counts[threadIdx.x * THREADS];
  __syncthreads();
  for (int k = mine.first; k < mine.last; k++) {
    int word = words[mine.base + k];
    int digit = ((u32)word >> shift) % DIGITS, place = begin[digit] + counts[digit * THREADS + threadIdx.x]++;
    next_words[mine.base + place] = word;
    next_rows[mine.base + place] = rows[mine.base + k];
  }
}
