// The GPU version of popgym-Autoencode*-v0: exactly the results of popgym_autoencode.py.
#include "envs_fast/popgym_deck.cuh"
#include "envs_fast/popgym_autoencode.py"
#define HAND_WORDS 10

typedef int Number;
typedef i64 Action;
typedef Row<i64, WIDTH> Seen;

struct State {
  Deck deck;
  int hand, shown, words[HAND_WORDS];  // cards in the hand; the suit in the observation; the hand's suits, newest first
};

struct Parameters {
  double decks, scale, time_limit;
};

struct Tables {};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) { return among(action, SUITS); }

// A word without its newest suit; the newest suit of the next word, `above`, becomes its oldest.
DEVICE int pop(int word, int above) { return (int)((u32)word >> 2 | (u32)above << 30); }

// Moves a card of this suit from the deck to the hand.
DEVICE void take(State& state, int suit) {
#pragma unroll
  for (int k = HAND_WORDS - 1; k > 0; k--) state.words[k] = push(state.words[k], oldest(state.words[k - 1]));
  state.words[0] = push(state.words[0], suit);
  state.deck = without(state.deck, suit);
  state.hand += 1;
  state.shown = suit;
}

// Removes the newest card from the hand.
DEVICE void put_away(State& state) {
#pragma unroll
  for (int k = 0; k < HAND_WORDS - 1; k++) state.words[k] = pop(state.words[k], state.words[k + 1]);
  state.words[HAND_WORDS - 1] = pop(state.words[HAND_WORDS - 1], 0);
  state.hand -= 1;
  state.shown = 0;
}

DEVICE bool step(State& state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  bool watching = left_in(state.deck) > 0, last = state.hand == 1;
  if (watching) {
    reward = 0.0;
    take(state, next_suit(uniform_of(moment), state.deck));
    return false;
  }
  reward = action == (state.words[0] & 3) ? parameters.scale : -parameters.scale;
  put_away(state);
  return last;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  Deck deck = full_deck((int)parameters.decks);
  int suit = next_suit(uniform_of(episode), deck);
  return {without(deck, suit), 1, suit, {suit}};
}

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  return {left_in(state.deck) > 0 ? SHOWN : ASKED, state.shown};
}

WORLD_KERNELS(popgym_autoencode)
