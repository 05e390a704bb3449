// The kernels that learn from a rollout (launched by learn.py). Once: judge (values and log-probabilities), worth
// (advantages and targets), moments and weigh (normalisation). Then for each minibatch: gradient (a part per block),
// reduce (their sum), descend (Adam's step).
//
// No kernel waits for another block, and none adds atomically, so results do not depend on timing. R rows are T steps
// of N worlds, P floats are learnt, Q updates are due. `state` [Q + 1, 2] has for each update the steps that the
// optimizer made before it, and whether target_kl was exceeded (HALTED). Then, or if `poisoned` is set, parameters do
// not change. An update needs three launches: `descend` clips by the norm of the whole gradient, which no block of
// `reduce` can know without a wait for the others.
// Sizes besides those of nets.cuh and losses.cuh, defined by learn.py:
//   VALUE_NET, VALUE_ROW             the net that estimates values (-1: none), and its output that is the value
//   NORMALIZE                        of weights (advantages): 0 off, 1 per minibatch, 2 per rollout
//   WHOLE_EPISODE, DECOUPLED         1: returns_type mc:episode; 1: AdamW
//   LAGS                             1: an older actor played, so V-trace instead of GAE
#include "agents/engines/fused_gpu/losses.cuh"

const int JUDGES = 64;       // blocks of `moments`, each with a part of the rows
const int WEIGHERS = 1024;   // threads that add up the weights of a minibatch
const int COLUMNS = 128;     // floats of the gradient that a block of `reduce` adds up, four by a thread of a group
const int GROUPS = 8;        // of threads in `reduce`; each adds every eighth part of the gradient
const int MADE = 0, HALTED = 1, WARP = 32;  // indices in `state`; threads of a warp
const int WORTH_AT = METRICS_AT + METRIC_SUMS * TILE;  // in shared memory: Worth of each sample, [5, TILE]

struct Worth {  // what the losses need of each row [R]
  const float *log_prob, *weight, *counted, *value, *target;
};

// Copies the Worth of the tile's rows (numbers at ROWS_AT) to shared memory, [5, TILE]: the rows are scattered.
DEVICE void fetch_worth(const Worth& worth, float* shared) {
  int row = threadIdx.x < TILE ? ((const int*)shared)[ROWS_AT + threadIdx.x] : -1;
  if (row < 0) return;
  float* at = shared + WORTH_AT + threadIdx.x;
  at[0] = worth.log_prob[row];
  at[TILE] = worth.weight[row];
  at[2 * TILE] = worth.counted[row];
  at[3 * TILE] = worth.value[row];
  at[4 * TILE] = worth.target[row];
}

// Writes the row numbers of a tile to ROWS_AT: order[first], ... or, without `order`, first, ...; -1 from `last` on.
DEVICE void note_rows(const int* order, i64 first, i64 last, float* shared) {
  i64 at = first + threadIdx.x;
  if (threadIdx.x < TILE) ((int*)shared)[ROWS_AT + threadIdx.x] = at >= last ? -1 : order ? order[at] : (int)at;
}

// Computes values and log-probabilities of `size` rows by one net; a null pointer: not needed.
template <int NET>
DEVICE void judge_net(const float* parameters, const Rows& rows, i64 size, float* value, float* log_prob,
                      float* shared) {
  fetch<NET>(parameters, shared);
  for (i64 tile = blockIdx.x; tile * TILE < size; tile += gridDim.x) {
    note_rows(nullptr, tile * TILE, size, shared);
    __syncthreads();  // also for the weights
    encode(rows.obs, shared);
    __syncthreads();
    forward<NET>(parameters, shared);
    i64 row = tile * TILE + threadIdx.x;
    float *z = shared + OUT_AT + threadIdx.x * OUT_ROW, *p = shared + PROBS_AT + threadIdx.x * OUT_ROW;
    if (threadIdx.x < TILE && row < size) {
      if (NET == VALUE_NET && value) value[row] = z[VALUE_ROW];
      if (NET == 0 && log_prob) log_prob[row] = log_prob_of(rows, row, parameters, z, p);
    }
    __syncthreads();  // before the next tile
  }
}

// With `values` computes the values of observations [size], with `acts` the log-probabilities of their actions, to the
// same bits as `gradient`.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    judge(const float* parameters, const float* centre, const float* scale, const void* obs, const void* action,
          const u8* mask, float* value, float* log_prob, i64 size, int acts, int values) {
  DYNAMIC_SHARED(shared);
  Rows rows = {obs, action, mask};
  fetch_scaling(centre, scale, shared);
  if (!values) value = nullptr;
  if (!acts) log_prob = nullptr;
  if (acts || VALUE_NET == 0) judge_net<0>(parameters, rows, size, value, log_prob, shared);
  if constexpr (VALUE_NET > 0)
    if (values) judge_net<1>(parameters, rows, size, value, nullptr, shared);
}

// One thread per world computes `weight` (the advantage, or the return less a baseline), `target` of the critic, and
// `counted`, 1 where the return is known. value [R + N]: of the rows, then of the observations after the last row;
// final_value [slots, N]. With LAGS `ratio` contains log pi of the policy that played; it becomes pi / pi_played.
extern "C" __global__ void worth(const float* reward, const u8* terminated, const u8* truncated, const u8* is_first,
                                 const i64* slot, const float* value, const float* final_value, const float* log_prob,
                                 float* ratio, const double* live, float* weight, float* target, float* counted,
                                 int steps, int worlds) {
  int world = blockIdx.x * blockDim.x + threadIdx.x;
  if (world >= worlds) return;
  const bool has_critic = VALUE_NET >= 0;
  i64 rows = (i64)steps * worlds;
  float gamma = (float)live[LIVE_GAMMA], keep = (float)(live[LIVE_GAMMA] * live[LIVE_GAE_LAMBDA]);
  float future = REINFORCE && has_critic ? value[rows + world] : 0.0f;
  bool is_known = has_critic || !REINFORCE;
  for (i64 r = rows - worlds + world; r >= 0; r -= worlds) {
    bool ended = terminated[r], cut = truncated[r];
    float final = has_critic && cut ? final_value[slot[r] * worlds + world] : 0.0f;
    if (REINFORCE) {  // G_t = r_t + gamma G_t+1: after an end 0, after a cut V of the final observation
      is_known |= ended || cut;
      future = reward[r] + gamma * (cut ? final : ended ? 0.0f : future);
      target[r] = future;
    } else {  // A_t = r_t + gamma V_t+1 - V_t + gamma lambda A_t+1, Schulman et al. 2016
      float following = cut ? final : value[r + worlds];
      float delta = reward[r] - value[r] + gamma * (ended ? 0.0f : 1.0f) * following;
      future = delta + keep * (ended || cut ? 0.0f : 1.0f) * future;
      if (LAGS) {  // rho_t times that, rho = min(1, ratio), Espeholt et al. 2018
        ratio[r] = simd_math::exp32(log_prob[r] - ratio[r]);
        future *= ratio[r] > 1.0f ? 1.0f : ratio[r];
      }
      weight[r] = future;
      target[r] = future + value[r];
    }
    counted[r] = is_known ? 1.0f : 0.0f;
  }
  float episode_return = target[world];
  for (i64 r = world; REINFORCE && r < rows; r += worlds) {
    episode_return = is_first[r] || !WHOLE_EPISODE ? target[r] : episode_return;
    weight[r] = has_critic ? episode_return - value[r] : episode_return;
  }
}

// Returns the sum over a warp to each of its threads; added by pairs, neighbours first.
DEVICE double warp_sum(double sum) {
#pragma unroll
  for (int lanes = 1; lanes < WARP; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  return sum;
}

// Computes the sums of COUNT numbers over the WIDE threads of a block, in a fixed order; thread k gets sum k.
template <int COUNT, int WIDE = THREADS>
DEVICE double block_sums(const double* numbers, double* room) {  // room [WIDE / WARP, COUNT]: shared memory
  for (int k = 0; k < COUNT; k++) {
    double sum = warp_sum(numbers[k]);
    if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP * COUNT + k] = sum;
  }
  __syncthreads();
  double sum = 0.0;
  for (int warp = 0; warp < WIDE / WARP && threadIdx.x < COUNT; warp++) sum += room[warp * COUNT + threadIdx.x];
  return sum;
}

// Computes MomentSums of a part of the rows, for each block. The first row's numbers are subtracted, so that squares of
// large numbers do not lose digits. moment_sums [JUDGES, 8].
extern "C" __global__ void __launch_bounds__(THREADS)
    moments(const float* weight, const float* target, const float* counted, const float* value, double* moment_sums,
            i64 rows) {
  __shared__ double room[THREADS / WARP * MOMENTS];
  i64 first = blockIdx.x * rows / JUDGES, last = (blockIdx.x + 1) * rows / JUDGES;
  double base = weight[0], aim = target[0], sums[MOMENTS] = {};
  for (i64 r = first + threadIdx.x; r < last; r += THREADS) {
    double share = counted[r], w = (weight[r] - base) * share, g = target[r] - aim;
    double error = VALUE_NET >= 0 ? (double)(target[r] - value[r]) : 0.0;
    sums[MOMENT_COUNT] += share;
    sums[MOMENT_WEIGHT] += w;
    sums[MOMENT_WEIGHT_2] += w * w;
    sums[MOMENT_TARGET] += g;
    sums[MOMENT_TARGET_2] += g * g;
    sums[MOMENT_ERROR] += error;
    sums[MOMENT_ERROR_2] += error * error;
    sums[MOMENT_TOTAL_RETURN] += share * target[r];
  }
  double sum = block_sums<MOMENTS>(sums, room);
  if (threadIdx.x < MOMENTS) moment_sums[blockIdx.x * MOMENTS + threadIdx.x] = sum;
}

// One block per update computes how `weight` is normalised there. weighing [Q, 3]: mean, 1 / deviation, 1 / rows that
// count. The first block also writes the rollout's statistics, and the beginning of `state`.
extern "C" __global__ void __launch_bounds__(WEIGHERS)
    weigh(const float* weight, const float* counted, const int* order, const double* moment_sums, const double* live,
          double* weighing, double* stats, double* state, i64 rows, i64 size) {
  __shared__ double room[WEIGHERS / WARP * 3], sums[3];
  i64 per_epoch = rows / size, first = blockIdx.x / per_epoch * rows + blockIdx.x % per_epoch * size;
  double base = weight[order[first]], own_sums[3] = {};
#pragma unroll 4
  for (i64 i = first + threadIdx.x; i < first + size; i += WEIGHERS) {
    double share = counted[order[i]], w = (weight[order[i]] - base) * share;
    own_sums[0] += share;
    own_sums[1] += w;
    own_sums[2] += w * w;
  }
  double sum = block_sums<3, WEIGHERS>(own_sums, room);
  if (threadIdx.x < 3) sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  double count = sums[0] > 1.0 ? sums[0] : 1.0, mean = sums[1] / count, squares = sums[2];
  double all[MOMENTS] = {}, inverse = 1.0, shift = 0.0;
  for (int part = 0; part < JUDGES; part++)
    for (int k = 0; k < MOMENTS; k++) all[k] += moment_sums[part * MOMENTS + k];
  double whole = all[MOMENT_COUNT] > 1.0 ? all[MOMENT_COUNT] : 1.0, centre = all[MOMENT_WEIGHT] / whole;
  double variance = all[MOMENT_WEIGHT_2] / whole - centre * centre, deviation = sqrt(variance < 0.0 ? 0.0 : variance);
  centre = all[MOMENT_COUNT] > 0.0 ? centre + weight[0] : 0.0;
  if (NORMALIZE == 1) {
    variance = squares / count - mean * mean;
    shift = mean + base, inverse = 1.0 / (sqrt(variance < 0.0 ? 0.0 : variance) + 1e-8);
  } else if (NORMALIZE == 2) {
    shift = centre, inverse = 1.0 / (deviation + 1e-8);
  }
  double* here = weighing + 3 * blockIdx.x;
  here[0] = shift, here[1] = inverse, here[2] = 1.0 / count;
  if (blockIdx.x) return;
  double spread = all[MOMENT_TARGET_2] - all[MOMENT_TARGET] * all[MOMENT_TARGET] / rows;
  double left = all[MOMENT_ERROR_2] - all[MOMENT_ERROR] * all[MOMENT_ERROR] / rows;
  stats[STAT_WEIGHT_MEAN] = centre, stats[STAT_WEIGHT_STD] = deviation;
  stats[STAT_RETURN_MEAN] = all[MOMENT_TOTAL_RETURN] / whole;
  stats[STAT_EXPLAINED] = spread > 0.0 ? 1.0 - left / spread : NOT_A_NUMBER;
  state[MADE] = live[LIVE_STEP], state[HALTED] = 0.0;
}

template <int NET>
DEVICE void gradient_of(const float* parameters, const Rows& rows, const Worth& worth, const int* order,
                        const double* live, const double* weighing, i64 size, int parts, float* metrics,
                        float* gradient_part, float* shared) {
  fetch<NET>(parameters, shared);
  i64 tiles = (size + TILE - 1) / TILE, begin = blockIdx.x * tiles / parts, end = (blockIdx.x + 1) * tiles / parts;
  float mean = (float)weighing[0], inverse = (float)weighing[1], share = (float)weighing[2], each = 1.0f / (float)size;
  for (i64 tile = begin; tile < end; tile++) {
    note_rows(order, tile * TILE, size, shared);
    __syncthreads();
    encode(rows.obs, shared);
    fetch_worth(worth, shared);
    __syncthreads();
    forward<NET>(parameters, shared);
    if (threadIdx.x < TILE) {
      float *z = shared + OUT_AT + threadIdx.x * OUT_ROW, *p = shared + PROBS_AT + threadIdx.x * OUT_ROW;
      int row = ((const int*)shared)[ROWS_AT + threadIdx.x];
      if (row < 0) {
        for (int k = 0; k < OUT_ROW; k++) z[k] = p[k] = 0.0f;
      } else {
        float value = NET == VALUE_NET ? z[VALUE_ROW >= 0 ? VALUE_ROW : 0] : 0.0f;
        const float* mine_worth = shared + WORTH_AT + threadIdx.x;
        float old = mine_worth[0], weight = (mine_worth[TILE] - mean) * inverse, part = share * mine_worth[2 * TILE];
        if constexpr (NET == 0) actor_loss(rows, row, parameters, live, old, weight, part, z, p, metrics);
        if constexpr (NET == VALUE_NET)
          z[VALUE_ROW] = critic_loss(value, mine_worth[3 * TILE], mine_worth[4 * TILE], each, live, metrics);
      }
    }
    __syncthreads();
    bool first = tile == begin;
    if (NET == 0 && GAUSSIAN) add_bias(shared + PROBS_AT, OUT_ROW, ACTIONS, gradient_part + LOG_STD, first);
    backward<NET>(shared, gradient_part, first);
    __syncthreads();  // before the next tile, or the next net
  }
}

// Each block computes the gradient of a part of minibatch `update`: `partial` [parts, P], and `sums` for metrics,
// [parts, METRIC_SUMS].
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gradient(const float* parameters, const float* centre, const float* scale, const void* obs, const void* action,
             const u8* mask, const float* log_prob, const float* weight, const float* counted, const float* value,
             const float* target, const int* order, const double* live, const double* weighing, const double* state,
             float* partial, float* sums, i64 rows, i64 size, int update, int floats) {
  if (state[2 * update + HALTED] != 0.0) return;
  DYNAMIC_SHARED(shared);
  i64 per_epoch = rows / size;
  order += update / per_epoch * rows + update % per_epoch * size;
  weighing += 3 * update;
  Rows seen = {obs, action, mask};
  Worth worth = {log_prob, weight, counted, value, target};
  float metrics[METRIC_SUMS] = {}, *gradient_part = partial + (i64)blockIdx.x * floats;
  fetch_scaling(centre, scale, shared);
  gradient_of<0>(parameters, seen, worth, order, live, weighing, size, gridDim.x, metrics, gradient_part, shared);
  if constexpr (NETS > 1)
    gradient_of<1>(parameters, seen, worth, order, live, weighing, size, gridDim.x, metrics, gradient_part, shared);
  if (threadIdx.x < TILE)
    for (int k = 0; k < METRIC_SUMS; k++) shared[METRICS_AT + threadIdx.x * METRIC_SUMS + k] = metrics[k];
  __syncthreads();
  add_bias(shared + METRICS_AT, METRIC_SUMS, METRIC_SUMS, sums + blockIdx.x * METRIC_SUMS, true);
}

// Adds the parts of the gradient [P] in a fixed order, COLUMNS floats per block. `squares` [blocks, 3]: sums of squares
// by part of the agent, `belongs` [P] (0 actor, 1 critic, 2 trunk). The last block adds up `sums` to `totals`
// [METRIC_SUMS].
extern "C" __global__ void __launch_bounds__(THREADS)
    reduce(const float* partial, const float* sums, const u8* belongs, const double* state, float* gradient,
           double* squares, double* totals, int update, int parts, int floats) {
  if (state[2 * update + HALTED] != 0.0) return;
  __shared__ float4 room[THREADS];
  __shared__ double sums_of_warp[COLUMNS / WARP * 3];
  int column = threadIdx.x % (COLUMNS / 4), group = threadIdx.x / (COLUMNS / 4);
  int first = blockIdx.x * COLUMNS, at = first + 4 * column;
  if (blockIdx.x == gridDim.x - 1) {
    int metric = threadIdx.x / WARP;  // one warp for each sum
    double sum = 0.0;
    for (int part = threadIdx.x % WARP; part < parts && metric < METRIC_SUMS; part += WARP)
      sum += sums[part * METRIC_SUMS + metric];
    sum = warp_sum(sum);
    if (metric < METRIC_SUMS && threadIdx.x % WARP == 0) totals[metric] = sum;
    return;
  }
  float4 sum = {};
#pragma unroll 4
  for (int part = group; part < parts && at < floats; part += GROUPS)
    add(sum, 1.0f, four(partial + (i64)part * floats + at));
  room[threadIdx.x] = sum;
  __syncthreads();
  if (group == 0) {
    for (int k = 1; k < GROUPS; k++) add(sum, 1.0f, room[k * (COLUMNS / 4) + column]);
    room[column] = sum;
    if (at < floats) *(float4*)(gradient + at) = sum;
  }
  __syncthreads();
  if (threadIdx.x < COLUMNS) {  // whole warps
    bool exists = first + threadIdx.x < floats;
    double slope = exists ? (&room[0].x)[threadIdx.x] : 0.0;
    int owner = exists ? belongs[first + threadIdx.x] : 0;
    for (int part = 0; part < 3; part++) {
      double sum = warp_sum(owner == part ? slope * slope : 0.0);
      if (threadIdx.x % WARP == 0) sums_of_warp[threadIdx.x / WARP * 3 + part] = sum;
    }
  }
  __syncthreads();
  if (threadIdx.x < 3) {
    double total = 0.0;
    for (int warp = 0; warp < COLUMNS / WARP; warp++) total += sums_of_warp[warp * 3 + threadIdx.x];
    squares[3 * blockIdx.x + threadIdx.x] = total;
  }
}

DEVICE bool is_finite(double x) { return x - x == 0.0; }

// Returns beta^made; made is a whole number.
DEVICE double power(double beta, double made) { return beta > 0.0 ? simd_math::exp(made * simd_math::log(beta)) : 0.0; }

// A step of Adam, one thread per float: m += (1 - b1) (g - m), v = b2 v + (1 - b2) g^2,
// p = p shrunk - step m / (sqrt(v) correction + eps). Weight decay: AdamW shrinks p; Adam adds it to g after clipping.
extern "C" __global__ void __launch_bounds__(THREADS)
    descend(const float* gradient, const double* squares, const double* totals, const double* live, const u8* poisoned,
            float* parameters, float* first, float* second, double* state, double* stats, int update, int blocks,
            int floats) {
  __shared__ double of_part[3];
  double *before = state + 2 * update, *after = before + 2, made = before[MADE];
  bool is_last = blockIdx.x == gridDim.x - 1 && threadIdx.x == THREADS - 1, halted = before[HALTED] != 0.0;
  int part = threadIdx.x / WARP;  // one warp for each part
  double squared = 0.0;
  for (int k = threadIdx.x % WARP; k < blocks && part < 3 && !halted; k += WARP) squared += squares[3 * k + part];
  squared = warp_sum(squared);
  if (part < 3 && threadIdx.x % WARP == 0) of_part[part] = squared;
  __syncthreads();
  if (halted) {
    if (is_last) after[MADE] = made, after[HALTED] = 1.0;
    return;
  }
  double norm = sqrt(of_part[0] + of_part[1] + of_part[2]);
  bool lost = !is_finite(totals[SUM_POLICY_LOSS] + totals[SUM_VALUE_LOSS] + totals[SUM_ENTROPY]);
  bool broken = lost || !is_finite(norm), stops = totals[SUM_KL] > live[LIVE_KL_LIMIT];
  bool steps = !broken && !stops && !*poisoned;
  int at = blockIdx.x * THREADS + threadIdx.x;
  if (steps && at < floats) {
    double rate = live[LIVE_LEARNING_RATE], scale = live[LIVE_MAX_NORM] / (norm + 1e-6);
    float step = (float)(rate / (1.0 - power(live[LIVE_BETA_1], made + 1.0)));
    float correction = (float)(1.0 / sqrt(1.0 - power(live[LIVE_BETA_2], made + 1.0)));
    float p = parameters[at], g = gradient[at] * (float)(scale < 1.0 ? scale : 1.0);
    g += DECOUPLED ? 0.0f : (float)live[LIVE_DECAY] * p;
    float m = first[at] + (float)(1.0 - live[LIVE_BETA_1]) * (g - first[at]);
    float v = (float)live[LIVE_BETA_2] * second[at] + (float)(1.0 - live[LIVE_BETA_2]) * g * g;
    first[at] = m, second[at] = v;
    float shrunk = DECOUPLED ? p * (float)(1.0 - rate * live[LIVE_DECAY]) : p;
    parameters[at] = shrunk - step * m / (sqrtf(v) * correction + (float)live[LIVE_EPSILON]);
  }
  if (!is_last) return;
  after[MADE] = made + (steps ? 1.0 : 0.0), after[HALTED] = stops;
  for (int k = 0; k < METRIC_SUMS; k++) stats[k] += totals[k];
  for (int k = 0; k < 3; k++) stats[STAT_NORM_ACTOR + k] += sqrt(of_part[k]);
  stats[STAT_NORM_TOTAL] += norm;
  stats[STAT_UPDATES] += 1.0;
  stats[STAT_STOPPED] += stops, stats[STAT_HALTED] = stops;
  stats[STAT_LOST] += lost, stats[STAT_BROKEN] += broken;
}
