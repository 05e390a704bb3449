// Worlds that are seen as a picture or a grid, on a GPU: the loop of grids.py with a thread for each world.
//
// They have too many numbers for registers, and an index that is computed finds none there. So both the state and
// what is seen stay in memory, and a world's functions work on them in place:
//   step(state, action, moment, parameters, tables, reward&) -> terminated
//   reset(state, episode, parameters, tables)
//   observe(state, seen&, parameters)
// Such a world says `typedef Rows<Number> State` and ends with GRID_KERNELS(name); all else is as in world.cuh. What
// `state` and `seen` held before is still there: `reset` and `observe` write all of it.
#include "envs_fast/world.cuh"

// One world's numbers among those of all worlds, [state_size, worlds].
template <class Number>
struct Rows {
  Number* first;
  i64 worlds;

  DEVICE Number& operator[](int row) const { return first[row * worlds]; }
};

// Makes all numbers 0, a wide word at a time; they fill words of 4 bytes.
template <class T, int N>
DEVICE void clear(Row<T, N>& numbers) {
  typedef Row<u32, alignof(Row<T, N>) / sizeof(u32)> Wide;
  Wide* words = (Wide*)&numbers;
  for (int k = 0; k < sizeof(numbers) / sizeof(Wide); k++) words[k] = Wide{};
}

// Plays `steps` steps of world i.
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

// Begins the episode episodes[i] of world i where mask[i]; what is seen of it in any case.
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
