"""Blackjack-v1: come closer to 21 than the dealer; rules of Gymnasium 1.4 (Sutton and Barto, Example 5.1).

The deck is infinite. A hand is stored as its total with aces counted as 1, and whether it has an ace: then it is worth
10 more if that is at most 21.
"""

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Dict, Discrete

from stride.envs_fast.arguments import flag
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.world import IN_EPISODE, NO_LIMIT, NUMBA, Episode, Moment, Setting, Tables, World, draw
from stride.utils.kernel_cache import njit

STICK, HIT = 0, 1
RANKS, TEN = 13, 10  # ten, jack, queen and king all count 10
BEST, DEALER_STANDS = 21, 17
TOTAL, ACE, CARDS, UP, HOLE = range(5)  # rows of the state
ROWS, WIDTH = 5, 3  # numbers in a state; numbers in an observation

Hand = tuple[int, int, int, int, int]  # total, ace, cards (of the player), open and hidden card of the dealer


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide."""

    natural: bool  # see `setting`
    sab: bool
    time_limit: int = NO_LIMIT


@njit(inline="always")
def card(word: np.uint32) -> int:
    """Draw a card's value, 1 to 10, from 32 random bits; the bias is below 2**-32."""
    return min(int((np.uint64(word) * np.uint64(RANKS)) >> np.uint64(32)) + 1, TEN)


@njit(inline="always")
def usable(total: int, ace: int) -> int:
    """Return 1 if the hand has an ace that counts 11, else 0."""
    return 1 if ace == 1 and total + 10 <= BEST else 0


@njit(inline="always")
def worth(total: int, ace: int) -> int:
    """Return a hand's value, with an ace counted as 11 if that is at most 21."""
    return total + 10 * usable(total, ace)


@njit(inline="always")
def is_natural(total: int, ace: int, cards: int) -> bool:
    """Say whether the first two cards are an ace and a ten."""
    return cards == 2 and ace == 1 and total == 11


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> Hand:
    """Deal two cards to the player and two to the dealer."""
    a, b, c, d = draw(0, episode)
    first, second = card(a), card(b)
    return first + second, 1 if first == 1 or second == 1 else 0, 2, card(c), card(d)


@njit(inline="always")
def dealers_worth(up: int, hole: int, block: int, episode: Episode) -> int:
    """Return the value of the dealer's hand after drawing to 17, from random block `block` on; less than 16 blocks."""
    total, ace = up + hole, 1 if up == 1 or hole == 1 else 0
    while worth(total, ace) < DEALER_STANDS:
        for word in draw(block, episode):
            if worth(total, ace) < DEALER_STANDS:
                drawn = card(word)
                total += drawn
                ace |= 1 if drawn == 1 else 0
        block += 1
    return worth(total, ace)


@njit(inline="always")
def payoff(total: int, ace: int, cards: int, dealer: int, up: int, hole: int, parameters: Parameters) -> float:
    """Return the player's reward for sticking with a hand of at most 21; `dealer` is the value of the dealer's hand."""
    player, natural = worth(total, ace), is_natural(total, ace, cards)
    dealer_natural = is_natural(up + hole, 1 if up == 1 or hole == 1 else 0, 2)
    if parameters.sab and natural and not dealer_natural:
        return 1.0
    if dealer > BEST or player > dealer:
        return 1.5 if parameters.natural and natural else 1.0
    return 0.0 if player == dealer else -1.0


@njit(inline="always")
def step(state: Hand, action: int, moment: Moment, parameters: Parameters, tables: Tables) -> tuple[Hand, float, bool]:
    """Take a card, or stick: then the dealer draws. The episode ends with that, or with more than 21."""
    total, ace, cards, up, hole = state
    block = IN_EPISODE * (moment.age + 1)
    if action == HIT:
        drawn = card(draw(block, moment.episode)[0])
        total, ace, cards = total + drawn, 1 if ace == 1 or drawn == 1 else 0, cards + 1
        over = total > BEST
        gain = -1.0 if over else 0.0
    else:
        over = True
        dealer = dealers_worth(up, hole, block, moment.episode)
        gain = payoff(total, ace, cards, dealer, up, hole, parameters)
    return (total, ace, cards, up, hole), gain, over


@njit(inline="always")
def observe(state: Hand, parameters: Parameters) -> tuple[int, int, int]:
    """Return the value of the player's hand, the dealer's open card, and whether an ace counts 11."""
    total, ace, _, up, _ = state
    return worth(total, ace), up, usable(total, ace)


def setting(natural: bool = False, sab: bool = True) -> Setting:
    """`natural`: 1.5 for winning with an ace and a ten at once. `sab`: such a hand wins unless the dealer has one too.

    `natural` is ignored under `sab`, which Gymnasium registers as the default.
    """
    return Setting(
        observation_space=Dict({"0": Discrete(32), "1": Discrete(11), "2": Discrete(2)}),
        action_space=Discrete(2),
        parameters=Parameters(flag("natural", natural), flag("sab", sab)),
    )


def gym_state(column: np.ndarray) -> dict[str, Any]:
    """Return attributes that set this state in Gymnasium's environment: hands with the same totals, in spades."""
    total, ace, up, hole = int(column[TOTAL]), int(column[ACE]), int(column[UP]), int(column[HOLE])
    return {
        "player": [1, total - 1] if ace else [total],
        "dealer": [up, hole],
        "dealer_top_card_suit": "S",
        "dealer_top_card_value_str": {1: "A", TEN: "K"}.get(up, str(up)),
    }


def recall(obs: np.ndarray) -> np.ndarray:
    """Return a state that has this observation; the dealer's hidden card is not known and is 0."""
    total, up, ace = obs.tolist()
    return np.array([total - 10 * ace, ace, 2, up, 0])


WORLD = World(
    recall=recall,
    env_id="Blackjack-v1",
    setting=setting,
    kernels={NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH)},
    state_size=ROWS,
    state_dtype=np.int32,
    gym_state=gym_state,
)
