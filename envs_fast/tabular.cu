// The GPU version of worlds that are a table of transitions: exactly the results of tabular.py.
// No random number is drawn where there is only one outcome or one first state.
#include "envs_fast/world.cuh"
#include "envs_fast/tabular.py"

typedef int Number;
typedef i64 Action;
typedef Row<i64, WIDTH> Seen;

struct State {
  int place;  // the number of the state
};

struct Parameters {
  double observations, actions, time_limit;
};

struct Tables {
  Table<int> next_state;  // this and the next two: [states, actions, outcomes]
  Table<double> rewards;
  Table<u8> ends;
  Table<double> thresholds;  // [outcomes - 1]
  Table<int> starts;
  Table<double> start_thresholds;
};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) {
  return among(action, (i64)parameters.actions);
}

DEVICE double uniform(const Words& words) { return between(words.a, 0.0, 1.0); }

// Returns how many of the ascending thresholds are <= uniform, by binary search.
DEVICE i64 passed(double uniform, const Table<double>& thresholds) {
  i64 low = 0, high = thresholds.size;
  while (low < high) {
    i64 middle = (low + high) / 2;
    bool beyond = uniform >= thresholds.data[middle];
    low = beyond ? middle + 1 : low;
    high = beyond ? high : middle;
  }
  return low;
}

DEVICE bool step(State& state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  i64 outcome = tables.thresholds.size ? passed(uniform(draw_now(moment)), tables.thresholds) : 0;
  i64 at = (state.place * (i64)parameters.actions + action) * (tables.thresholds.size + 1) + outcome;
  state.place = tables.next_state.data[at];
  reward = tables.rewards.data[at];
  return tables.ends.data[at] != 0;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  i64 start = tables.starts.size > 1 ? passed(uniform(draw(0, episode)), tables.start_thresholds) : 0;
  return {tables.starts.data[start]};
}

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  int observations = (int)parameters.observations;
  return {state.place >= observations ? state.place - observations : state.place};
}

WORLD_KERNELS(tabular)
