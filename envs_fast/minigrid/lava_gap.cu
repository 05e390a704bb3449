// The GPU version of MiniGrid-LavaGap: exactly the results of lava_gap.py.
#include "envs_fast/minigrid/tasks.cuh"

DEVICE bool step(State state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  return act(state, action, moment, parameters, reward);
}

DEVICE void reset(State state, const Episode& episode, const Parameters& parameters, const Tables& tables) {
  int size = (int)parameters.width;
  begin(state, parameters);
  stand(state, 1, 1, 0);
  put(state, parameters, size - 2, size - 2, FINISH);
  int x = pick(state, episode, 2, size - 2), y = pick(state, episode, 1, size - 1);
  stack(state, parameters, x, 1, size - 2, FIRE);
  put(state, parameters, x, y, EMPTY);
}

GRID_KERNELS(lava_gap)
