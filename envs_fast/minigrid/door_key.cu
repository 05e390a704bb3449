// The GPU version of MiniGrid-DoorKey: exactly the results of door_key.py.
#include "envs_fast/minigrid/tasks.cuh"

DEVICE bool step(State state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  return act(state, action, moment, parameters, reward);
}

DEVICE void reset(State state, const Episode& episode, const Parameters& parameters, const Tables& tables) {
  int width = (int)parameters.width, height = (int)parameters.height;
  begin(state, parameters);
  put(state, parameters, width - 2, height - 2, FINISH);
  int wall = pick(state, episode, 2, width - 2);
  stack(state, parameters, wall, 0, height, STONE);
  Area left = {0, 0, wall, height};
  place_agent(state, parameters, episode, left);
  put(state, parameters, wall, pick(state, episode, 1, height - 2), painted(DOOR, YELLOW) + STATE * LOCKED);
  place(state, parameters, episode, left, painted(KEY, YELLOW));
}

GRID_KERNELS(door_key)
