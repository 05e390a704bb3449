"""popgym-CountRecall*-v0: count the dealt cards of each kind, and say the count of the kind that is asked for.

The rules are those of POPGym 1.0. A kind is a colour, a suit or a rank, as `deck_type` says. Two shuffled decks hold
the same cards. Each step deals one card of each: the first is to be counted, the kind of the second is the question.
"""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Dict, Discrete

from stride.envs_fast import popgym_pictures
from stride.envs_fast.arguments import count
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.popgym_deck import CARDS, Kinds, left_of, levels, next_kind, without_kind
from stride.envs_fast.world import NO_LIMIT, NUMBA, Episode, Moment, Setting, Tables, World, draw, draw_now
from stride.utils.kernel_cache import njit
from stride.utils.user_error import UserError, nearest

KINDS = {"colors": 2, "suits": 4, "ranks": 13}  # deck_type -> how many kinds of cards it has
MAX_DECKS = 4  # five decks have 130 cards of a colour, and a byte of Kinds counts to 127
EACH_BYTE = 0x01010101  # times a number below 128: four bytes with that number
ROWS, WIDTH = 11, 2  # numbers in a state; numbers in an observation

# Kinds of the dealt deck (4), Kinds of the asking deck (4), cards left in each deck, the dealt kind, the asked kind
State = tuple[int, int, int, int, int, int, int, int, int, int, int]


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide."""

    cards: int  # in each of the two decks
    kinds: int  # kinds of cards: 2, 4 or 13
    scale: float  # size of a reward, so that an episode with only right answers returns 1
    time_limit: int = NO_LIMIT


@njit(inline="always")
def deal(word: np.uint32, other: np.uint32, dealt: Kinds, asking: Kinds, left: int, parameters: Parameters) -> State:
    """Draw a card of each deck, by a random word (32 bits) each; return the state after that.

    `left`: cards in each deck before. `word` draws from `dealt`, `other` from `asking`.
    """
    value = next_kind(word, dealt, left, parameters.kinds)
    query = next_kind(other, asking, left, parameters.kinds)
    a, b, c, d = without_kind(dealt, value)
    e, f, g, h = without_kind(asking, query)
    return a, b, c, d, e, f, g, h, left - 1, value, query


@njit(inline="always")
def step(
    state: State, action: int, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """Compare the action with the true count, then deal the next cards; the episode ends with the last ones."""
    a, b, c, d, e, f, g, h, left, _, query = state
    words = (a, b, c, d)
    seen = parameters.cards // parameters.kinds - left_of(query, words)
    gain = parameters.scale if action == seen else -parameters.scale
    word, other, _, _ = draw_now(moment)
    return deal(word, other, words, (e, f, g, h), left, parameters), gain, left == 1


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> State:
    """Deal the first card of two full decks. Bytes of Kinds behind the last kind are filled, too, but never read."""
    words = (parameters.cards // parameters.kinds) * EACH_BYTE
    full = (words, words, words, words)
    word, other, _, _ = draw(0, episode)
    return deal(word, other, full, full, parameters.cards, parameters)


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> tuple[int, int]:
    """Return the kind of the dealt card, and the kind whose count is asked for."""
    return state[9], state[10]


def setting(num_decks: int = 1, deck_type: str = "colors") -> Setting:
    """`num_decks`: decks that are dealt in an episode, 1 to 4. `deck_type`: the kinds: colors, suits or ranks."""
    cards = CARDS * count("num_decks", num_decks, 1, MAX_DECKS)
    if deck_type not in KINDS:
        hint = nearest(str(deck_type), KINDS)
        raise UserError(f"deck_type must be one of {', '.join(KINDS)}, got {deck_type!r}{hint}")
    kinds = KINDS[deck_type]
    return Setting(
        observation_space=Dict({"0": Discrete(kinds), "1": Discrete(kinds)}),
        action_space=Discrete(cards // kinds + 1),
        parameters=Parameters(cards, kinds, 1.0 / (cards - 1)),
    )


WORLDS = levels(
    World(
        env_id="popgym-CountRecall{}-v0",
        setting=setting,
        kernels={NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH)},
        state_size=ROWS,
        state_dtype=np.int32,
        picture=popgym_pictures.two_cards,
    ),
    {"num_decks": 1, "deck_type": "colors"},
    {"num_decks": 2, "deck_type": "suits"},
    {"num_decks": 4, "deck_type": "ranks"},
)
