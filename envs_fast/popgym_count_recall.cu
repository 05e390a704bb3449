// The GPU version of popgym-CountRecall*-v0: exactly the results of popgym_count_recall.py.
#include "envs_fast/popgym_deck.cuh"
#include "envs_fast/popgym_count_recall.py"

typedef int Number;
typedef i64 Action;
typedef Row<i64, WIDTH> Seen;

struct State {
  Kinds dealt, asking;
  int left, value, query;  // cards left in each deck; the kind of the dealt card; the kind that is asked for
};

struct Parameters {
  double cards, kinds, scale, time_limit;
};

struct Tables {};

DEVICE int per_kind(const Parameters& parameters) { return (int)parameters.cards / (int)parameters.kinds; }

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) {
  return among(action, per_kind(parameters) + 1);
}

DEVICE State deal(const Words& w, const Kinds& dealt, const Kinds& asking, int left, const Parameters& parameters) {
  int value = next_kind(w.a, dealt, left, (int)parameters.kinds);
  int query = next_kind(w.b, asking, left, (int)parameters.kinds);
  return {without_kind(dealt, value), without_kind(asking, query), left - 1, value, query};
}

DEVICE bool step(State& state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  int seen = per_kind(parameters) - left_of(state.query, state.dealt);
  reward = action == seen ? parameters.scale : -parameters.scale;
  bool last = state.left == 1;
  state = deal(draw_now(moment), state.dealt, state.asking, state.left, parameters);
  return last;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  int words = per_kind(parameters) * EACH_BYTE;
  Kinds full = {words, words, words, words};
  return deal(draw(0, episode), full, full, (int)parameters.cards, parameters);
}

DEVICE Seen observe(const State& state, const Parameters& parameters) { return {state.value, state.query}; }

WORLD_KERNELS(popgym_count_recall)
