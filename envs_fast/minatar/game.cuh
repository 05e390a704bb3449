// The GPU version of game.py, what MinAtar's games share. A game's file must include its own .py before this file,
// because PLANES comes from there.
#include "envs_fast/grids.cuh"
#include "envs_fast/minatar/game.py"

typedef int Number;
typedef Rows<Number> State;
typedef i64 Action;
typedef Row<u8, PLANES * CELLS> Seen;

struct Parameters {
  double sticky_action_prob, difficulty_ramping, time_limit;
};

struct Tables {
  Table<int> actions;  // the game's action for each action of the environment
};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) {
  return among(action, tables.actions.size);
}

// The game's action in this step: the chosen one, or with `sticky_action_prob` the previous one again.
DEVICE int carried_out(State state, i64 action, u32 word, const Parameters& parameters, const Tables& tables) {
  if (between(word, 0.0, 1.0) >= parameters.sticky_action_prob) state[BEFORE] = tables.actions.data[action];
  return state[BEFORE];
}

// A whole number from 0 to choices - 1, from 32 random bits.
DEVICE int below(u32 word, int choices) { return (int)(((u64)word * choices) >> 32); }

// How many bits are set.
DEVICE int count(int bits) {
  int number = 0;
  for (; bits; bits &= bits - 1) number++;
  return number;
}

DEVICE void light(Seen& seen, int plane, int y, int x) { seen.at[CELLS * plane + SIDE * y + x] = LIT; }

DEVICE void light_row(Seen& seen, int plane, int y, int bits) {
  for (int x = 0; x < SIDE; x++)
    if (bits >> x & 1) light(seen, plane, y, x);
}
