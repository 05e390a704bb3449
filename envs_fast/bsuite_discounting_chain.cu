// The GPU version of bsuite/DiscountingChain-v0: exactly the results of bsuite_discounting_chain.py.
#include "envs_fast/world.cuh"
#include "envs_fast/bsuite_discounting_chain.py"

typedef int Number;
typedef i64 Action;
typedef Row<float, WIDTH> Seen;

struct State {
  int timestep, chain;
};

struct Parameters {
  double best, time_limit;
};

struct Tables {};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) { return among(action, CHAINS); }

// The step after which a chain pays.
DEVICE int reward_step(int chain) {
  int early = chain == 0 ? REWARD_STEPS_0 : chain == 1 ? REWARD_STEPS_1 : REWARD_STEPS_2;
  return chain == 4 ? REWARD_STEPS_4 : chain == 3 ? REWARD_STEPS_3 : early;
}

DEVICE bool step(State& state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  state.chain = state.timestep == 0 ? (int)action : state.chain;
  state.timestep += 1;
  double pays = state.chain == (int)parameters.best ? BONUS : USUAL;
  reward = state.timestep == reward_step(state.chain) ? pays : 0.0;
  return state.timestep >= LENGTH;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) { return {0, -1}; }

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  return {(float)state.chain, (float)(state.timestep * (1.0 / LENGTH))};
}

WORLD_KERNELS(bsuite_discounting_chain)
