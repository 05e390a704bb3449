"""Blackjack-v1 under its default rules as a transition table, so that a policy is valued exactly and not by its luck.

Gymnasium publishes no table of it: this one is worked out from the rules, an infinite deck of thirteen ranks (Sutton
and Barto, Example 5.1; `sab`: an ace and a ten at once win unless the dealer has both too).
"""

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lab.transition_table import TransitionTable

STICK, HIT = 0, 1
BEST, DEALER_STANDS = 21, 17
CARDS = {card: (4 if card == 10 else 1) / 13 for card in range(1, 11)}  # probability of each value; 10 has four ranks
LONGEST = 21  # steps after which every hand is over
BUST, NATURAL = 0, 22  # how the dealer's hand may end beside 17 to 21; no hand of more cards beats an ace and a ten


class Hand(NamedTuple):
    """The player's cards; `soft` says that an ace counts 11."""

    total: int
    soft: bool
    natural: bool = False

    def take(self, card: int) -> "Hand":
        total, soft = self.total + card, self.soft
        if card == 1 and total + 10 <= BEST:
            total, soft = total + 10, True
        if total > BEST and soft:
            total, soft = total - 10, False
        return Hand(total, soft)


class Blackjack(NamedTuple):
    """The table, and what the player sees in each of its states."""

    table: TransitionTable
    seen: NDArray[np.int64]
    """[S, 3] sum, dealer's open card, usable ace"""


def blackjack() -> Blackjack:
    """Every hand of the player that is not over, against each open card of the dealer."""
    hard, soft = ([Hand(total, soft) for total in range(low, BEST + 1)] for low, soft in ((4, False), (12, True)))
    hands = [*hard, *soft, dealt(1, 10)]
    states = {state: index for index, state in enumerate(product(hands, CARDS))}
    start = np.zeros(len(states))
    follows, reward = np.zeros((len(states), 2, len(states))), np.zeros((len(states), 2))
    for first, second, up in product(CARDS, CARDS, CARDS):
        start[states[dealt(first, second), up]] += CARDS[first] * CARDS[second] * CARDS[up]
    for (hand, up), index in states.items():
        reward[index, STICK] = sum(chance * payoff(hand, ending) for ending, chance in dealers_endings(up))
        for card, chance in CARDS.items():
            after = hand.take(card)
            if after.total > BEST:
                reward[index, HIT] -= chance
            else:
                follows[index, HIT, states[after, up]] += chance
    seen = [(hand.total, up, hand.soft) for hand, up in states]
    return Blackjack(TransitionTable(start, follows, reward), np.array(seen, np.int64))


def dealt(first: int, second: int) -> Hand:
    """The player's first two cards."""
    hand = Hand(0, False).take(first).take(second)
    return hand._replace(natural=hand.total == BEST)


def payoff(hand: Hand, ending: int) -> float:
    """The reward of sticking against what the dealer ends with."""
    mine = NATURAL if hand.natural else hand.total
    theirs = BEST if ending == NATURAL and not hand.natural else ending  # the dealer's natural only spoils the player's
    return float(np.sign(mine - theirs))


def dealers_endings(up: int) -> list[tuple[int, float]]:
    """(17 to 21, BUST or NATURAL, probability) behind an open card."""
    found = dict.fromkeys([BUST, *range(DEALER_STANDS, NATURAL + 1)], 0.0)
    for hole, chance in CARDS.items():
        hand = dealt(up, hole)
        for ending, share in [(NATURAL, 1.0)] if hand.natural else drawn(hand):
            found[ending] += chance * share
    return [*found.items()]


@cache
def drawn(hand: Hand) -> tuple[tuple[int, float], ...]:
    """How a dealer's hand ends who draws until 17."""
    if hand.total > BEST:
        return ((BUST, 1.0),)
    if hand.total >= DEALER_STANDS:
        return ((hand.total, 1.0),)
    found: dict[int, float] = {}
    for card, chance in CARDS.items():
        for ending, share in drawn(hand.take(card)):
            found[ending] = found.get(ending, 0.0) + chance * share
    return tuple(found.items())
