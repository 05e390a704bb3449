"""popgym-RepeatFirst*-v0: see the cards of shuffled decks, one a step, and name the suit of the first card each time.

The rules are those of POPGym 1.0. The first card is only in the first observation: the agent must remember it.
"""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Discrete

from stride.envs_fast import popgym_pictures
from stride.envs_fast.arguments import count
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.popgym_deck import CARDS, MOST_DECKS, SUITS, first_card, left_in, levels, next_suit, without
from stride.envs_fast.tabular import uniform_of_step
from stride.envs_fast.tiles import MOVE, Tile, draw_each, move_each
from stride.envs_fast.world import NO_LIMIT, NUMBA, Episode, Moment, Setting, Stream, Tables, World
from stride.utils.kernel_cache import njit

ROWS, WIDTH = 6, 1  # numbers in a state; numbers in an observation

State = tuple[int, int, int, int, int, int]  # a Deck (4), the first suit, the suit in the observation


class Parameters(NamedTuple):
    """The numbers that the keyword argument decides."""

    decks: int
    scale: float  # size of a reward, so that an episode with only right answers returns 1
    time_limit: int = NO_LIMIT


@njit(inline="always")
def step(
    state: State, action: int, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """Compare the action with the first suit, then show the next card; the episode ends with the last one."""
    spades, diamonds, clubs, hearts, first, _ = state
    deck = (spades, diamonds, clubs, hearts)
    suit = next_suit(moment.noise, deck)
    gain = parameters.scale if action == first else -parameters.scale
    last = left_in(deck) == 1
    spades, diamonds, clubs, hearts = without(deck, suit)
    return (spades, diamonds, clubs, hearts, first, suit), gain, last


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> State:
    """Shuffle the decks and show the first card."""
    (spades, diamonds, clubs, hearts), suit = first_card(episode, parameters.decks)
    return spades, diamonds, clubs, hearts, suit, suit


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> tuple[int]:
    """Return the suit of the last card."""
    return (state[5],)


@njit(**MOVE)
def move(tile: Tile, stream: Stream, parameters: Parameters, tables: Tables) -> None:
    """Play one step of a tile of worlds: first all random numbers, then the steps."""
    draw_each(uniform_of_step, tile, stream)
    move_each(step, observe, WIDTH, tile, stream, parameters, tables)


def setting(num_decks: int = 1) -> Setting:
    """`num_decks`: decks that are dealt in an episode, 1 to 16."""
    decks = count("num_decks", num_decks, 1, MOST_DECKS)
    return Setting(
        observation_space=Discrete(SUITS),
        action_space=Discrete(SUITS),
        parameters=Parameters(decks, 1.0 / (CARDS * decks - 1)),
    )


WORLDS = levels(
    World(
        env_id="popgym-RepeatFirst{}-v0",
        setting=setting,
        kernels={NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH, move)},
        state_size=ROWS,
        state_dtype=np.int32,
        picture=popgym_pictures.card,
    ),
    {"num_decks": 1},
    {"num_decks": 8},
    {"num_decks": 16},
)
