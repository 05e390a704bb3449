// The GPU version of Bandit-v0: the same results as bandit.py, bit for bit.
#include "envs_fast/world.cuh"
#include "envs_fast/bandit.py"

typedef double Number;
typedef i64 Action;
typedef Row<i64, WIDTH> Seen;

struct State {};

struct Parameters {
  double episode_length, time_limit;
};

struct Tables {
  Table<double> means, stds;
};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) {
  return among(action, tables.means.size);
}

// A standard normal number, made of two uniforms by the method of Box and Muller.
DEVICE double gaussian(const Moment& moment) {
  Words w = draw_now(moment);
  double radius = sqrt(-2.0 * simd_math::log(1.0 - between(w.a, 0.0, 1.0)));
  return radius * simd_math::cos(between(w.b, 0.0, 2.0 * PI));
}

DEVICE bool step(State& state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  reward = tables.means.data[action] + tables.stds.data[action] * gaussian(moment);
  return moment.age + 1 >= parameters.episode_length;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) { return {}; }

DEVICE Seen observe(const State& state, const Parameters& parameters) { return {0}; }

WORLD_KERNELS(bandit)
