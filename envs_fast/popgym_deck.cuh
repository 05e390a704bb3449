// The GPU version of POPGym's decks of cards: exactly the results of popgym_deck.py, which explains the functions.
#include "envs_fast/world.cuh"
#include "envs_fast/popgym_deck.py"

// How many cards of each suit are left.
struct Deck {
  int spades, diamonds, clubs, hearts;
};

DEVICE int left_in(const Deck& deck) { return deck.spades + deck.diamonds + deck.clubs + deck.hearts; }

DEVICE int next_suit(double uniform, const Deck& deck) {
  int place = (int)(uniform * left_in(deck));
  int suit = place >= deck.spades ? 1 : 0;
  suit += place >= deck.spades + deck.diamonds ? 1 : 0;
  suit += place >= deck.spades + deck.diamonds + deck.clubs ? 1 : 0;
  return suit;
}

DEVICE Deck without(Deck deck, int suit) {
  deck.spades -= suit == 0 ? 1 : 0;
  deck.diamonds -= suit == 1 ? 1 : 0;
  deck.clubs -= suit == 2 ? 1 : 0;
  deck.hearts -= suit == 3 ? 1 : 0;
  return deck;
}

// How many cards of each of up to 16 kinds are left, one byte for each.
struct Kinds {
  int first, second, third, fourth;
};

DEVICE int left_of(int kind, const Kinds& deck) {
  int word = kind < 4 ? deck.first : kind < 8 ? deck.second : kind < 12 ? deck.third : deck.fourth;
  return (word >> (8 * (kind % 4))) & 255;
}

DEVICE int next_kind(u32 word, const Kinds& deck, int left, int kinds) {
  int place = (int)(between(word, 0.0, 1.0) * left), kind = 0, passed = 0;
  for (int other = 0; other < kinds - 1; other++) {
    passed += left_of(other, deck);
    kind += place >= passed ? 1 : 0;
  }
  return kind;
}

DEVICE Kinds without_kind(Kinds deck, int kind) {
  int card = 1 << (8 * (kind % 4)), word = kind / 4;
  deck.first -= word == 0 ? card : 0;
  deck.second -= word == 1 ? card : 0;
  deck.third -= word == 2 ? card : 0;
  deck.fourth -= word == 3 ? card : 0;
  return deck;
}

// `push` adds a suit to a word of 16 suits; `oldest` is the suit that it drops.
DEVICE int push(int word, int suit) { return (int)((u32)word << 2 | (u32)suit); }

DEVICE int oldest(int word) { return (word >> 30) & 3; }

// The uniform in [0, 1) that decides the first card of an episode, and the one that decides the card of a step.
DEVICE double uniform_of(const Episode& episode) { return between(draw(0, episode).a, 0.0, 1.0); }

DEVICE double uniform_of(const Moment& moment) { return between(draw_now(moment).a, 0.0, 1.0); }

DEVICE Deck full_deck(int decks) {
  int each = PER_SUIT * decks;
  return {each, each, each, each};
}
