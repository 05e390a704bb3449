// The GPU version of bsuite/MemoryChain-v0: exactly the results of bsuite_memory_chain.py.
#include "envs_fast/world.cuh"
#include "envs_fast/bsuite_memory_chain.py"

typedef int Number;
typedef i64 Action;
typedef Row<float, WIDTH> Seen;

struct State {
  int timestep, bit;
};

struct Parameters {
  double memory_length, share, time_limit;
};

struct Tables {};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) { return among(action, 2); }

DEVICE bool step(State& state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  bool asked = state.timestep >= (int)parameters.memory_length;
  double answer = action == state.bit ? 1.0 : -1.0;
  reward = asked ? answer : 0.0;
  state.timestep += 1;
  return asked;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  return {0, (int)(draw(0, episode).a >> 31)};
}

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  int shown = state.timestep > 1 ? state.timestep - 1 : 0;
  double time = ((int)parameters.memory_length - shown) * parameters.share;
  return {(float)time, 0.0f, shown == 0 ? (float)(2.0 * state.bit - 1.0) : 0.0f};
}

WORLD_KERNELS(bsuite_memory_chain)
