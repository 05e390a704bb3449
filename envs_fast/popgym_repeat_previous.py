"""popgym-RepeatPrevious*-v0: see the cards of shuffled decks, one a step, and name the suit of the k-th last card.

The rules are those of POPGym 1.0. k = 1 is the card in the observation. The reward is 0 before k cards have been seen.
"""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Discrete

from stride.envs_fast import popgym_pictures
from stride.envs_fast.arguments import count
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.popgym_deck import (
    CARDS,
    MOST_DECKS,
    PER_WORD,
    SUITS,
    first_card,
    left_in,
    levels,
    next_suit,
    oldest,
    push,
    without,
)
from stride.envs_fast.tabular import uniform_of_step
from stride.envs_fast.tiles import MOVE, Tile, draw_each, move_each
from stride.envs_fast.world import NO_LIMIT, NUMBA, Episode, Moment, Setting, Stream, Tables, World
from stride.utils.kernel_cache import njit
from stride.utils.user_error import UserError

MAX_K = 64  # suits in the four words of a state
ROWS, WIDTH = 8, 1  # numbers in a state; numbers in an observation

State = tuple[int, int, int, int, int, int, int, int]  # a Deck (4), four words of the last suits


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide."""

    decks: int
    k: int  # which of the last cards is asked for, 1 the newest
    scale: float  # size of a reward, so that an episode with only right answers returns 1
    time_limit: int = NO_LIMIT


@njit(inline="always")
def step(
    state: State, action: int, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """Compare the action with the k-th last suit, then show the next card; the episode ends with the last one."""
    spades, diamonds, clubs, hearts, first, second, third, fourth = state
    deck = (spades, diamonds, clubs, hearts)
    left = left_in(deck)
    word, place = (parameters.k - 1) // PER_WORD, (parameters.k - 1) % PER_WORD
    # the k-th last suit is in the two bits at 2 * place of this word
    suits = first if word == 0 else second if word == 1 else third if word == 2 else fourth
    answer = parameters.scale if action == (suits >> (2 * place)) & 3 else -parameters.scale
    gain = answer if CARDS * parameters.decks - left >= parameters.k else 0.0

    # the oldest suit of each word moves into the next word, and the new one into the first
    suit = next_suit(moment.noise, deck)
    fourth = push(fourth, oldest(third))
    third = push(third, oldest(second))
    second = push(second, oldest(first))
    first = push(first, suit)
    spades, diamonds, clubs, hearts = without(deck, suit)
    return (spades, diamonds, clubs, hearts, first, second, third, fourth), gain, left == 1


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> State:
    """Shuffle the decks and show the first card."""
    (spades, diamonds, clubs, hearts), suit = first_card(episode, parameters.decks)
    return spades, diamonds, clubs, hearts, suit, 0, 0, 0


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> tuple[int]:
    """Return the suit of the last card."""
    return (state[4] & 3,)


@njit(**MOVE)
def move(tile: Tile, stream: Stream, parameters: Parameters, tables: Tables) -> None:
    """Play one step of a tile of worlds: first all random numbers, then the steps."""
    draw_each(uniform_of_step, tile, stream)
    move_each(step, observe, WIDTH, tile, stream, parameters, tables)


def setting(num_decks: int = 1, k: int = 4) -> Setting:
    """`num_decks`: decks that are dealt in an episode, 1 to 16. `k`: which of the last cards to name, 1 the newest."""
    decks = count("num_decks", num_decks, 1, MOST_DECKS)
    k = count("k", k, 1, MAX_K)
    if k >= CARDS * decks:
        raise UserError(f"k must be less than the {CARDS * decks} cards of num_decks={decks}, got {k}")
    return Setting(
        observation_space=Discrete(SUITS),
        action_space=Discrete(SUITS),
        parameters=Parameters(decks, k, 1.0 / (CARDS * decks - k)),
    )


WORLDS = levels(
    World(
        env_id="popgym-RepeatPrevious{}-v0",
        setting=setting,
        kernels={NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH, move)},
        state_size=ROWS,
        state_dtype=np.int32,
        picture=popgym_pictures.card,
    ),
    {"num_decks": 1, "k": 4},
    {"num_decks": 2, "k": 32},
    {"num_decks": 3, "k": 64},
)
