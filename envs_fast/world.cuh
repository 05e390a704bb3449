// Kernels for compiled worlds on a GPU: the types of world.py, and the loop of tiles.py with one thread for each world.
//
// A world's file NAME.cu (cartpole.cu is the shortest) is the GPU version of NAME.py, its Python twin, which explains
// rules and functions. NAME.cu includes this file and the twin's constants, and defines
//   Number      double or int
//   State       a struct of numbers, all of type Number
//   Action      float, or i64 for discrete actions
//   Seen        the observation: Row<float, WIDTH> or Row<i64, WIDTH>
//   Parameters  the fields of the twin's Parameters, in its order, each a double
//   Tables      the fields of the twin's Tables, in its order, each a Table<T>; an empty struct if it has none
//   legal(action&, parameters, tables) -> whether the action is valid; replaces an invalid one by the nearest valid one
//   step(state&, action, moment, parameters, tables, reward&) -> terminated
//   reset(episode, parameters, tables) -> State
//   observe(state, parameters) -> Seen
// It ends with WORLD_KERNELS(name). To give the same bits, it does the twin's operations in the same order: mul_add
// becomes fma, and x / CONSTANT becomes x * (1.0 / CONSTANT), as Numba compiles it ("arcp" in KERNEL of world.py).
#include "utils/device_math.cuh"
#include "envs_fast/world.py"

struct Episode {
  u32 number, world, seed_lo, seed_hi;
};

struct Moment {
  int age;  // steps of the episode before this one
  Episode episode;
};

template <class T>
struct Table {
  const T* data;
  i64 size;  // number of entries
};

// An array of N numbers, aligned so that it is read and written with few wide instructions.
template <class T, int N>
struct alignas(N * sizeof(T) % 16 == 0 ? 16 : N * sizeof(T) % 8 == 0 ? 8 : N * sizeof(T) % 4 == 0 ? 4 : sizeof(T)) Row {
  T at[N];
};

// Returns four random words (32 bits each). They depend only on the block's number and on the episode.
DEVICE Words draw(u32 block, const Episode& episode) {
  return philox(block, episode.number, episode.world, WORLDS_OWN, episode.seed_lo, episode.seed_hi);
}

// Returns the first block of random words of a step.
DEVICE Words draw_now(const Moment& moment) { return draw(IN_EPISODE * ((u32)moment.age + 1), moment.episode); }

// Returns a uniform in [low, high), made of all 32 bits of a word.
DEVICE double between(u32 word, double low, double high) { return low + (high - low) * ((double)word * 0x1p-32); }

// A `legal` for discrete actions: 0 to choices - 1.
DEVICE bool among(i64& action, i64 choices) {
  i64 given = action;
  action = clip(given, (i64)0, choices - 1);
  return action == given;
}

// A `legal` for float actions: every number but NaN, which becomes 0.
DEVICE bool number(float& action) {
  bool is = action == action;
  action = is ? action : 0.0f;
  return is;
}

// All worlds of a launch: Worlds and Stream of world.py.
struct Worlds {
  void* state;
  int* ages;
  int* episodes;
  double* returns;
  int size, first_world;
  u32 seed_lo, seed_hi;

  // number `row` of the state of world i; states are stored as [rows, worlds]
  template <class Number>
  DEVICE Number& at(int row, int i) const {
    return ((Number*)state)[(i64)row * size + i];
  }
};

// Where a launch writes its results, each [steps, worlds]: StepResults of world.py.
template <class Seen>
struct Told {
  Seen* obs;
  float* reward;
  u8* terminated;
  u8* truncated;
  Seen* final_obs;
  float* episode_return;
  float* episode_length;
};

template <class State, class Number>
DEVICE State load(const Worlds& worlds, int i) {
  State state;
  const int rows = sizeof(State) / sizeof(Number);  // 0 for an empty struct, whose size is 1
#pragma unroll
  for (int row = 0; row < rows; row++) ((Number*)&state)[row] = worlds.at<Number>(row, i);
  return state;
}

template <class State, class Number>
DEVICE void store(const State& state, const Worlds& worlds, int i) {
  const int rows = sizeof(State) / sizeof(Number);
#pragma unroll
  for (int row = 0; row < rows; row++) worlds.at<Number>(row, i) = ((const Number*)&state)[row];
}

// A world while it is played: all of this is in registers.
template <class State>
struct Running {
  State state;
  int age;  // steps played in the episode
  Episode episode;
  double total;  // sum of the episode's rewards
};

struct Outcome {
  float reward;
  bool terminated, truncated;
};

DEVICE Episode episode_of(const Worlds& worlds, int i) {
  return {(u32)worlds.episodes[i], (u32)(worlds.first_world + i), worlds.seed_lo, worlds.seed_hi};
}

template <class State, class Number>
DEVICE Running<State> enter(const Worlds& worlds, int i) {
  return {load<State, Number>(worlds, i), worlds.ages[i], episode_of(worlds, i), worlds.returns[i]};
}

template <class State, class Number>
DEVICE void leave(const Running<State>& world, const Worlds& worlds, int i) {
  store<State, Number>(world.state, worlds, i);
  worlds.ages[i] = world.age;
  worlds.episodes[i] = (int)world.episode.number;
  worlds.returns[i] = world.total;
}

// Plays one step of a world. If the episode ends, the world keeps the last state; `begin_next` begins the next episode.
template <class State, class Action, class Parameters, class Tables>
DEVICE Outcome live(Running<State>& world, Action action, const Parameters& parameters, const Tables& tables,
                    int* wrong) {
  double gain;
  if (!legal(action, parameters, tables)) *wrong = 1;
  bool over = step(world.state, action, Moment{world.age, world.episode}, parameters, tables, gain);
  world.age += 1;
  world.total += gain;
  return {(float)gain, over, world.age >= (int)parameters.time_limit && !over};
}

template <class State, class Parameters, class Tables>
DEVICE void begin_next(Running<State>& world, const Parameters& parameters, const Tables& tables) {
  world.total = 0.0;
  world.age = 0;
  world.episode.number += 1;
  world.state = reset(world.episode, parameters, tables);
}

// Plays `steps` steps of world i; step t writes its results to `told` at [t, i].
// `parameters` and `tables` are passed by value, so the compiler may keep them in registers: no store changes copies.
template <class State, class Number, class Action, class Seen, class Parameters, class Tables>
DEVICE void advance_world(int i, const Worlds& worlds, const Parameters parameters, const Tables tables, int steps,
                          const Action* __restrict__ actions, const Told<Seen>& told, int* wrong) {
  Running<State> world = enter<State, Number>(worlds, i);
  for (int t = 0; t < steps; t++) {
    i64 at = (i64)t * worlds.size + i;
    Outcome outcome = live(world, actions[at], parameters, tables, wrong);
    told.reward[at] = outcome.reward;
    told.terminated[at] = outcome.terminated;
    told.truncated[at] = outcome.truncated;
    Seen seen = observe(world.state, parameters);
    if (outcome.terminated || outcome.truncated) {
      told.final_obs[at] = seen;
      told.episode_return[at] = (float)world.total;
      told.episode_length[at] = (float)world.age;
      begin_next(world, parameters, tables);
      seen = observe(world.state, parameters);
    }
    told.obs[at] = seen;
  }
  leave<State, Number>(world, worlds, i);
}

// Begins episode episodes[i] of world i if mask[i]; writes its observation in any case.
template <class State, class Number, class Seen, class Parameters, class Tables>
DEVICE void restart_world(int i, const Worlds& worlds, const Parameters& parameters, const Tables& tables,
                          const u8* mask, Seen* obs) {
  State state = load<State, Number>(worlds, i);
  if (mask[i]) {
    state = reset(episode_of(worlds, i), parameters, tables);
    store<State, Number>(state, worlds, i);
    worlds.ages[i] = 0;
    worlds.returns[i] = 0.0;
  }
  obs[i] = observe(state, parameters);
}

// Defines the two kernels of a world, NAME_advance and NAME_restart. `tables` is an int64 [k, 2]: address and number of
// entries of each table. `wrong` becomes 1 if an action is invalid. obs and final_obs must begin at a multiple of 16
// bytes, as torch's tensors do.
#define KERNELS_OF(NAME, ADVANCE, RESTART)                                                                             \
  extern "C" __global__ void NAME##_advance(                                                                           \
      void* state, int* ages, int* episodes, double* returns, int worlds, int first_world, u32 seed_lo, u32 seed_hi,   \
      const double* parameters, const void* tables, int steps, const void* actions, void* obs, float* reward,          \
      u8* terminated, u8* truncated, void* final_obs, float* episode_return, float* episode_length, int* wrong) {      \
    int i = blockIdx.x * blockDim.x + threadIdx.x;                                                                     \
    if (i >= worlds) return;                                                                                           \
    ADVANCE<State, Number, Action, Seen>(                                                                              \
        i, Worlds{state, ages, episodes, returns, worlds, first_world, seed_lo, seed_hi},                              \
        *(const Parameters*)parameters, *(const Tables*)tables, steps, (const Action*)actions,                         \
        Told<Seen>{(Seen*)obs, reward, terminated, truncated, (Seen*)final_obs, episode_return, episode_length},       \
        wrong);                                                                                                        \
  }                                                                                                                    \
  extern "C" __global__ void NAME##_restart(                                                                           \
      void* state, int* ages, int* episodes, double* returns, int worlds, int first_world, u32 seed_lo, u32 seed_hi,   \
      const double* parameters, const void* tables, const u8* mask, void* obs) {                                       \
    int i = blockIdx.x * blockDim.x + threadIdx.x;                                                                     \
    if (i >= worlds) return;                                                                                           \
    RESTART<State, Number>(i, Worlds{state, ages, episodes, returns, worlds, first_world, seed_lo, seed_hi},           \
                           *(const Parameters*)parameters, *(const Tables*)tables, mask, (Seen*)obs);                  \
  }
#define WORLD_KERNELS(NAME) KERNELS_OF(NAME, advance_world, restart_world)
