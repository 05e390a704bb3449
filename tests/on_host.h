// CUDA C++ for a CPU: a thread is a fiber, which a barrier or a shuffle stops until all it concerns have come there.
//
// The order in which blocks, and threads between two barriers, run is chosen: 0 forwards, 1 backwards, else shuffled by
// that seed. Shared memory is NaN before each block. So a kernel that lacks a barrier gives NaN, or another result in
// another order. Sources without barriers run as plain loops in the same orders. Behind the shared memory that a launch
// asks for lies a line that nobody may write to.
#pragma once
#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__ __attribute__((used))  // what host_kernels.py knows a kernel by
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ __attribute__((section("cuda_shared"))) static
extern "C" __attribute__((visibility("hidden"))) char __start_cuda_shared[], __stop_cuda_shared[];
__attribute__((section("cuda_shared"), used)) static char on_host_shared[16];  // so that there is such a section
struct alignas(16) float4 {
  float x, y, z, w;
};
#define DYNAMIC_SHARED(NAME) float* NAME = &on_host::dynamic[0].x

namespace on_host {

struct Place {
  unsigned x, y, z;
};

}  // namespace on_host

static on_host::Place threadIdx, blockIdx, blockDim, gridDim;

namespace on_host {

const unsigned WARP = 32;
const size_t STACK = 1 << 16;
enum Stop { RUNS, AT_BLOCK, AT_WARP, GONE };
enum End { WELL, STUCK, BEYOND };  // as host_kernels.py counts them

struct Fiber {
  ucontext_t begin;  // for its first turn alone: a change of contexts asks the system about signals, a jump does not
  jmp_buf place;     // where it goes on
  Stop stop;
  bool begun;
};

static std::vector<Fiber> fibers;
static std::vector<std::unique_ptr<char[]>> stacks;  // not set: pages that no thread uses cost nothing
static std::vector<uint64_t> mail;                   // what a thread shows the others of its warp
static std::vector<float4> dynamic;                  // shared memory that the launch asked for, and the line behind it
static jmp_buf home;
static unsigned here;  // whose turn it is
static void (*kernel)(void**);
static void** given;

static std::vector<unsigned> turns(unsigned n, unsigned order, std::mt19937& random) {
  std::vector<unsigned> places(n);
  std::iota(places.begin(), places.end(), 0u);
  if (order == 1) std::reverse(places.begin(), places.end());
  if (order > 1) std::shuffle(places.begin(), places.end(), random);
  return places;
}

static void enter() {
  kernel(given);
  fibers[here].stop = GONE;
  _longjmp(home, 1);
}

__attribute__((noinline)) static void wait(Stop stop) {
  fibers[here].stop = stop;
  if (!_setjmp(fibers[here].place)) _longjmp(home, 1);
}

// Lets a thread run until it waits or ends.
__attribute__((noinline)) static void go_on(Fiber& fiber) {
  if (_setjmp(home)) return;
  if (fiber.begun) _longjmp(fiber.place, 1);
  fiber.begun = true;
  setcontext(&fiber.begin);
}

// Lets those go on that wait for nobody any more; whether there are any.
static bool release() {
  unsigned n = fibers.size(), waiting = 0, at_block = 0, released = 0;
  for (const Fiber& fiber : fibers) waiting += fiber.stop != GONE, at_block += fiber.stop == AT_BLOCK;
  for (unsigned first = 0; first < n; first += WARP) {
    unsigned last = std::min(n, first + WARP);
    bool whole = true;
    for (unsigned k = first; k < last; k++) whole &= fibers[k].stop == AT_WARP || fibers[k].stop == GONE;
    for (unsigned k = first; k < last; k++)
      if ((fibers[k].stop == AT_WARP && whole) || (fibers[k].stop == AT_BLOCK && at_block == waiting))
        fibers[k].stop = RUNS, released++;
  }
  return released > 0;
}

// One block with barriers; whether all its threads came to their end.
static bool together(unsigned threads, unsigned order, std::mt19937& random) {
  fibers.resize(threads);
  mail.resize(threads);
  while (stacks.size() < threads) stacks.emplace_back(new char[STACK]);
  std::memset(__start_cuda_shared, 0xFF, __stop_cuda_shared - __start_cuda_shared);
  std::memset((void*)dynamic.data(), 0xFF, dynamic.size() * sizeof(float4));
  for (unsigned k = 0; k < threads; k++) {
    getcontext(&fibers[k].begin);
    fibers[k].begin.uc_stack.ss_sp = stacks[k].get();
    fibers[k].begin.uc_stack.ss_size = STACK;
    fibers[k].begin.uc_link = nullptr;
    makecontext(&fibers[k].begin, enter, 0);
    fibers[k].stop = RUNS;
    fibers[k].begun = false;
  }
  do {
    for (unsigned k : turns(threads, order, random)) {
      if (fibers[k].stop != RUNS) continue;
      here = threadIdx.x = k;
      go_on(fibers[k]);
    }
  } while (release());
  return std::all_of(fibers.begin(), fibers.end(), [](const Fiber& fiber) { return fiber.stop == GONE; });
}

// Whether every thread came to its end: none does that waits at a barrier which another one never reaches.
static End launch(void (*call)(void**), unsigned blocks, unsigned threads, unsigned shared, unsigned order,
                  bool barriers, void** arguments) {
  std::mt19937 random(order);
  kernel = call, given = arguments;
  dynamic.resize((shared + 15) / 16 + 1);
  blockDim = {threads, 1, 1}, gridDim = {blocks, 1, 1};
  for (unsigned block : turns(blocks, order, random)) {
    blockIdx = {block, 0, 0};
    if (barriers) {
      if (!together(threads, order, random)) return STUCK;
      const char* behind = (const char*)&dynamic.back();
      if (std::any_of(behind, behind + 16, [](char byte) { return byte != (char)0xFF; })) return BEYOND;
    } else {
      for (unsigned k : turns(threads, order, random)) threadIdx = {k, 0, 0}, call(arguments);
    }
  }
  return WELL;
}

// What a kernel takes, one word for each argument: f8, i4, u1 by value, *f8 an address of such, * of anything.
template <class T>
std::string word() {
  if constexpr (std::is_pointer_v<T>) {
    typedef std::remove_cv_t<std::remove_pointer_t<T>> Pointed;
    if constexpr (std::is_arithmetic_v<Pointed>) return "*" + word<Pointed>();
    return "*";
  } else {
    return (std::is_floating_point_v<T> ? "f" : std::is_signed_v<T> ? "i" : "u") + std::to_string(sizeof(T));
  }
}

template <class... Arguments>
std::string words(void (*)(Arguments...)) {
  std::string all;
  ((all += word<Arguments>() + " "), ...);
  return all;
}

template <class... Arguments, size_t... Index>
void call(void (*kernel)(Arguments...), void** arguments, std::index_sequence<Index...>) {
  kernel(*(Arguments*)arguments[Index]...);
}

template <class... Arguments>
void call(void (*kernel)(Arguments...), void** arguments) {
  call(kernel, arguments, std::index_sequence_for<Arguments...>());
}

}  // namespace on_host

// The two functions by which a kernel is called from outside.
#define ON_HOST_SEEN extern "C" __attribute__((visibility("default")))
#define ON_HOST(NAME, BARRIERS)                                                                              \
  ON_HOST_SEEN int launch_##NAME(unsigned blocks, unsigned threads, unsigned shared, unsigned order,         \
                                 void** arguments) {                                                         \
    auto kernel = [](void** given) { on_host::call(::NAME, given); };                                        \
    return on_host::launch(kernel, blocks, threads, shared, order, BARRIERS, arguments);                     \
  }                                                                                                          \
  ON_HOST_SEEN const char* words_##NAME() {                                                                  \
    static const std::string words = on_host::words(::NAME);                                                 \
    return words.c_str();                                                                                    \
  }

static inline void __syncthreads() { on_host::wait(on_host::AT_BLOCK); }
static inline void __syncwarp(unsigned = ~0u) { on_host::wait(on_host::AT_WARP); }

// Of whole warps: whatever the mask says, all of its threads that have not ended must come.
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  unsigned me = threadIdx.x, from = (me & ~(on_host::WARP - 1)) | (lane & (on_host::WARP - 1));
  std::memcpy(&on_host::mail[me], &value, sizeof value);
  __syncwarp();
  std::memcpy(&value, &on_host::mail[from < blockDim.x ? from : me], sizeof value);
  __syncwarp();  // nobody writes the next letter before all have read this one
  return value;
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return __shfl_sync(mask, value, (threadIdx.x % on_host::WARP) ^ lanes);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes) {
  unsigned lane = threadIdx.x % on_host::WARP;
  return __shfl_sync(mask, value, lane + lanes < on_host::WARP ? lane + lanes : lane);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes) {
  unsigned lane = threadIdx.x % on_host::WARP;
  return __shfl_sync(mask, value, lane >= lanes ? lane - lanes : lane);
}

template <class To, class From>
static inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// The tensor cores of a warp (utils/tensor_cores.cuh), with the places that the PTX ISA gives to each thread's numbers:
// products are exact, sums are float32, added up one after the other from the first one on.
#define TENSOR_CORES

namespace on_host {

struct Operands {
  unsigned a[4], b[2];
};
static std::vector<Operands> shown;  // by each thread of the block

template <int EACH>  // numbers in a register
float number(unsigned bits, int which) {
  return same_bits<float>(EACH == 1 ? bits : bits >> 16 * which << 16);
}

}  // namespace on_host

template <bool BF16>
static inline void multiply_add(float* sum, const unsigned* a, const unsigned* b) {
  const int each = BF16 ? 2 : 1, half = 4 * each;
  unsigned me = threadIdx.x, lane = me % on_host::WARP;
  if (on_host::shown.size() < blockDim.x) on_host::shown.resize(blockDim.x);
  std::memcpy(on_host::shown[me].a, a, 4 * sizeof *a);
  std::memcpy(on_host::shown[me].b, b, 2 * sizeof *b);
  __syncwarp();
  const on_host::Operands* warp = &on_host::shown[me - lane];
  for (int i = 0; i < 4; i++) {
    int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 2 * half; k++) {
      int place = k % half / each;
      float x = on_host::number<each>(warp[row % 8 * 4 + place].a[row / 8 + k / half * 2], k % each);
      float y = on_host::number<each>(warp[column * 4 + place].b[k / half], k % each);
      sum[i] = fmaf(x, y, sum[i]);
    }
  }
  __syncwarp();  // nobody shows the next ones before all have seen these
}

static inline float __int_as_float(int bits) { return same_bits<float>(bits); }
static inline int __float_as_int(float x) { return same_bits<int>(x); }
static inline double __longlong_as_double(long long bits) { return same_bits<double>(bits); }
static inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }
