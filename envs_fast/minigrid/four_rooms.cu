// The GPU version of MiniGrid-FourRooms: exactly the results of four_rooms.py.
#include "envs_fast/minigrid/tasks.cuh"

DEVICE bool step(State state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  return act(state, action, moment, parameters, reward);
}

DEVICE void reset(State state, const Episode& episode, const Parameters& parameters, const Tables& tables) {
  int side = (int)parameters.width, middle = side / 2;
  begin(state, parameters);
  stack(state, parameters, middle, 0, side, STONE);
  line(state, parameters, 0, middle, side, STONE);
  for (int first = 0; first <= middle; first += middle) {
    put(state, parameters, middle, pick(state, episode, first + 1, first + middle), EMPTY);
    put(state, parameters, pick(state, episode, first + 1, first + middle), middle, EMPTY);
  }
  place_agent(state, parameters, episode, everywhere(parameters));
  place(state, parameters, episode, everywhere(parameters), FINISH);
}

GRID_KERNELS(four_rooms)
