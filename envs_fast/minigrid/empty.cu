// The GPU version of MiniGrid-Empty: exactly the results of empty.py.
#include "envs_fast/minigrid/tasks.cuh"

DEVICE bool step(State state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  return act(state, action, moment, parameters, reward);
}

DEVICE void reset(State state, const Episode& episode, const Parameters& parameters, const Tables& tables) {
  begin(state, parameters);
  put(state, parameters, (int)parameters.width - 2, (int)parameters.height - 2, FINISH);
  if (parameters.anywhere != 0.0)
    place_agent(state, parameters, episode, everywhere(parameters));
  else
    stand(state, 1, 1, 0);
}

GRID_KERNELS(empty)
