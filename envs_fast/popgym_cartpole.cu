// The GPU version of popgym-PositionOnlyCartPole*-v0: the same results as popgym_cartpole.py, bit for bit.
#include "envs_fast/cartpole.cuh"
#include "envs_fast/popgym_cartpole.py"

typedef Row<float, SEEN> Seen;

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  return {(float)state.x, (float)state.theta};
}

WORLD_KERNELS(popgym_cartpole)
