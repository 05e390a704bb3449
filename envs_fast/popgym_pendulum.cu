// The GPU version of popgym-PositionOnlyPendulum*-v0: the same results as popgym_pendulum.py, bit for bit.
#include "envs_fast/pendulum.cuh"
#include "envs_fast/popgym_pendulum.py"

typedef Row<float, SEEN> Seen;

struct Parameters {
  double pull, scale, time_limit;
};

DEVICE bool legal(float& action, const Parameters& parameters, const Tables& tables) { return number(action); }

DEVICE bool step(State& state, float action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  reward = (HALF - swing(state, action, parameters.pull)) * parameters.scale;
  return false;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  return first_state(episode);
}

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  double sine, cosine;
  simd_math::sincos(state.theta, sine, cosine);
  return {(float)cosine, (float)sine};
}

WORLD_KERNELS(popgym_pendulum)
