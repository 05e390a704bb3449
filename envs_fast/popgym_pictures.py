"""Draws observations of POPGym's compiled worlds as RGB pictures, uint8 [height, width, 3].

The functions `card`, `two_cards`, `card_and_mode`, `cart` and `pendulum` are used as `World.picture` by popgym_*.py.
Card games show cards of HEIGHT x WIDTH cells; the two physics worlds let Gymnasium draw them.
"""

from functools import cache
from typing import Any

import gymnasium
import numpy as np

SUITS = (  # spade, diamond, club, heart: seven rows of seven cells, # is drawn
    "...#... ..###.. .#####. ####### ####### ..###.. .#####.",
    "...#... ..###.. .#####. ####### .#####. ..###.. ...#...",
    "..###.. ..###.. ####### ####### ####### ...#... .#####.",
    ".##.##. ####### ####### ####### .#####. ..###.. ...#...",
)
HEIGHT, WIDTH, PIXELS = 11, 9, 16  # cells of a card; pixels of a cell's side
BLACK, RED, PAPER, YELLOW = (20, 20, 20), (200, 40, 40), (245, 245, 240), (250, 225, 130)
TABLE, ASKING = (30, 90, 60), (50, 70, 120)  # background while cards are shown, and while they are asked for


def sheet(colour: tuple[int, int, int]) -> np.ndarray:
    """Return the cells of a card without a sign, uint8 [HEIGHT, WIDTH, 3]."""
    return np.full((HEIGHT, WIDTH, 3), colour, np.uint8)


def framed(cards: list[np.ndarray], colour: tuple[int, int, int]) -> np.ndarray:
    """Return a picture of cards side by side, with a border of one cell; `colour`: the background."""
    table = np.full((HEIGHT + 2, (WIDTH + 1) * len(cards) + 1, 3), colour, np.uint8)
    for position, card in enumerate(cards):
        left = 1 + (WIDTH + 1) * position
        table[1:-1, left : left + WIDTH] = card
    return np.repeat(np.repeat(table, PIXELS, axis=0), PIXELS, axis=1)


def of_suit(suit: int) -> np.ndarray:
    """Return the cells of a card with the sign of its suit."""
    card = sheet(PAPER)
    shape = np.array([[cell == "#" for cell in row] for row in SUITS[suit].split()])
    card[2:9, 1:8][shape] = RED if suit in (1, 3) else BLACK
    return card


def of_kind(kind: int, paper: tuple[int, int, int]) -> np.ndarray:
    """Return the cells of a card with kind + 1 dots; kinds are colours, suits or ranks."""
    card = sheet(paper)
    for dot in range(kind + 1):
        card[1 + 2 * (dot // 3), 2 + 2 * (dot % 3)] = BLACK
    return card


def card(obs: np.ndarray) -> np.ndarray:
    """Draw RepeatFirst or RepeatPrevious: the last card."""
    return framed([of_suit(int(obs))], TABLE)


def two_cards(obs: np.ndarray) -> np.ndarray:
    """Draw CountRecall: the dealt card, and beside it in yellow the kind that is asked for."""
    value, query = obs.tolist()
    return framed([of_kind(value, PAPER), of_kind(query, YELLOW)], TABLE)


def card_and_mode(obs: np.ndarray) -> np.ndarray:
    """Draw Autoencode: the last card on a green table; a blue table while suits are asked for."""
    watching, suit = obs.tolist()
    return framed([of_suit(suit)], TABLE if watching else ASKING)


def cart(obs: np.ndarray) -> np.ndarray:
    """Draw PositionOnlyCartPole as Gymnasium draws CartPole."""
    return drawn("CartPole-v1", np.array([obs[0], 0.0, obs[1], 0.0]))


def pendulum(obs: np.ndarray) -> np.ndarray:
    """Draw PositionOnlyPendulum as Gymnasium draws Pendulum, without the arrow of the torque."""
    return drawn("Pendulum-v1", np.array([np.arctan2(obs[1], obs[0]), 0.0]))


def drawn(env_id: str, state: np.ndarray) -> np.ndarray:
    """Return the picture that Gymnasium's environment draws of a state."""
    env = artist(env_id)
    env.unwrapped.state = state
    frame: np.ndarray = env.render()
    return frame


@cache
def artist(env_id: str) -> Any:
    """Return Gymnasium's environment that draws; it is made only once in a process."""
    env = gymnasium.make(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    return env
