// Plays all steps of a rollout in one launch: like Collector.collect, with the same random numbers, into the same rows.
//
// play.py pastes a world's CUDA file below this one, which makes the kernel NAME_rollout. SPLIT neighbouring threads
// play a world. Each of them steps the world, with the same result; a layer's units and the head's outputs are divided
// among them. One thread adds up a hidden unit, bias first, then one input after the other. An output of the
// head is added in HEAD_PARTS parts, in whichever threads. So results do not depend on SPLIT.
// Weights and activations of a block's worlds are in shared memory; activations are [numbers of a layer, WORLDS].
// Sizes, defined by play.py:
//   BLOCK, SPLIT                     threads of a block, and of a world
//   FEATURES, HIDDEN, ACTIONS        widths of the actor's layers, hidden ones padded by plan/layout.py
//   DEPTH, WIDEST                    number of hidden layers; the most numbers of an input or hidden layer
//   WEIGHTS, BIASES                  offsets of each layer in `parameters`
//   GAUSSIAN, LOG_STD                1: an action is a number, 0: a choice; offset of its log standard deviation
//   RELU, ONE_HOT                    1: ReLU, 0: tanh; 1: features are one-hot, 0: numbers, (x - centre) * scale
//   ROLLING, VARIANCE_ADDED, BOUND   the scale is 1 / sqrt(variance + VARIANCE_ADDED), and features are within +-BOUND
#include "envs_fast/world.cuh"
#include "utils/normal.cuh"
#include "agents/networks/heads.py"
#undef WORLD_KERNELS

const int WORLDS = BLOCK / SPLIT;  // of a block
const int TILE_OF_UNITS = 4;       // groups of 4 units that a thread computes at a time
const float HALF_LOG_2PI = 0.918938533f;

struct Layer {
  int inner, width, weight, bias, room, kept;  // in shared memory: floats it takes, and where they begin
  bool read;                                   // weights stay in global memory: a one-hot input needs few of them
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

// Copies layer NUMBER and the later ones to shared memory, biases, then weights [inner, width]; `parameters` has the
// weights of all but the first layer as [width, inner].
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

// Computes hidden layer NUMBER and the later ones of a world; thread `part` of SPLIT computes its share of the units.
template <int NUMBER>
DEVICE void hidden_layers(const float* shared, const float* parameters, i64 index, const float* below,
                          float* above, int part) {
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
  if constexpr (NUMBER + 1 < DEPTH) hidden_layers<NUMBER + 1>(shared, parameters, index, above, (float*)below, part);
}

// Computes the head's outputs. Input k belongs to part k % HEAD_PARTS; parts are added by pairs, neighbours first.
const int HEAD_PARTS = 8;

DEVICE void head_outputs(const float* shared, const float* below, float* outputs, int part) {
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

// Draws an action from the head's outputs by a uniform number `draw`, and computes its log-probability.
#if GAUSSIAN
static_assert(ACTIONS == 1, "an action of these worlds is one number");

DEVICE void choose(const float* outputs, float draw, float log_std, float& action, float& log_prob) {
  float clipped = clip(log_std, (float)LOG_STD_BOUNDS_0, (float)LOG_STD_BOUNDS_1);
  float mean = outputs[0];
  action = mean + simd_math::exp32(clipped) * normal::of(draw);
  float distance = (action - mean) * simd_math::exp32(-clipped);  // of the rounded action
  log_prob = -0.5f * distance * distance - clipped - HALF_LOG_2PI;
}
#else
DEVICE void choose(const float* outputs, float draw, float log_std, i64& action, float& log_prob) {
  float z[ACTIONS], p[ACTIONS], most = -3e38f, total = 0.0f, sum = 0.0f, cumulative = 0.0f;
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
  for (int k = 0; k < ACTIONS - 1; k++) action += (cumulative += p[k]) <= level;
  log_prob = z[0];
#pragma unroll
  for (int k = 1; k < ACTIONS; k++) log_prob = action == k ? z[k] : log_prob;
  log_prob -= most + simd_math::log32(total);
}
#endif

struct Actor {
  const float* parameters;
  const float* centre;
  const float* scale;  // the variance if ROLLING
  const float* draws;  // [T, N, 1]
};

template <class Seen, class Action>
struct Rows {  // the memory's columns, log-probabilities, and returns and lengths of ended episodes; each [T, N]
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
struct Now {  // state before the next row, of worlds, collector and memory; each [N]
  Seen* shown;
  Seen* obs;
  u8* is_first;
  i64* slot;
  Seen* final_obs;  // [slots, N]: final observations of truncated episodes
  int slots;
};

// Writes a thread's share of the features of an observation to `x`; if they are one-hot, only returns the 1's index.
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
  __syncthreads();  // no later __syncthreads, so threads without a world may return
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
    float draw = actor.draws[at];  // loaded early: it arrives while the layers are computed
    i64 index = encode(seen, centre, scale, x, part);
    bool writes = part == 0;
    if (writes) rows.obs[at] = seen;  // up to 50 numbers, whose registers are free after this line
    hidden_layers<0>(shared, actor.parameters, index, x, above, part);
    head_outputs(shared, DEPTH % 2 ? above : x, outputs, part);
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

// `tables` as in world.cuh. The grid has SPLIT threads for each world, rounded up to full blocks.
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
