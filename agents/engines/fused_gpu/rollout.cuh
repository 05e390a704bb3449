// All steps of a rollout in one launch: what Collector.collect does, with the same draws, into the same rows.
//
// A world's file, pasted below this one, gives the kernel NAME_rollout. A world is played by SPLIT threads side by side.
// Each of them steps it by itself, to the same bits; the units of a layer and the outputs of the head are shared out.
// A hidden unit is added up by one thread, bias first, then one input after the other; an output of the head in eight
// parts, whichever threads have them (HEAD_PARTS): so nothing depends on SPLIT.
// Weights, and what a layer says of the worlds of a block, lie in shared memory: of all worlds the first number, then of
// all the second. Sizes, of play.py:
//   BLOCK, SPLIT                     threads of a block, and of a world
//   FEATURES, HIDDEN, ACTIONS        widths of the actor's layers, the hidden ones as padded by plan/layout.py
//   DEPTH, WIDEST                    how many are hidden; the most numbers that lie between two layers
//   WEIGHTS, BIASES                  where each layer lies in `parameters`
//   GAUSSIAN, LOG_STD                whether actions are numbers; where their deviation lies
//   RELU, ONE_HOT                    else tanh; else features are numbers, (x - centre) * scale
//   ROLLING, VARIANCE_ADDED, BOUND   with the scale from a variance, within bounds
#include "envs_fast/world.cuh"
#include "utils/normal.cuh"
#include "agents/networks/heads.py"
#undef WORLD_KERNELS

const int WORLDS = BLOCK / SPLIT;  // of a block
const int TILE_OF_UNITS = 4;       // fours of units that a thread adds up at a time
const float HALF_LOG_2PI = 0.918938533f;

struct Layer {
  int inner, width, weight, bias, room, kept;  // kept: where in shared memory its bias begins, then its weights
  bool read;                                   // its weights stay where they are: few of them are asked for
};

DEVICE constexpr int whole(int floats) { return (floats + 3) / 4 * 4; }

DEVICE constexpr Layer layer_at(int number) {
  const int widths[] = {FEATURES, HIDDEN, ACTIONS}, weights[] = {WEIGHTS}, biases[] = {BIASES};
  Layer layer = {};
  for (int k = 0; k <= number; k++) {
    layer.kept += layer.room;
    layer.read = k == 0 && ONE_HOT;
    layer.inner = widths[k], layer.width = widths[k + 1], layer.weight = weights[k], layer.bias = biases[k];
    layer.room = whole(layer.width) + (layer.read ? 0 : whole(layer.inner * layer.width));
  }
  return layer;
}

// Fetches a layer into shared memory, [inner, width]: so lie the first layer's weights, the others' are turned.
template <int NUMBER>
DEVICE void fetch(const float* parameters, float* shared) {
  constexpr Layer layer = layer_at(NUMBER);
  float *bias = shared + layer.kept, *weight = bias + whole(layer.width);
  for (int k = threadIdx.x; k < layer.width; k += BLOCK) bias[k] = parameters[layer.bias + k];
  for (int k = threadIdx.x; !layer.read && k < layer.inner * layer.width; k += BLOCK)
    weight[NUMBER ? k % layer.inner * layer.width + k / layer.inner : k] = parameters[layer.weight + k];
  if constexpr (NUMBER < DEPTH) fetch<NUMBER + 1>(parameters, shared);
}

DEVICE float activation(float x) { return RELU ? (x < 0.0f ? 0.0f : x) : simd_math::tanh32(x); }

DEVICE void add(float4& sum, float x, const float4& weight) {
  sum.x = fmaf(x, weight.x, sum.x);
  sum.y = fmaf(x, weight.y, sum.y);
  sum.z = fmaf(x, weight.z, sum.z);
  sum.w = fmaf(x, weight.w, sum.w);
}

// A hidden layer, of a thread's world and its share of the units.
template <int NUMBER>
DEVICE void think(const float* shared, const float* parameters, i64 index, const float* below, float* above, int part) {
  constexpr Layer layer = layer_at(NUMBER);
  const int fours = layer.width / 4, of_thread = (fours + SPLIT - 1) / SPLIT;
  const int tile = of_thread < TILE_OF_UNITS ? of_thread : TILE_OF_UNITS;
  const float4* bias = (const float4*)(shared + layer.kept);
  const float4* weight = (const float4*)(layer.read ? parameters + layer.weight : shared + layer.kept + layer.width);
  for (int first = part; first < fours; first += tile * SPLIT) {
    float4 sum[tile];
    int four[tile];
#pragma unroll
    for (int k = 0; k < tile; k++) {
      four[k] = first + k * SPLIT < fours ? first + k * SPLIT : first;
      sum[k] = bias[four[k]];
    }
    if (layer.read) {
#pragma unroll
      for (int k = 0; k < tile; k++) add(sum[k], 1.0f, weight[index * fours + four[k]]);
    } else {
#pragma unroll 4
      for (int i = 0; i < layer.inner; i++) {
        float x = below[i * WORLDS];
#pragma unroll
        for (int k = 0; k < tile; k++) add(sum[k], x, weight[i * fours + four[k]]);
      }
    }
#pragma unroll
    for (int k = 0; k < tile; k++) {
      float* unit = above + 4 * four[k] * WORLDS;
      unit[0] = activation(sum[k].x);
      unit[WORLDS] = activation(sum[k].y);
      unit[2 * WORLDS] = activation(sum[k].z);
      unit[3 * WORLDS] = activation(sum[k].w);
    }
  }
  __syncwarp();  // a world's threads are of one warp
  if constexpr (NUMBER + 1 < DEPTH) think<NUMBER + 1>(shared, parameters, index, above, (float*)below, part);
}

// The head. Input k belongs to part k % HEAD_PARTS; parts are added up by pairs, neighbours first.
const int HEAD_PARTS = 8;

DEVICE void speak(const float* shared, const float* below, float* outputs, int part) {
  constexpr Layer layer = layer_at(DEPTH);
  const int of_thread = HEAD_PARTS / SPLIT;
  const float *bias = shared + layer.kept, *weight = bias + whole(layer.width);
  for (int o = 0; o < ACTIONS; o++) {
    float sum[of_thread];
#pragma unroll
    for (int j = 0; j < of_thread; j++) sum[j] = j * SPLIT + part ? 0.0f : bias[o];
    for (int i = part; i < layer.inner; i += HEAD_PARTS) {  // inner is a multiple of HEAD_PARTS
#pragma unroll
      for (int j = 0; j < of_thread; j++)
        sum[j] = fmaf(below[(i + j * SPLIT) * WORLDS], weight[(i + j * SPLIT) * ACTIONS + o], sum[j]);
    }
#pragma unroll
    for (int lanes = 1; lanes < SPLIT; lanes *= 2)
#pragma unroll
      for (int j = 0; j < of_thread; j++) sum[j] += __shfl_xor_sync(~0u, sum[j], lanes);
#pragma unroll
    for (int left = of_thread / 2; left > 0; left /= 2)
#pragma unroll
      for (int j = 0; j < left; j++) sum[j] = sum[2 * j] + sum[2 * j + 1];
    if (o % SPLIT == part) outputs[o * WORLDS] = sum[0];
  }
  __syncwarp();
}

// What the head's outputs and the draws of a world make it do, and how likely that was.
#if GAUSSIAN
static_assert(ACTIONS == 1, "an action of these worlds is one number");

DEVICE void choose(const float* outputs, float draw, float log_std, float& action, float& log_prob) {
  float spread = clip(log_std, (float)LOG_STD_BOUNDS_0, (float)LOG_STD_BOUNDS_1);
  float mean = outputs[0];
  action = mean + simd_math::exp32(spread) * normal::of(draw);
  float distance = (action - mean) * simd_math::exp32(-spread);  // of the action as it was rounded
  log_prob = -0.5f * distance * distance - spread - HALF_LOG_2PI;
}
#else
DEVICE void choose(const float* outputs, float draw, float log_std, i64& action, float& log_prob) {
  float z[ACTIONS], p[ACTIONS], most = -3e38f, total = 0.0f, sum = 0.0f, reached = 0.0f;
#pragma unroll
  for (int k = 0; k < ACTIONS; k++) {
    z[k] = outputs[k * WORLDS];
    most = z[k] > most ? z[k] : most;
  }
#pragma unroll
  for (int k = 0; k < ACTIONS; k++) total += p[k] = simd_math::exp32(z[k] - most);
  float share = 1.0f / total;
#pragma unroll
  for (int k = 0; k < ACTIONS; k++) sum += p[k] *= share;
  float level = draw * sum;
  action = 0;
#pragma unroll
  for (int k = 0; k < ACTIONS - 1; k++) action += (reached += p[k]) <= level;
  log_prob = z[0];
#pragma unroll
  for (int k = 1; k < ACTIONS; k++) log_prob = action == k ? z[k] : log_prob;
  log_prob -= most + simd_math::log32(total);
}
#endif

struct Actor {
  const float* parameters;
  const float* centre;
  const float* scale;  // or the variance, where it is ROLLING
  const float* draws;  // [T, N, 1]
};

template <class Seen, class Action>
struct Rows {  // the memory's, and beside them what is told of actions and of episodes that ended; each [T, N]
  Seen* obs;
  u8* is_first;
  Action* action;
  float* reward;
  u8* terminated;
  u8* truncated;
  i64* slot;
  float* log_prob;
  float* episode_return;
  float* episode_length;
};

template <class Seen>
struct Now {  // where the worlds stand between two rows, as they, the collector and the memory know it; each [N]
  Seen* shown;
  Seen* obs;
  u8* is_first;
  i64* slot;
  Seen* final_obs;  // [slots, N], where a time limit cut
  int slots;
};

// Features of what is seen to `x`, a thread's share of them; where they are one-hot, which of them is 1.
template <int N>
DEVICE i64 encode(const Row<i64, N>& seen, const float* centre, const float* scale, float* x, int part) {
  return seen.at[0];
}

template <int N>
DEVICE i64 encode(const Row<float, N>& seen, const float* centre, const float* scale, float* x, int part) {
#pragma unroll
  for (int k = 0; k < N; k++)
    if (k % SPLIT == part) {
      float value = (seen.at[k] - centre[k]) * scale[k];
      x[k * WORLDS] = ROLLING ? clip(value, -BOUND, BOUND) : value;
    }
  __syncwarp();
  return 0;
}

template <class State, class Number, class Action, class Seen, class Parameters, class Tables>
DEVICE void play(const Worlds& worlds, const Parameters parameters, const Tables tables, int steps, const Actor& actor,
                 const Rows<Seen, Action>& rows, const Now<Seen>& now, int* wrong) {
  constexpr Layer head = layer_at(DEPTH);
  DYNAMIC_SHARED(shared);
  float *centre = shared + head.kept + head.room, *scale = centre + whole(FEATURES);
  float *x = scale + whole(FEATURES), *above = x + WIDEST * WORLDS, *outputs = above + WIDEST * WORLDS;
  fetch<0>(actor.parameters, shared);
  for (int k = threadIdx.x; !ONE_HOT && k < FEATURES; k += BLOCK) {
    centre[k] = actor.centre[k];
    scale[k] = ROLLING ? 1.0f / sqrtf(actor.scale[k] + VARIANCE_ADDED) : actor.scale[k];
  }
  __syncthreads();  // the last one for all, so that threads without a world may go
  int part = threadIdx.x % SPLIT, here = threadIdx.x / SPLIT, i = blockIdx.x * WORLDS + here;
  if (i >= worlds.size) return;
  x += here, above += here, outputs += here;
  float log_std = GAUSSIAN ? actor.parameters[LOG_STD] : 0.0f;
  Running<State> world = enter<State, Number>(worlds, i);
  Seen seen = now.obs[i];
  bool is_first = now.is_first[i];
  i64 slot = now.slot[i];
  for (int t = 0; t < steps; t++) {
    i64 at = (i64)t * worlds.size + i;
    float draw = actor.draws[at];  // asked for early: it comes while the layers are computed
    i64 index = encode(seen, centre, scale, x, part);
    bool writes = part == 0;
    if (writes) rows.obs[at] = seen;  // which may be 50 numbers, so its registers are free from here on
    think<0>(shared, actor.parameters, index, x, above, part);
    speak(shared, DEPTH % 2 ? above : x, outputs, part);
    Action action;
    float log_prob;
    choose(outputs, draw, log_std, action, log_prob);
    if (writes) {
      rows.is_first[at] = is_first;
      rows.action[at] = action;
      rows.slot[at] = slot;
      rows.log_prob[at] = log_prob;
    }
    Outcome outcome = live(world, action, parameters, tables, wrong);
    is_first = outcome.terminated || outcome.truncated;
    if (writes) {
      rows.reward[at] = outcome.reward;
      rows.terminated[at] = outcome.terminated;
      rows.truncated[at] = outcome.truncated;
    }
    seen = observe(world.state, parameters);
    if (is_first) {
      if (writes) {
        rows.episode_return[at] = (float)world.total;
        rows.episode_length[at] = (float)world.age;
        if (outcome.truncated) now.final_obs[slot * worlds.size + i] = seen;
      }
      if (outcome.truncated) slot = (slot + 1) % now.slots;
      begin_next(world, parameters, tables);
      seen = observe(world.state, parameters);
    }
  }
  if (part) return;
  leave<State, Number>(world, worlds, i);
  now.shown[i] = now.obs[i] = seen;
  now.is_first[i] = is_first;
  now.slot[i] = slot;
}

// `tables` as in world.cuh; a world without a place in the last block's threads is played by none.
#define WORLD_KERNELS(NAME)                                                                                            \
  extern "C" __global__ void __launch_bounds__(BLOCK, 4) NAME##_rollout(                                               \
      void* state, int* ages, int* episodes, double* returns, int worlds, int first_world, u32 seed_lo, u32 seed_hi,   \
      const double* parameters, const void* tables, int steps, const float* actor, const float* centre,                \
      const float* scale, const float* draws, void* obs, u8* is_first, void* action, float* reward, u8* terminated,    \
      u8* truncated, i64* slot, float* log_prob, float* episode_return, float* episode_length, void* shown,            \
      void* next_obs, u8* next_is_first, i64* next_slot, void* final_obs, int slots, int* wrong) {                     \
    play<State, Number>(Worlds{state, ages, episodes, returns, worlds, first_world, seed_lo, seed_hi},                 \
                        *(const Parameters*)parameters, *(const Tables*)tables, steps,                                 \
                        Actor{actor, centre, scale, draws},                                                            \
                        Rows<Seen, Action>{(Seen*)obs, is_first, (Action*)action, reward, terminated, truncated, slot, \
                                           log_prob, episode_return, episode_length},                                  \
                        Now<Seen>{(Seen*)shown, (Seen*)next_obs, next_is_first, next_slot, (Seen*)final_obs, slots},   \
                        wrong);                                                                                        \
  }
