// The GPU version of CartPole-v1: the same results as cartpole.py, bit for bit.
#include "envs_fast/cartpole.cuh"

typedef Row<float, WIDTH> Seen;

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  return {(float)state.x, (float)state.x_dot, (float)state.theta, (float)state.theta_dot};
}

WORLD_KERNELS(cartpole)
