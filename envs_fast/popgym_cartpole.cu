// popgym-PositionOnlyCartPole*-v0 on a GPU: popgym_cartpole.py, bit for bit.
#include "envs_fast/cartpole.cuh"
#include "envs_fast/popgym_cartpole.py"

typedef Row<float, SEEN> Seen;

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  return {(float)state.x, (float)state.theta};
}

WORLD_KERNELS(popgym_cartpole)
