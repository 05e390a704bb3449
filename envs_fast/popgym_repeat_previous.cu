// The GPU version of popgym-RepeatPrevious*-v0: exactly the results of popgym_repeat_previous.py.
#include "envs_fast/popgym_deck.cuh"
#include "envs_fast/popgym_repeat_previous.py"

typedef int Number;
typedef i64 Action;
typedef Row<i64, WIDTH> Seen;

struct State {
  Deck deck;
  int first, second, third, fourth;  // words of 16 suits each, newest first
};

struct Parameters {
  double decks, k, scale, time_limit;
};

struct Tables {};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) { return among(action, SUITS); }

DEVICE bool step(State& state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  int left = left_in(state.deck), back = (int)parameters.k - 1;
  int word = back / PER_WORD, place = back % PER_WORD;
  int suits = word == 0 ? state.first : word == 1 ? state.second : word == 2 ? state.third : state.fourth;
  double answer = action == ((suits >> (2 * place)) & 3) ? parameters.scale : -parameters.scale;
  reward = CARDS * (int)parameters.decks - left >= (int)parameters.k ? answer : 0.0;

  int suit = next_suit(uniform_of(moment), state.deck);
  state.fourth = push(state.fourth, oldest(state.third));
  state.third = push(state.third, oldest(state.second));
  state.second = push(state.second, oldest(state.first));
  state.first = push(state.first, suit);
  state.deck = without(state.deck, suit);
  return left == 1;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  Deck deck = full_deck((int)parameters.decks);
  int suit = next_suit(uniform_of(episode), deck);
  return {without(deck, suit), suit, 0, 0, 0};
}

DEVICE Seen observe(const State& state, const Parameters& parameters) { return {state.first & 3}; }

WORLD_KERNELS(popgym_repeat_previous)
