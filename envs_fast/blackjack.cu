// The GPU version of Blackjack-v1: exactly the results of blackjack.py.
#include "envs_fast/world.cuh"
#include "envs_fast/blackjack.py"

typedef int Number;
typedef i64 Action;
typedef Row<i64, WIDTH> Seen;

struct State {
  int total, ace, cards, up, hole;  // the player's sum (aces count 1), 1 with an ace, cards; the dealer's two cards
};

struct Parameters {
  double natural, sab, time_limit;
};

struct Tables {};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) { return among(action, 2); }

DEVICE int card(u32 word) {
  int rank = (int)(((u64)word * RANKS) >> 32) + 1;
  return rank < TEN ? rank : TEN;
}

DEVICE int usable(int total, int ace) { return ace == 1 && total + 10 <= BEST ? 1 : 0; }

DEVICE int worth(int total, int ace) { return total + 10 * usable(total, ace); }

DEVICE bool is_natural(int total, int ace, int cards) { return cards == 2 && ace == 1 && total == 11; }

// Draws cards for the dealer, four random words a block, until the hand is worth DEALER_STANDS.
DEVICE int dealers_worth(int up, int hole, u32 block, const Episode& episode) {
  int total = up + hole, ace = up == 1 || hole == 1 ? 1 : 0;
  while (worth(total, ace) < DEALER_STANDS) {
    Words w = draw(block, episode);
    u32 words[4] = {w.a, w.b, w.c, w.d};
#pragma unroll
    for (int k = 0; k < 4; k++) {
      int drawn = worth(total, ace) < DEALER_STANDS ? card(words[k]) : 0;
      total += drawn;
      ace |= drawn == 1 ? 1 : 0;
    }
    block += 1;
  }
  return worth(total, ace);
}

DEVICE double payoff(const State& hand, int dealer, const Parameters& parameters) {
  int player = worth(hand.total, hand.ace);
  bool natural = is_natural(hand.total, hand.ace, hand.cards);
  bool dealer_natural = is_natural(hand.up + hand.hole, hand.up == 1 || hand.hole == 1 ? 1 : 0, 2);
  if (parameters.sab != 0.0 && natural && !dealer_natural) return 1.0;
  if (dealer > BEST || player > dealer) return parameters.natural != 0.0 && natural ? 1.5 : 1.0;
  return player == dealer ? 0.0 : -1.0;
}

DEVICE bool step(State& state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  if (action == HIT) {
    int drawn = card(draw_now(moment).a);
    state.total += drawn;
    state.ace = state.ace == 1 || drawn == 1 ? 1 : 0;
    state.cards += 1;
    bool over = state.total > BEST;
    reward = over ? -1.0 : 0.0;
    return over;
  }
  int dealer = dealers_worth(state.up, state.hole, IN_EPISODE * ((u32)moment.age + 1), moment.episode);
  reward = payoff(state, dealer, parameters);
  return true;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  Words w = draw(0, episode);
  int first = card(w.a), second = card(w.b);
  return {first + second, first == 1 || second == 1 ? 1 : 0, 2, card(w.c), card(w.d)};
}

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  return {worth(state.total, state.ace), state.up, usable(state.total, state.ace)};
}

WORLD_KERNELS(blackjack)
