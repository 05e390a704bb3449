// The nets of an on-policy agent over a tile of samples, forward and backward, by one block, one net at a time.
//
// Weights, and the outputs of every layer for the tile, are in shared memory. A product is cut into pieces of 4 x 4 results
// for a thread; each is added up by itself, bias first, then one input after the other, and the head in eight parts, as
// rollout.cuh does. Going back, the slope of the loss at a layer takes the place of that layer's output. Small sums over
// the tile's samples are shared out to SHARERS neighbouring threads, which join theirs by pairs. Sizes, of learn.py:
//   TILE                             samples that pass through the nets together
//   FEATURES, HIDDEN, OUTPUTS        widths: of the input, of the hidden layers as plan/layout.py pads them, of each head
//   NETS, DEPTH                      how many nets there are, and hidden layers of each
//   WEIGHTS, BIASES                  where each layer of each net lies in `parameters`
//   RELU, ONE_HOT                    else tanh; else features are numbers, (x - centre) * scale
//   ROLLING, VARIANCE_ADDED, BOUND   with the scale from a variance, within bounds
//   PRECISION                        of what hidden layers multiply with one another: 32, else 19 is tf32, 16 is bf16
#include "utils/tensor_cores.cuh"

const int THREADS = 256, QUARTER = TILE / 4, SHARERS = 4, HEAD_PARTS = 8;

struct Layer {
  int inner, width, weight, bias;
  int row, bias_at, weight_at, end;  // in shared memory: floats from row to row of weights, where both begin, and end
  bool read;                         // its weights stay where they are: few of them are asked for
};

DEVICE constexpr int whole(int floats) { return (floats + 3) / 4 * 4; }

DEVICE constexpr int width_of(int net, int number) {
  const int hidden[] = {HIDDEN}, outputs[] = {OUTPUTS};
  return number < DEPTH ? hidden[number] : outputs[net];
}

// [inner, width] of the first layer, [width, inner] of others, whose rows are apart by another four, for the banks.
DEVICE constexpr Layer layer_at(int net, int number) {
  const int weights[] = {WEIGHTS}, biases[] = {BIASES};
  Layer layer = {};
  for (int k = 0; k <= number; k++) {
    layer.read = k == 0 && ONE_HOT;
    layer.inner = k ? width_of(net, k - 1) : FEATURES;
    layer.width = width_of(net, k);
    layer.row = k ? layer.inner + 4 : layer.width;
    layer.bias_at = layer.end;
    layer.weight_at = layer.end + whole(layer.width);
    layer.end = layer.weight_at + (layer.read ? 0 : (k ? layer.width : layer.inner) * layer.row);
  }
  layer.weight = weights[net * (DEPTH + 1) + number];
  layer.bias = biases[net * (DEPTH + 1) + number];
  return layer;
}

DEVICE constexpr int most(int a, int b) { return a > b ? a : b; }
const int X_ROW = FEATURES | 1;  // odd, so that neighbouring samples lie in different banks
const int OUT_ROW = most(width_of(0, DEPTH), width_of(NETS - 1, DEPTH)) | 1;

// Where the tile lies in shared memory, behind the weights of the larger net.
DEVICE constexpr int said_at(int number) {
  int at = most(layer_at(0, DEPTH).end, layer_at(NETS - 1, DEPTH).end);
  for (int k = 0; k < number; k++) at += TILE * (width_of(0, k) + 4);
  return at;
}
const int X_AT = said_at(DEPTH), OUT_AT = X_AT + (ONE_HOT ? 0 : TILE * X_ROW);
const int ODDS_AT = OUT_AT + TILE * OUT_ROW;                 // of choices; of numbers, the slope of their deviation
const int SCALE_AT = whole(ODDS_AT + TILE * OUT_ROW);        // centre, then scale
const int ROWS_AT = SCALE_AT + (ONE_HOT ? 0 : 2 * FEATURES);  // int: the row of each sample, then which feature is 1
const int TOLD_AT = ROWS_AT + 2 * TILE;                       // sums for the metrics, [TILE, TOLD]

template <int NET, int NUMBER = 0>
DEVICE void fetch(const float* parameters, float* shared) {
  constexpr Layer layer = layer_at(NET, NUMBER);
  const int columns = NUMBER ? layer.inner : layer.width, rows = NUMBER ? layer.width : layer.inner;
  for (int k = threadIdx.x; k < layer.width; k += THREADS) shared[layer.bias_at + k] = parameters[layer.bias + k];
  for (int k = threadIdx.x; !layer.read && k < rows * columns; k += THREADS)
    shared[layer.weight_at + k / columns * layer.row + k % columns] = parameters[layer.weight + k];
  if constexpr (NUMBER < DEPTH) fetch<NET, NUMBER + 1>(parameters, shared);
}

DEVICE void fetch_scaling(const float* centre, const float* scale, float* shared) {
  for (int k = threadIdx.x; !ONE_HOT && k < FEATURES; k += THREADS) {
    shared[SCALE_AT + k] = centre[k];
    shared[SCALE_AT + FEATURES + k] = ROLLING ? 1.0f / sqrtf(scale[k] + VARIANCE_ADDED) : scale[k];
  }
}

// Features of the rows that are noted in shared memory; those below 0 fill the tile up.
DEVICE void encode(const void* obs, float* shared) {
  const int* row = (const int*)shared + ROWS_AT;
  if (ONE_HOT) {
    int* index = (int*)shared + ROWS_AT + TILE;
    if (threadIdx.x < TILE) index[threadIdx.x] = row[threadIdx.x] < 0 ? 0 : (int)((const i64*)obs)[row[threadIdx.x]];
  } else {
    for (int k = threadIdx.x; k < TILE * FEATURES; k += THREADS) {
      int sample = k / FEATURES, feature = k % FEATURES;
      float value = 0.0f;
      if (row[sample] >= 0) {
        value = ((const float*)obs)[(i64)row[sample] * FEATURES + feature] - shared[SCALE_AT + feature];
        value *= shared[SCALE_AT + FEATURES + feature];
        value = ROLLING ? clip(value, -BOUND, BOUND) : value;
      }
      shared[X_AT + sample * X_ROW + feature] = value;
    }
  }
}

DEVICE float activation(float x) { return RELU ? (x < 0.0f ? 0.0f : x) : simd_math::tanh32(x); }

// What is left of a slope below an activation that said `y`.
DEVICE float below(float slope, float y) { return RELU ? (y > 0.0f ? slope : 0.0f) : fmaf(-(slope * y), y, slope); }

DEVICE float4 four(const float* at) { return *(const float4*)at; }

DEVICE void add(float4& sum, float x, const float4& y) {
  sum.x = fmaf(x, y.x, sum.x);
  sum.y = fmaf(x, y.y, sum.y);
  sum.z = fmaf(x, y.z, sum.z);
  sum.w = fmaf(x, y.w, sum.w);
}

DEVICE void add_each(float4& sum, const float4& x, const float4& y) {
  sum.x = fmaf(x.x, y.x, sum.x);
  sum.y = fmaf(x.y, y.y, sum.y);
  sum.z = fmaf(x.z, y.z, sum.z);
  sum.w = fmaf(x.w, y.w, sum.w);
}

DEVICE void add_dot(float& sum, const float4& x, const float4& y) {
  sum = fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, sum))));
}

// A hidden layer and those above it; a thread has samples QUARTER apart.
template <int NET, int NUMBER = 0>
DEVICE void think(const float* parameters, float* shared) {
  constexpr Layer layer = layer_at(NET, NUMBER);
  const int fours = layer.width / 4, out_row = layer.width + 4;
  float* out = shared + said_at(NUMBER);
  if constexpr (NUMBER > 0 && PRECISION < 32) {
    multiply<PRECISION == 16, TILE, layer.width, layer.inner>(
        {shared + said_at(NUMBER - 1), layer.row, 1}, {shared + layer.weight_at, 1, layer.row},
        [=](int, int unit) { return shared[layer.bias_at + unit]; },
        [=](int sample, int unit, float sum) { out[sample * out_row + unit] = activation(sum); });
  } else for (int piece = threadIdx.x; piece < fours * QUARTER; piece += THREADS) {
    int unit = piece % fours, sample = piece / fours;
    if constexpr (NUMBER == 0) {  // units side by side
      float4 sum[4];
#pragma unroll
      for (int i = 0; i < 4; i++) sum[i] = four(shared + layer.bias_at + 4 * unit);
      if (ONE_HOT) {
        const int* index = (const int*)shared + ROWS_AT + TILE + sample;
#pragma unroll
        for (int i = 0; i < 4; i++)
          add(sum[i], 1.0f, four(parameters + layer.weight + index[QUARTER * i] * layer.width + 4 * unit));
      } else {
        const float* x = shared + X_AT + sample * X_ROW;
        for (int k = 0; k < FEATURES; k++) {
          float4 weight = four(shared + layer.weight_at + k * layer.row + 4 * unit);
#pragma unroll
          for (int i = 0; i < 4; i++) add(sum[i], x[QUARTER * i * X_ROW + k], weight);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
        *(float4*)(out + (sample + QUARTER * i) * out_row + 4 * unit) = {activation(sum[i].x), activation(sum[i].y),
                                                                         activation(sum[i].z), activation(sum[i].w)};
    } else {  // units `fours` apart, so that threads read neighbouring rows of weights
      const float *x = shared + said_at(NUMBER - 1) + sample * layer.row, *weight = shared + layer.weight_at;
      float sum[4][4];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = shared[layer.bias_at + unit + fours * j];
#pragma unroll 1
      for (int k = 0; k < layer.inner; k += 4) {
        float4 of_unit[4];
#pragma unroll
        for (int j = 0; j < 4; j++) of_unit[j] = four(weight + (unit + fours * j) * layer.row + k);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          float4 of_sample = four(x + QUARTER * i * layer.row + k);
#pragma unroll
          for (int j = 0; j < 4; j++) add_dot(sum[i][j], of_sample, of_unit[j]);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) out[(sample + QUARTER * i) * out_row + unit + fours * j] = activation(sum[i][j]);
    }
  }
  __syncthreads();
  if constexpr (NUMBER + 1 < DEPTH) think<NET, NUMBER + 1>(parameters, shared);
}

// The whole net, and its head's outputs [TILE, OUT_ROW].
template <int NET>
DEVICE void forward(const float* parameters, float* shared) {
  think<NET>(parameters, shared);
  constexpr Layer layer = layer_at(NET, DEPTH);
  for (int piece = threadIdx.x; piece < TILE * layer.width; piece += THREADS) {
    int sample = piece % TILE, output = piece / TILE;
    const float *x = shared + said_at(DEPTH - 1) + sample * layer.row, *weight = shared + layer.weight_at;
    float4 even = {shared[layer.bias_at + output], 0.0f, 0.0f, 0.0f}, odd = {};  // eight parts, as rollout.cuh has them
#pragma unroll 2
    for (int k = 0; k < layer.inner; k += HEAD_PARTS) {
      add_each(even, four(x + k), four(weight + output * layer.row + k));
      add_each(odd, four(x + k + 4), four(weight + output * layer.row + k + 4));
    }
    float sum = ((even.x + even.y) + (even.z + even.w)) + ((odd.x + odd.y) + (odd.z + odd.w));
    shared[OUT_AT + sample * OUT_ROW + output] = sum;
  }
  __syncthreads();
}

// What a number of the gradient has been so far.
DEVICE float4 begun(const float* at, bool first) { return first ? float4{0.0f, 0.0f, 0.0f, 0.0f} : four(at); }

DEVICE void join(float& sum) {
#pragma unroll
  for (int lanes = 1; lanes < SHARERS; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
}

DEVICE void join(float4& sum) { join(sum.x), join(sum.y), join(sum.z), join(sum.w); }

// For each of `count` sums over the tile: add(number, sample, sum) for the samples of a thread, then end(number, sum) by
// one of the threads that share it.
template <class Sum, class Add, class End>
DEVICE void share(int count, const Add& add, const End& end) {
  int part = threadIdx.x % SHARERS;
  for (int round = 0; round < count; round += THREADS / SHARERS) {
    int number = round + threadIdx.x / SHARERS;
    Sum sum = {};
#pragma unroll 4
    for (int sample = part; sample < TILE && number < count; sample += SHARERS) add(number, sample, sum);
    join(sum);
    if (part == 0 && number < count) end(number, sum);
  }
}

// Adds to `mine` what the slopes [TILE, row] of a layer's units ask of its bias.
DEVICE void add_bias(const float* slopes, int row, int width, float* mine, bool first) {
  share<float>(
      width, [=](int unit, int sample, float& sum) { sum += slopes[sample * row + unit]; },
      [=](int unit, float sum) { mine[unit] = (first ? 0.0f : mine[unit]) + sum; });
}

// From the slopes at hidden layer NUMBER down: adds to `mine`, the block's part of the gradient.
template <int NET, int NUMBER>
DEVICE void descend_from(float* shared, float* mine, bool first) {
  constexpr Layer layer = layer_at(NET, NUMBER);
  const int row = layer.width + 4;
  const float* slope = shared + said_at(NUMBER);
  float* gradient = mine + layer.weight;
  add_bias(slope, row, layer.width, mine + layer.bias, first);
  if constexpr (NUMBER > 0) {
    float* under = shared + said_at(NUMBER - 1);
    const int fours = layer.inner / 4;
    if constexpr (PRECISION < 32) {
      multiply<PRECISION == 16, layer.width, layer.inner, TILE>(
          {slope, 1, row}, {under, layer.row, 1},
          [=](int unit, int input) { return first ? 0.0f : gradient[unit * layer.inner + input]; },
          [=](int unit, int input, float sum) { gradient[unit * layer.inner + input] = sum; });
    } else for (int piece = threadIdx.x; piece < fours * layer.width / 4; piece += THREADS) {
      int input = 4 * (piece % fours), unit = 4 * (piece / fours);
      float4 sum[4];
#pragma unroll
      for (int j = 0; j < 4; j++) sum[j] = begun(gradient + (unit + j) * layer.inner + input, first);
#pragma unroll 4
      for (int sample = 0; sample < TILE; sample++) {
        float4 of_unit = four(slope + sample * row + unit), x = four(under + sample * layer.row + input);
        add(sum[0], of_unit.x, x);
        add(sum[1], of_unit.y, x);
        add(sum[2], of_unit.z, x);
        add(sum[3], of_unit.w, x);
      }
#pragma unroll
      for (int j = 0; j < 4; j++) *(float4*)(gradient + (unit + j) * layer.inner + input) = sum[j];
    }
    __syncthreads();  // what the layer below said has been read, and becomes its slope
    if constexpr (PRECISION < 32) {
      multiply<PRECISION == 16, TILE, layer.inner, layer.width>(
          {slope, row, 1}, {shared + layer.weight_at, layer.row, 1}, [](int, int) { return 0.0f; },
          [=](int sample, int input, float sum) {
            float* at = under + sample * layer.row + input;
            *at = below(sum, *at);
          });
    } else for (int piece = threadIdx.x; piece < fours * QUARTER; piece += THREADS) {
      int input = 4 * (piece % fours), sample = piece / fours;
      float4 sum[4] = {};
#pragma unroll 1
      for (int unit = 0; unit < layer.width; unit += 4) {
        float4 weight[4];
#pragma unroll
        for (int j = 0; j < 4; j++) weight[j] = four(shared + layer.weight_at + (unit + j) * layer.row + input);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          float4 of_unit = four(slope + (sample + QUARTER * i) * row + unit);
          add(sum[i], of_unit.x, weight[0]);
          add(sum[i], of_unit.y, weight[1]);
          add(sum[i], of_unit.z, weight[2]);
          add(sum[i], of_unit.w, weight[3]);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float* at = under + (sample + QUARTER * i) * layer.row + input;
        float4 y = four(at);
        *(float4*)at = {below(sum[i].x, y.x), below(sum[i].y, y.y), below(sum[i].z, y.z), below(sum[i].w, y.w)};
      }
    }
    __syncthreads();
    descend_from<NET, NUMBER - 1>(shared, mine, first);
  } else if (ONE_HOT) {
    const int* index = (const int*)shared + ROWS_AT + TILE;
    for (int unit = threadIdx.x; unit < layer.width; unit += THREADS) {  // whoever has a unit adds for all samples
      for (int k = 0; first && k < FEATURES; k++) gradient[k * layer.width + unit] = 0.0f;
      for (int sample = 0; sample < TILE; sample++)
        gradient[index[sample] * layer.width + unit] += slope[sample * row + unit];
    }
  } else {
    const int fours = layer.width / 4;
    share<float4>(
        FEATURES * fours,
        [=](int piece, int sample, float4& sum) {
          add(sum, shared[X_AT + sample * X_ROW + piece / fours], four(slope + sample * row + 4 * (piece % fours)));
        },
        [=](int piece, float4 sum) {
          float* at = gradient + 4 * piece;
          add(sum, 1.0f, begun(at, first));
          *(float4*)at = sum;
        });
  }
}

// The whole way back, the head's outputs having been replaced by the slopes of the loss there.
template <int NET>
DEVICE void backward(float* shared, float* mine, bool first) {
  constexpr Layer layer = layer_at(NET, DEPTH);
  const int fours = layer.inner / 4;
  const float* slope = shared + OUT_AT;
  float *under = shared + said_at(DEPTH - 1), *gradient = mine + layer.weight;
  add_bias(slope, OUT_ROW, layer.width, mine + layer.bias, first);
  share<float4>(
      layer.width * fours,
      [=](int piece, int sample, float4& sum) {
        add(sum, slope[sample * OUT_ROW + piece / fours], four(under + sample * layer.row + 4 * (piece % fours)));
      },
      [=](int piece, float4 sum) {
        float* at = gradient + 4 * piece;
        add(sum, 1.0f, begun(at, first));
        *(float4*)at = sum;
      });
  __syncthreads();
  for (int piece = threadIdx.x; piece < TILE * fours; piece += THREADS) {
    int input = 4 * (piece % fours), sample = piece / fours;
    float4 sum = {}, y = four(under + sample * layer.row + input);
    for (int output = 0; output < layer.width; output++)
      add(sum, slope[sample * OUT_ROW + output], four(shared + layer.weight_at + output * layer.row + input));
    *(float4*)(under + sample * layer.row + input) = {below(sum.x, y.x), below(sum.y, y.y), below(sum.z, y.z),
                                                      below(sum.w, y.w)};
  }
  __syncthreads();
  descend_from<NET, DEPTH - 1>(shared, mine, first);
}
