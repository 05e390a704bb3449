// popgym-PositionOnlyCartPole*-v0 on a GPU: popgym_cartpole.py, bit for bit.
#include "envs_fast/cartpole.cuh"
#include "envs_fast/popgym_cartpole.py"

typedef double Number;
typedef i64 Action;
typedef Row<float, SEEN> Seen;

struct Parameters {
  double reward, reward_lost, time_limit;
};

struct Tables {};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) { return among(action, 2); }

DEVICE bool step(State& state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  bool lost = push(state, action);
  reward = lost ? parameters.reward_lost : parameters.reward;
  return lost;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  return first_state(episode);
}

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  return {(float)state.x, (float)state.theta};
}

WORLD_KERNELS(popgym_cartpole)
