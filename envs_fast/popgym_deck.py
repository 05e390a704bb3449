"""What POPGym's card games share: decks dealt by suits or other kinds, suits in a word, and their three levels.

POPGym shuffles the cards and deals them from the end. Only their kinds count, so a deck is how many of each kind are
left, and the next one is drawn in that proportion: the same distribution, without a list of cards.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from stride.envs_fast.world import Episode, World, between, draw
from stride.utils.kernel_cache import njit

CARDS, SUITS, PER_SUIT = 52, 4, 13  # of one deck
MOST_DECKS = 16  # that POPGym has at its hardest level
PER_WORD = 16  # suits in an int32, two bits each, the newest lowest
LEVELS = ("Easy", "Medium", "Hard")

Deck = tuple[int, int, int, int]  # spades, diamonds, clubs and hearts that are left
Kinds = tuple[int, int, int, int]  # cards left of each of up to 16 kinds: a byte each, at most 127


@njit(inline="always")
def left_in(deck: Deck) -> int:
    """How many cards are left."""
    spades, diamonds, clubs, hearts = deck
    return spades + diamonds + clubs + hearts


@njit(inline="always")
def next_suit(uniform: float, deck: Deck) -> int:
    """The suit of the next card; the bias is below 2**-22."""
    spades, diamonds, clubs, hearts = deck
    place = int(uniform * (spades + diamonds + clubs + hearts))
    suit = 1 if place >= spades else 0
    suit += 1 if place >= spades + diamonds else 0
    suit += 1 if place >= spades + diamonds + clubs else 0
    return suit


@njit(inline="always")
def without(deck: Deck, suit: int) -> Deck:
    """The deck after a card of that suit."""
    spades, diamonds, clubs, hearts = deck
    spades -= 1 if suit == 0 else 0
    diamonds -= 1 if suit == 1 else 0
    clubs -= 1 if suit == 2 else 0
    hearts -= 1 if suit == 3 else 0
    return spades, diamonds, clubs, hearts


@njit(inline="always")
def first_card(episode: Episode, decks: int) -> tuple[Deck, int]:
    """What is left of so many full decks after the first card of an episode, and its suit."""
    each = PER_SUIT * decks
    full = (each, each, each, each)
    suit = next_suit(between(draw(0, episode)[0], 0.0, 1.0), full)
    return without(full, suit), suit


@njit(inline="always")
def left_of(kind: int, deck: Kinds) -> int:
    """How many cards of a kind are left."""
    first, second, third, fourth = deck
    word = first if kind < 4 else second if kind < 8 else third if kind < 12 else fourth
    return (word >> (8 * (kind % 4))) & 255


@njit(inline="always")
def next_kind(word: np.uint32, deck: Kinds, left: int, kinds: int) -> int:
    """The kind of the next of `left` cards, by a random word; the bias is below 2**-24."""
    place = int(between(word, 0.0, 1.0) * left)
    kind, passed = 0, 0
    for other in range(kinds - 1):
        passed += left_of(other, deck)
        kind += 1 if place >= passed else 0
    return kind


@njit(inline="always")
def without_kind(deck: Kinds, kind: int) -> Kinds:
    """The deck after a card of that kind."""
    first, second, third, fourth = deck
    card, word = 1 << (8 * (kind % 4)), kind // 4
    first -= card if word == 0 else 0
    second -= card if word == 1 else 0
    third -= card if word == 2 else 0
    fourth -= card if word == 3 else 0
    return first, second, third, fourth


@njit(inline="always")
def push(word: int, suit: int) -> int:
    """A word of suits with one more; the oldest goes."""
    return (word << 2) | suit


@njit(inline="always")
def oldest(word: int) -> int:
    """The suit that goes from a word."""
    return (word >> 30) & 3


def levels(world: World, *arguments: Mapping[str, object]) -> tuple[World, ...]:
    """The world at each level with its arguments; `env_id` has a gap {} for the level's name."""
    return tuple(
        replace(world, env_id=world.env_id.format(level), default_kwargs=dict(kwargs))
        for level, kwargs in zip(LEVELS, arguments, strict=True)
    )
