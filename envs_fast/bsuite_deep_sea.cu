// The GPU version of bsuite/DeepSea-v0: the same results as bsuite_deep_sea.py, bit for bit.
#include "envs_fast/world.cuh"
#include "envs_fast/bsuite_deep_sea.py"

typedef int Number;
typedef i64 Action;
typedef Row<i64, WIDTH> Seen;

struct State {
  int row, column;
};

struct Parameters {
  double size, windy, chance, cost, time_limit;
};

struct Tables {
  Table<int> right;  // [size, size]: the action that goes right
};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) { return among(action, 2); }

// A standard normal number, made of two uniforms by the method of Box and Muller.
DEVICE double gaussian(const Words& w) {
  double radius = sqrt(-2.0 * simd_math::log(1.0 - between(w.a, 0.0, 1.0)));
  return radius * simd_math::cos(between(w.b, 0.0, 2.0 * PI));
}

DEVICE bool step(State& state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  int size = (int)parameters.size, last = size - 1, row = state.row, column = state.column;
  bool right = action == tables.right.data[row * size + column], goes = right;
  reward = right && column == last ? 1.0 : 0.0;
  if (parameters.windy != 0.0) {
    Words w = draw_now(moment);
    goes = right && between(w.c, 0.0, 1.0) > parameters.chance;
    double noise = gaussian(w);
    reward += row == last && (column == 0 || column == last) ? noise : 0.0;
  }
  reward -= right ? parameters.cost : 0.0;
  column += goes ? 1 : right ? 0 : -1;
  state = {row + 1, clip(column, 0, last)};
  return row >= last;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) { return {0, 0}; }

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  int size = (int)parameters.size, square = state.row * size + state.column;
  return {square < size * size ? square : size * size};
}

WORLD_KERNELS(bsuite_deep_sea)
