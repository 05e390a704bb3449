// Forward and backward pass of an on-policy agent's nets for a tile of samples, by one block, one net at a time.
//
// Weights and the activations of every layer for the tile are in shared memory. A thread computes pieces of 4 x 4
// results of a matrix product. Each result is one sum: the bias, then one input after the other; a head's output is
// added in eight parts, as in rollout.cuh. In the backward pass the loss's gradient at a layer ("slope") overwrites the
// layer's activations. Small sums over the tile's samples are divided among SHARERS neighbouring threads, which add
// their parts by pairs. Sizes, defined by learn.py:
//   TILE                             samples that pass through the nets together
//   FEATURES, HIDDEN, OUTPUTS        widths: of the input, the hidden layers (padded by plan/layout.py), each head
//   NETS, DEPTH                      number of nets, and of hidden layers of each
//   WEIGHTS, BIASES                  offsets of each layer of each net in `parameters`
//   RELU, ONE_HOT                    1: ReLU, 0: tanh; 1: features are one-hot, 0: numbers, (x - centre) * scale
//   ROLLING, VARIANCE_ADDED, BOUND   the scale is 1 / sqrt(variance + VARIANCE_ADDED), and features are within +-BOUND
//   PRECISION                        bits of a factor in products of two hidden layers: 32, tf32: 19, bf16: 16
#include "utils/tensor_cores.cuh"

const int THREADS = 256, QUARTER = TILE / 4, SHARERS = 4, HEAD_PARTS = 8;

struct Layer {
  int inner, width, weight, bias;
  int row, bias_at, weight_at, end;  // in shared memory: floats from row to row; offsets of bias, weights, end
  bool read;                         // weights stay in global memory: a one-hot input needs few of them
};

DEVICE constexpr int whole(int floats) { return (floats + 3) / 4 * 4; }

DEVICE constexpr int width_of(int net, int number) {
  const int hidden[] = {HIDDEN}, outputs[] = {OUTPUTS};
  return number < DEPTH ? hidden[number] : outputs[net];
}

// Weights are [inner, width] for the first layer, [width, inner] for others, with 4 floats between rows: threads that
// read neighbouring rows then use different memory banks.
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

DEVICE constexpr int larger(int a, int b) { return a > b ? a : b; }
const int X_ROW = FEATURES | 1;  // odd, so that neighbouring samples are in different banks
const int OUT_ROW = larger(width_of(0, DEPTH), width_of(NETS - 1, DEPTH)) | 1;

// Where a layer's activations [TILE, width + 4] are in shared memory: behind the weights of the larger net.
DEVICE constexpr int activations_at(int number) {
  int at = larger(layer_at(0, DEPTH).end, layer_at(NETS - 1, DEPTH).end);
  for (int k = 0; k < number; k++) at += TILE * (width_of(0, k) + 4);
  return at;
}
const int X_AT = activations_at(DEPTH), OUT_AT = X_AT + (ONE_HOT ? 0 : TILE * X_ROW);
const int PROBS_AT = OUT_AT + TILE * OUT_ROW;                 // probabilities; GAUSSIAN: slopes of log_std
const int SCALE_AT = whole(PROBS_AT + TILE * OUT_ROW);        // centre, then scale
const int ROWS_AT = SCALE_AT + (ONE_HOT ? 0 : 2 * FEATURES);  // int [2, TILE]: each sample's row; index if one-hot
const int METRICS_AT = ROWS_AT + 2 * TILE;                       // sums for metrics, [TILE, METRIC_SUMS]

// Copies layer NUMBER and the later ones to shared memory.
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

// Computes the features of the rows whose numbers are at ROWS_AT; a number below 0 marks an unused sample of the tile.
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

// Returns the slope at an activation's input; `slope` is that at its output `y`.
DEVICE float backprop(float slope, float y) { return RELU ? (y > 0.0f ? slope : 0.0f) : fmaf(-(slope * y), y, slope); }

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

// Computes hidden layer NUMBER and the later ones. A thread computes 4 samples that are QUARTER apart, and 4 units.
template <int NET, int NUMBER = 0>
DEVICE void hidden_layers(const float* parameters, float* shared) {
  constexpr Layer layer = layer_at(NET, NUMBER);
  const int fours = layer.width / 4, out_row = layer.width + 4;
  float* out = shared + activations_at(NUMBER);
  if constexpr (NUMBER > 0 && PRECISION < 32) {
    multiply<PRECISION == 16, TILE, layer.width, layer.inner>(
        {shared + activations_at(NUMBER - 1), layer.row, 1}, {shared + layer.weight_at, 1, layer.row},
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
      const float *x = shared + activations_at(NUMBER - 1) + sample * layer.row, *weight = shared + layer.weight_at;
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
  if constexpr (NUMBER + 1 < DEPTH) hidden_layers<NET, NUMBER + 1>(parameters, shared);
}

// Computes a net and its head's outputs [TILE, OUT_ROW], at OUT_AT.
template <int NET>
DEVICE void forward(const float* parameters, float* shared) {
  hidden_layers<NET>(parameters, shared);
  constexpr Layer layer = layer_at(NET, DEPTH);
  for (int piece = threadIdx.x; piece < TILE * layer.width; piece += THREADS) {
    int sample = piece % TILE, output = piece / TILE;
    const float *x = shared + activations_at(DEPTH - 1) + sample * layer.row, *weight = shared + layer.weight_at;
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

// Returns four numbers of the gradient from earlier tiles; 0 for the first tile.
DEVICE float4 sum_so_far(const float* at, bool first) { return first ? float4{0.0f, 0.0f, 0.0f, 0.0f} : four(at); }

// Adds the sums of SHARERS neighbouring threads; all of them get the result.
DEVICE void join_sums(float& sum) {
#pragma unroll
  for (int lanes = 1; lanes < SHARERS; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
}

DEVICE void join_sums(float4& sum) { join_sums(sum.x), join_sums(sum.y), join_sums(sum.z), join_sums(sum.w); }

// Computes `count` sums over the tile: calls add(number, sample, sum) for the samples of a thread, then one of the
// SHARERS threads calls end(number, sum).
template <class Sum, class Add, class End>
DEVICE void shared_sums(int count, const Add& add, const End& end) {
  int part = threadIdx.x % SHARERS;
  for (int round = 0; round < count; round += THREADS / SHARERS) {
    int number = round + threadIdx.x / SHARERS;
    Sum sum = {};
#pragma unroll 4
    for (int sample = part; sample < TILE && number < count; sample += SHARERS) add(number, sample, sum);
    join_sums(sum);
    if (part == 0 && number < count) end(number, sum);
  }
}

// Adds to `gradient_part` the gradient of a layer's bias: the sums over the tile of its slopes [TILE, row].
DEVICE void add_bias(const float* slopes, int row, int width, float* gradient_part, bool first) {
  shared_sums<float>(
      width, [=](int unit, int sample, float& sum) { sum += slopes[sample * row + unit]; },
      [=](int unit, float sum) { gradient_part[unit] = (first ? 0.0f : gradient_part[unit]) + sum; });
}

// Backward pass from the slopes at hidden layer NUMBER down: adds to `gradient_part`, the gradient of this block.
template <int NET, int NUMBER>
DEVICE void backward_from(float* shared, float* gradient_part, bool first) {
  constexpr Layer layer = layer_at(NET, NUMBER);
  const int row = layer.width + 4;
  const float* slope = shared + activations_at(NUMBER);
  float* gradient = gradient_part + layer.weight;
  add_bias(slope, row, layer.width, gradient_part + layer.bias, first);
  if constexpr (NUMBER > 0) {
    float* inputs = shared + activations_at(NUMBER - 1);
    const int fours = layer.inner / 4;
    if constexpr (PRECISION < 32) {
      multiply<PRECISION == 16, layer.width, layer.inner, TILE>(
          {slope, 1, row}, {inputs, layer.row, 1},
          [=](int unit, int input) { return first ? 0.0f : gradient[unit * layer.inner + input]; },
          [=](int unit, int input, float sum) { gradient[unit * layer.inner + input] = sum; });
    } else for (int piece = threadIdx.x; piece < fours * layer.width / 4; piece += THREADS) {
      int input = 4 * (piece % fours), unit = 4 * (piece / fours);
      float4 sum[4];
#pragma unroll
      for (int j = 0; j < 4; j++) sum[j] = sum_so_far(gradient + (unit + j) * layer.inner + input, first);
#pragma unroll 4
      for (int sample = 0; sample < TILE; sample++) {
        float4 of_unit = four(slope + sample * row + unit), x = four(inputs + sample * layer.row + input);
        add(sum[0], of_unit.x, x);
        add(sum[1], of_unit.y, x);
        add(sum[2], of_unit.z, x);
        add(sum[3], of_unit.w, x);
      }
#pragma unroll
      for (int j = 0; j < 4; j++) *(float4*)(gradient + (unit + j) * layer.inner + input) = sum[j];
    }
    __syncthreads();  // the layer's inputs have been read; now their slopes overwrite them
    if constexpr (PRECISION < 32) {
      multiply<PRECISION == 16, TILE, layer.inner, layer.width>(
          {slope, row, 1}, {shared + layer.weight_at, layer.row, 1}, [](int, int) { return 0.0f; },
          [=](int sample, int input, float sum) {
            float* at = inputs + sample * layer.row + input;
            *at = backprop(sum, *at);
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
        float* at = inputs + (sample + QUARTER * i) * layer.row + input;
        float4 y = four(at);
        *(float4*)at = {backprop(sum[i].x, y.x), backprop(sum[i].y, y.y), backprop(sum[i].z, y.z),
                        backprop(sum[i].w, y.w)};
      }
    }
    __syncthreads();
    backward_from<NET, NUMBER - 1>(shared, gradient_part, first);
  } else if (ONE_HOT) {
    const int* index = (const int*)shared + ROWS_AT + TILE;
    for (int unit = threadIdx.x; unit < layer.width; unit += THREADS) {  // one thread adds for all samples
      for (int k = 0; first && k < FEATURES; k++) gradient[k * layer.width + unit] = 0.0f;
      for (int sample = 0; sample < TILE; sample++)
        gradient[index[sample] * layer.width + unit] += slope[sample * row + unit];
    }
  } else {
    const int fours = layer.width / 4;
    shared_sums<float4>(
        FEATURES * fours,
        [=](int piece, int sample, float4& sum) {
          add(sum, shared[X_AT + sample * X_ROW + piece / fours], four(slope + sample * row + 4 * (piece % fours)));
        },
        [=](int piece, float4 sum) {
          float* at = gradient + 4 * piece;
          add(sum, 1.0f, sum_so_far(at, first));
          *(float4*)at = sum;
        });
  }
}

// Backward pass of a net. The head's outputs at OUT_AT must have been replaced by the loss's slopes there.
template <int NET>
DEVICE void backward(float* shared, float* gradient_part, bool first) {
  constexpr Layer layer = layer_at(NET, DEPTH);
  const int fours = layer.inner / 4;
  const float* slope = shared + OUT_AT;
  float *inputs = shared + activations_at(DEPTH - 1), *gradient = gradient_part + layer.weight;
  add_bias(slope, OUT_ROW, layer.width, gradient_part + layer.bias, first);
  shared_sums<float4>(
      layer.width * fours,
      [=](int piece, int sample, float4& sum) {
        add(sum, slope[sample * OUT_ROW + piece / fours], four(inputs + sample * layer.row + 4 * (piece % fours)));
      },
      [=](int piece, float4 sum) {
        float* at = gradient + 4 * piece;
        add(sum, 1.0f, sum_so_far(at, first));
        *(float4*)at = sum;
      });
  __syncthreads();
  for (int piece = threadIdx.x; piece < TILE * fours; piece += THREADS) {
    int input = 4 * (piece % fours), sample = piece / fours;
    float4 sum = {}, y = four(inputs + sample * layer.row + input);
    for (int output = 0; output < layer.width; output++)
      add(sum, slope[sample * OUT_ROW + output], four(shared + layer.weight_at + output * layer.row + input));
    *(float4*)(inputs + sample * layer.row + input) = {backprop(sum.x, y.x), backprop(sum.y, y.y),
                                                       backprop(sum.z, y.z), backprop(sum.w, y.w)};
  }
  __syncthreads();
  backward_from<NET, DEPTH - 1>(shared, gradient_part, first);
}
