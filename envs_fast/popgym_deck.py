"""Decks of cards, memory for the suits seen, and difficulty levels for POPGym's compiled card games (popgym_*.py).

POPGym shuffles a list of cards and deals from its end. A game needs only the suit (or colour, or rank) of a card, so a
deck here is just the number of cards left of each kind. The next card is drawn with probabilities in proportion to
these numbers, which gives the same distribution as a shuffled list.

Suits that a game must remember are packed, two bits each, into words of 32 bits.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from stride.envs_fast.world import Episode, World, between, draw
from stride.utils.kernel_cache import njit

CARDS, SUITS, PER_SUIT = 52, 4, 13  # of one deck
MOST_DECKS = 16  # the largest number of decks, as at RepeatFirst's hardest level
PER_WORD = 16  # suits in an int32, two bits each; the newest suit is in the lowest two bits
LEVELS = ("Easy", "Medium", "Hard")

Deck = tuple[int, int, int, int]  # how many spades, diamonds, clubs and hearts are left
# how many cards are left of each of up to 16 kinds: one byte for each kind, four bytes in an int, at most 127 cards
Kinds = tuple[int, int, int, int]


@njit(inline="always")
def left_in(deck: Deck) -> int:
    """Return how many cards are left."""
    spades, diamonds, clubs, hearts = deck
    return spades + diamonds + clubs + hearts


@njit(inline="always")
def next_suit(uniform: float, deck: Deck) -> int:
    """Return the suit (0 to 3) of the next card for a uniform in [0, 1); probabilities are off by less than 2**-22."""
    spades, diamonds, clubs, hearts = deck
    place = int(uniform * (spades + diamonds + clubs + hearts))
    # the number of suits whose cards all come before card number `place` in a sorted deck
    suit = 1 if place >= spades else 0
    suit += 1 if place >= spades + diamonds else 0
    suit += 1 if place >= spades + diamonds + clubs else 0
    return suit


@njit(inline="always")
def without(deck: Deck, suit: int) -> Deck:
    """Return the deck without one card of this suit."""
    spades, diamonds, clubs, hearts = deck
    spades -= 1 if suit == 0 else 0
    diamonds -= 1 if suit == 1 else 0
    clubs -= 1 if suit == 2 else 0
    hearts -= 1 if suit == 3 else 0
    return spades, diamonds, clubs, hearts


@njit(inline="always")
def first_card(episode: Episode, decks: int) -> tuple[Deck, int]:
    """Deal the first card of an episode from `decks` full decks; return what is left, and the suit of the card."""
    per_suit = PER_SUIT * decks
    full = (per_suit, per_suit, per_suit, per_suit)
    suit = next_suit(between(draw(0, episode)[0], 0.0, 1.0), full)
    return without(full, suit), suit


@njit(inline="always")
def left_of(kind: int, deck: Kinds) -> int:
    """Return how many cards of a kind (0 to 15) are left: byte `kind % 4` of int `kind // 4`."""
    first, second, third, fourth = deck
    word = first if kind < 4 else second if kind < 8 else third if kind < 12 else fourth
    return (word >> (8 * (kind % 4))) & 255


@njit(inline="always")
def next_kind(word: np.uint32, deck: Kinds, left: int, kinds: int) -> int:
    """Return the kind of the next card of a deck with `left` cards, for 32 random bits.

    `kinds`: how many kinds the deck has. Probabilities are off by less than 2**-24.
    """
    place = int(between(word, 0.0, 1.0) * left)
    kind, passed = 0, 0
    # the kind is the number of kinds whose cards all come before card number `place` in a sorted deck
    for other in range(kinds - 1):
        passed += left_of(other, deck)
        kind += 1 if place >= passed else 0
    return kind


@njit(inline="always")
def without_kind(deck: Kinds, kind: int) -> Kinds:
    """Return the deck without one card of this kind."""
    first, second, third, fourth = deck
    card, word = 1 << (8 * (kind % 4)), kind // 4
    first -= card if word == 0 else 0
    second -= card if word == 1 else 0
    third -= card if word == 2 else 0
    fourth -= card if word == 3 else 0
    return first, second, third, fourth


@njit(inline="always")
def push(word: int, suit: int) -> int:
    """Return a word of 16 suits with one more as its newest; the oldest is dropped."""
    return (word << 2) | suit


@njit(inline="always")
def oldest(word: int) -> int:
    """Return the oldest of a word's 16 suits, which `push` drops."""
    return (word >> 30) & 3


def levels(world: World, *arguments: Mapping[str, object]) -> tuple[World, ...]:
    """Return a copy of the world for each of LEVELS, with that level's keyword arguments.

    `world.env_id` contains `{}`, which is replaced by the name of the level.
    """
    return tuple(
        replace(world, env_id=world.env_id.format(level), default_kwargs=dict(kwargs))
        for level, kwargs in zip(LEVELS, arguments, strict=True)
    )
