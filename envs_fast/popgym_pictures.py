"""How POPGym's worlds are drawn: what is seen of one, as uint8 [height, width, 3]."""

from functools import cache
from typing import Any

import gymnasium
import numpy as np

SUITS = (  # spade, diamond, club, heart
    "...#... ..###.. .#####. ####### ####### ..###.. .#####.",
    "...#... ..###.. .#####. ####### .#####. ..###.. ...#...",
    "..###.. ..###.. ####### ####### ####### ...#... .#####.",
    ".##.##. ####### ####### ####### .#####. ..###.. ...#...",
)
HEIGHT, WIDTH, PIXELS = 11, 9, 16  # of a card in cells, and of a cell
BLACK, RED, PAPER, YELLOW = (20, 20, 20), (200, 40, 40), (245, 245, 240), (250, 225, 130)
TABLE, ASKING = (30, 90, 60), (50, 70, 120)  # behind a card that is shown, and behind one that is asked for


def sheet(colour: tuple[int, int, int]) -> np.ndarray:
    """The cells of an empty card."""
    return np.full((HEIGHT, WIDTH, 3), colour, np.uint8)


def framed(cards: list[np.ndarray], colour: tuple[int, int, int]) -> np.ndarray:
    """Cards side by side on a table, in pixels."""
    table = np.full((HEIGHT + 2, (WIDTH + 1) * len(cards) + 1, 3), colour, np.uint8)
    for place, card in enumerate(cards):
        left = 1 + (WIDTH + 1) * place
        table[1:-1, left : left + WIDTH] = card
    return np.repeat(np.repeat(table, PIXELS, axis=0), PIXELS, axis=1)


def of_suit(suit: int) -> np.ndarray:
    """A card that shows its suit."""
    card = sheet(PAPER)
    shape = np.array([[cell == "#" for cell in row] for row in SUITS[suit].split()])
    card[2:9, 1:8][shape] = RED if suit in (1, 3) else BLACK
    return card


def of_kind(kind: int, paper: tuple[int, int, int]) -> np.ndarray:
    """A card with a dot for each kind up to its own: colours, suits or ranks."""
    card = sheet(paper)
    for dot in range(kind + 1):
        card[1 + 2 * (dot // 3), 2 + 2 * (dot % 3)] = BLACK
    return card


def card(obs: np.ndarray) -> np.ndarray:
    """RepeatFirst and RepeatPrevious: the last card."""
    return framed([of_suit(int(obs))], TABLE)


def two_cards(obs: np.ndarray) -> np.ndarray:
    """CountRecall: the card that was dealt, and in yellow the kind that is asked for."""
    value, query = obs.tolist()
    return framed([of_kind(value, PAPER), of_kind(query, YELLOW)], TABLE)


def card_and_mode(obs: np.ndarray) -> np.ndarray:
    """Autoencode: the last card on a green table; on a blue one when the cards are asked for."""
    watching, suit = obs.tolist()
    return framed([of_suit(suit)], TABLE if watching else ASKING)


def cart(obs: np.ndarray) -> np.ndarray:
    """PositionOnlyCartPole: as Gymnasium draws it."""
    return drawn("CartPole-v1", np.array([obs[0], 0.0, obs[1], 0.0]))


def pendulum(obs: np.ndarray) -> np.ndarray:
    """PositionOnlyPendulum: as Gymnasium draws it, without an arrow for the torque."""
    return drawn("Pendulum-v1", np.array([np.arctan2(obs[1], obs[0]), 0.0]))


def drawn(env_id: str, state: np.ndarray) -> np.ndarray:
    """A state of Gymnasium's environment, as that draws it."""
    env = artist(env_id)
    env.unwrapped.state = state
    frame: np.ndarray = env.render()
    return frame


@cache
def artist(env_id: str) -> Any:
    """Gymnasium's environment, made once."""
    env = gymnasium.make(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    return env
