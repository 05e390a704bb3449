// The GPU version of popgym-RepeatFirst*-v0: exactly the results of popgym_repeat_first.py.
#include "envs_fast/popgym_deck.cuh"
#include "envs_fast/popgym_repeat_first.py"

typedef int Number;
typedef i64 Action;
typedef Row<i64, WIDTH> Seen;

struct State {
  Deck deck;
  int first, shown;
};

struct Parameters {
  double decks, scale, time_limit;
};

struct Tables {};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) { return among(action, SUITS); }

DEVICE bool step(State& state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  reward = action == state.first ? parameters.scale : -parameters.scale;
  bool last = left_in(state.deck) == 1;
  state.shown = next_suit(uniform_of(moment), state.deck);
  state.deck = without(state.deck, state.shown);
  return last;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  Deck deck = full_deck((int)parameters.decks);
  int suit = next_suit(uniform_of(episode), deck);
  return {without(deck, suit), suit, suit};
}

DEVICE Seen observe(const State& state, const Parameters& parameters) { return {state.shown}; }

WORLD_KERNELS(popgym_repeat_first)
