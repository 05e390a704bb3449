"""popgym-Autoencode*-v0: see the cards of 1 to 3 shuffled decks, then name their suits from the last to the first.

The rules are those of POPGym 1.0. An episode has two halves: first all cards are shown, one a step, and the action does
nothing; then each action names the suit of the newest card in the hand, which is then put away.
"""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Dict, Discrete

from stride.envs_fast import popgym_pictures
from stride.envs_fast.arguments import count
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.popgym_deck import CARDS, SUITS, first_card, left_in, levels, next_suit, oldest, push, without
from stride.envs_fast.tabular import uniform_of_step
from stride.envs_fast.tiles import MOVE, Tile, draw_each, move_each
from stride.envs_fast.world import NO_LIMIT, NUMBA, Episode, Moment, Setting, Stream, Tables, World
from stride.utils.kernel_cache import njit

ASKED, SHOWN = 0, 1  # first number of an observation: the next action names a suit, or does nothing
MAX_DECKS = 3  # their 156 cards fit into the 160 suits of ten words
LOW_30_BITS = 0x3FFFFFFF  # bits of a word without those of its oldest suit
ROWS, WIDTH = 16, 2  # numbers in a state; numbers in an observation

Words = tuple[int, int, int, int, int, int, int, int, int, int]  # suits in the hand, PER_WORD in each; newest first
State = tuple[int, ...]  # 16 numbers: a Deck (4), cards in the hand, the suit in the observation, and Words (10)


class Parameters(NamedTuple):
    """The numbers that the keyword argument decides."""

    decks: int
    scale: float  # size of a reward, so that an episode with only right answers returns 1
    time_limit: int = NO_LIMIT


@njit(inline="always")
def taken(words: Words, suit: int) -> Words:
    """Return the hand with one more card."""
    a, b, c, d, e, f, g, h, i, j = words
    newer = push(a, suit), push(b, oldest(a)), push(c, oldest(b)), push(d, oldest(c)), push(e, oldest(d))
    older = push(f, oldest(e)), push(g, oldest(f)), push(h, oldest(g)), push(i, oldest(h)), push(j, oldest(i))
    return newer + older


@njit(inline="always")
def pop(word: int, above: int) -> int:
    """Return a word without its newest suit; the newest suit of `above`, the next word, becomes its oldest."""
    return ((word >> 2) & LOW_30_BITS) | ((above & 3) << 30)


@njit(inline="always")
def put_away(words: Words) -> Words:
    """Return the hand without its newest card."""
    a, b, c, d, e, f, g, h, i, j = words
    return pop(a, b), pop(b, c), pop(c, d), pop(d, e), pop(e, f), pop(f, g), pop(g, h), pop(h, i), pop(i, j), pop(j, 0)


@njit(inline="always")
def step(
    state: State, action: int, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """Show the next card while the deck has one; afterwards compare the action with the newest card in the hand.

    A compared card leaves the hand; the episode ends with the last one.
    """
    deck, hand, words = state[:4], state[4], state[6:]
    watching = left_in(deck) > 0
    suit = next_suit(moment.noise, deck) if watching else -1
    answer = parameters.scale if action == words[0] & 3 else -parameters.scale
    over = (not watching) & (hand == 1)
    hand += 1 if watching else -1
    words = taken(words, suit) if watching else put_away(words)
    seen = (hand, max(suit, 0))
    return without(deck, suit) + seen + words, 0.0 if watching else answer, over


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> State:
    """Shuffle the decks and show the first card."""
    (spades, diamonds, clubs, hearts), suit = first_card(episode, parameters.decks)
    return spades, diamonds, clubs, hearts, 1, suit, suit, 0, 0, 0, 0, 0, 0, 0, 0, 0


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> tuple[int, int]:
    """Return SHOWN, or ASKED from the last card on; and the suit of the card just dealt, 0 after the last card."""
    return SHOWN if left_in(state[:4]) > 0 else ASKED, state[5]


@njit(**MOVE)
def move(tile: Tile, stream: Stream, parameters: Parameters, tables: Tables) -> None:
    """Play one step of a tile of worlds: first all random numbers, then the steps."""
    draw_each(uniform_of_step, tile, stream)
    move_each(step, observe, WIDTH, tile, stream, parameters, tables)


def setting(num_decks: int = 1) -> Setting:
    """`num_decks`: decks that are shown in an episode, 1 to 3."""
    decks = count("num_decks", num_decks, 1, MAX_DECKS)
    return Setting(
        observation_space=Dict({"0": Discrete(2), "1": Discrete(SUITS)}),
        action_space=Discrete(SUITS),
        parameters=Parameters(decks, 1.0 / (CARDS * decks)),
    )


WORLDS = levels(
    World(
        env_id="popgym-Autoencode{}-v0",
        setting=setting,
        kernels={NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH, move)},
        state_size=ROWS,
        state_dtype=np.int32,
        picture=popgym_pictures.card_and_mode,
    ),
    {"num_decks": 1},
    {"num_decks": 2},
    {"num_decks": 3},
)
