// Kernels for worlds with pictures or grids (MinAtar, MiniGrid): the loop of grids.py with one thread for each world.
//
// world.cuh keeps a state in registers. These states have too many numbers for that, and registers cannot be indexed by
// a computed number. So states and observations stay in memory, and a world's functions change them in place:
//   step(state, action, moment, parameters, tables, reward&) -> terminated
//   reset(state, episode, parameters, tables)
//   observe(state, seen&, parameters)
// Such a world says `typedef Rows<Number> State` and ends with GRID_KERNELS(name); everything else is as in world.cuh.
// `state` and `seen` contain old numbers: `reset` and `observe` must write all of them.
#include "envs_fast/world.cuh"

// The state of one world: a column of the states of all worlds, [state_size, worlds]. state[k] is its number k.
template <class Number>
struct Rows {
  Number* first;
  i64 worlds;

  DEVICE Number& operator[](int row) const { return first[row * worlds]; }
};

// Sets all numbers to 0 with stores as wide as the alignment of Row allows. Their size is a multiple of 4 bytes.
template <class T, int N>
DEVICE void clear(Row<T, N>& numbers) {
  typedef Row<u32, alignof(Row<T, N>) / sizeof(u32)> Wide;
  Wide* words = (Wide*)&numbers;
  for (int k = 0; k < sizeof(numbers) / sizeof(Wide); k++) words[k] = Wide{};
}

// Plays `steps` steps of world i; step t writes its results to `told` at [t, i].
template <class State, class Number, class Action, class Seen, class Parameters, class Tables>
DEVICE void advance_grid(int i, const Worlds& worlds, const Parameters parameters, const Tables tables, int steps,
                         const Action* __restrict__ actions, const Told<Seen>& told, int* wrong) {
  State state = {&worlds.at<Number>(0, i), worlds.size};
  Running<State> world = {state, worlds.ages[i], episode_of(worlds, i), worlds.returns[i]};
  for (int t = 0; t < steps; t++) {
    i64 at = (i64)t * worlds.size + i;
    Outcome outcome = live(world, actions[at], parameters, tables, wrong);
    told.reward[at] = outcome.reward;
    told.terminated[at] = outcome.terminated;
    told.truncated[at] = outcome.truncated;
    if (outcome.terminated || outcome.truncated) {
      observe(state, told.final_obs[at], parameters);
      told.episode_return[at] = (float)world.total;
      told.episode_length[at] = (float)world.age;
      world.total = 0.0;
      world.age = 0;
      world.episode.number += 1;
      reset(state, world.episode, parameters, tables);
    }
    observe(state, told.obs[at], parameters);
  }
  worlds.ages[i] = world.age;
  worlds.episodes[i] = (int)world.episode.number;
  worlds.returns[i] = world.total;
}

// Begins episode episodes[i] of world i if mask[i]; writes its observation in any case.
template <class State, class Number, class Seen, class Parameters, class Tables>
DEVICE void restart_grid(int i, const Worlds& worlds, const Parameters& parameters, const Tables& tables,
                         const u8* mask, Seen* obs) {
  State state = {&worlds.at<Number>(0, i), worlds.size};
  if (mask[i]) {
    reset(state, episode_of(worlds, i), parameters, tables);
    worlds.ages[i] = 0;
    worlds.returns[i] = 0.0;
  }
  observe(state, obs[i], parameters);
}

#define GRID_KERNELS(NAME) KERNELS_OF(NAME, advance_grid, restart_grid)
