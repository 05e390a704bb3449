// The GPU version of MiniGrid-Unlock: exactly the results of unlock.py.
#include "envs_fast/minigrid/tasks.cuh"

DEVICE bool step(State state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  bool over = act(state, action, moment, parameters, reward);
  if (action != TOGGLE || is_shut(state[state[THE_DOOR]])) return over;
  reward = success(moment, parameters);
  return true;
}

DEVICE void reset(State state, const Episode& episode, const Parameters& parameters, const Tables& tables) {
  build(state, parameters);
  int colour = pick(state, episode, 0, COLOURS), door = door_row(episode, parameters, TO_THE_RIGHT);
  state[THE_DOOR] = door;
  state[door] = painted(DOOR, colour) + STATE * LOCKED;
  stand(state, NOWHERE, NOWHERE, 0);
  place(state, parameters, episode, area(parameters, 0, 0), painted(KEY, colour));
  place_agent(state, parameters, episode, 0, 0);
}

GRID_KERNELS(unlock)
