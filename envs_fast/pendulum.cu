// The GPU version of Pendulum-v1: the same results as pendulum.py, bit for bit.
#include "envs_fast/pendulum.cuh"

typedef Row<float, WIDTH> Seen;

struct Parameters {
  double pull, time_limit;
};

DEVICE bool legal(float& action, const Parameters& parameters, const Tables& tables) { return number(action); }

DEVICE bool step(State& state, float action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  reward = -swing(state, action, parameters.pull);
  return false;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  return first_state(episode);
}

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  double sine, cosine;
  simd_math::sincos(state.theta, sine, cosine);
  return {(float)cosine, (float)sine, (float)state.speed};
}

WORLD_KERNELS(pendulum)
