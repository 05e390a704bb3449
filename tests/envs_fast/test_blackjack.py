"""Blackjack-v1 against exact probabilities, computed with Gymnasium's own arithmetic of hands."""

from collections import Counter
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from goodness import ALPHA, chi_square
from gymnasium.envs.toy_text import blackjack as cards

from stride.envs_fast.registry import make

DRAWS = 200_000
CARDS = Counter(cards.deck)


@cache
def dealers(hand):
    """{the dealer's final hand's worth: probability} from these cards on, by Gymnasium's own arithmetic of hands."""
    if cards.sum_hand(list(hand)) >= 17:
        return {cards.sum_hand(list(hand)): 1.0}
    ends = Counter()
    for card, copies in CARDS.items():
        for worth, probability in dealers(tuple(sorted((*hand, card)))).items():
            ends[worth] += probability * copies / 13
    return dict(ends)


def payoffs(player, dealer, natural, sab):
    """{reward of sticking: probability}"""
    rewards = Counter()
    for worth, probability in dealers(dealer).items():
        reward = cards.cmp(cards.score(player), 0 if worth > 21 else worth)
        if cards.is_natural(player):
            if sab and not cards.is_natural(list(dealer)):
                reward = 1.0
            if natural and not sab and reward == 1.0:
                reward = 1.5
        rewards[reward] += probability
    return rewards


def deal(env, hands):
    """Put (player's cards, open card, hidden card) on the tables of worlds 0, 1, ..."""
    for world, (player, up, hole) in enumerate(hands):
        env.state[:, world] = sum(player), 1 in player, len(player), up, hole


HANDS = [[2, 2], [10, 2], [10, 6], [10, 7], [9, 9], [10, 10], [1, 6], [1, 10], [10, 6, 5], [1, 5, 5], [1, 10, 10]]


@pytest.mark.parametrize(("natural", "sab"), [(False, False), (True, False), (False, True), (True, True)])
def test_sticking_pays_with_the_exact_probabilities(natural, sab):
    tables = list(product(HANDS, range(1, 11), range(1, 11)))
    each, rounds = 100, 20
    env = make("Blackjack-v1", len(tables) * each, seed=5, natural=natural, sab=sab)
    outcomes, counts = [-1.0, 0.0, 1.0, 1.5], np.zeros((len(tables), 4), np.int64)
    stick = torch.zeros(env.num_envs, dtype=torch.int64)
    deal(env, [table for table in tables for _ in range(each)])
    dealt = env.state.copy()
    for _ in range(rounds):
        env.state[:] = dealt
        step = env.step(stick)
        assert step.terminated.all()
        index = np.searchsorted(outcomes, step.reward.numpy())
        assert np.array_equal(step.final_obs["1"].numpy(), dealt[3])
        rows = np.repeat(np.arange(len(tables)), each)
        counts += np.bincount(4 * rows + index, minlength=counts.size).reshape(counts.shape)
    tails = []
    for row, (player, up, hole) in zip(counts, tables, strict=True):
        exact = payoffs(player, tuple(sorted((up, hole))), natural, sab)
        tails.append(chi_square(row, [exact[reward] for reward in outcomes]))
    assert min(tails) > ALPHA / len(tails)


@pytest.mark.parametrize("player", [[10, 7], [10, 8], [10, 9], [10, 10], [10, 10, 1]])
def test_a_long_hand_of_the_dealers_is_drawn_from_fresh_cards(player):
    """From a pair of twos the dealer may need more cards than one block of random words holds."""
    env = make("Blackjack-v1", DRAWS, seed=len(player) * sum(player))
    env.state[:] = np.array([[sum(player)], [int(1 in player)], [len(player)], [2], [2]])
    reward = env.step(torch.zeros(DRAWS, dtype=torch.int64)).reward.numpy()
    exact = payoffs(player, (2, 2), False, True)
    assert chi_square([(reward == value).sum() for value in (-1, 0, 1)], [exact[value] for value in (-1, 0, 1)]) > ALPHA


def test_a_card_drawn_changes_the_hand_as_gymnasium_counts_it():
    hands = [hand for hand in HANDS if cards.sum_hand(hand) <= 21] + [[1, 1], [1, 2], [5, 5], [10, 10, 1]]
    each = DRAWS // len(hands)
    env = make("Blackjack-v1", len(hands) * each, seed=6)
    deal(env, [(hand, 4, 9) for hand in hands for _ in range(each)])
    step = env.step(torch.ones(env.num_envs, dtype=torch.int64))
    tails = []
    for k, hand in enumerate(hands):
        part = slice(k * each, (k + 1) * each)
        bust = step.terminated[part]
        seen = {
            name: torch.where(bust, step.final_obs[name][part], step.obs[name][part]).numpy()
            for name in ("0", "1", "2")
        }
        exact = Counter()
        for card, copies in CARDS.items():
            worth, usable = cards._hand_sum_and_usable_ace([*hand, card])
            exact[worth, usable, worth > 21] += copies / 13
        cells, counts = np.unique(np.stack((seen["0"], seen["2"], bust)), axis=1, return_counts=True)
        happened = Counter(dict(zip(map(tuple, cells.T.tolist()), counts.tolist(), strict=True)))
        assert set(happened) <= set(exact)
        assert (seen["1"] == 4).all()
        assert torch.equal(step.reward[part], torch.where(bust, -1.0, 0.0))
        tails.append(chi_square([happened[cell] for cell in exact], list(exact.values())))
    assert min(tails) > ALPHA / len(tails)


def test_cards_of_a_hand_are_independent():
    """Two hits in a row on an empty hand: the pair of cards has the product of the deck's probabilities."""
    env = make("Blackjack-v1", DRAWS, seed=7)
    deck = np.array([CARDS[card] / 13 for card in range(1, 11)])
    env.state[:] = np.array([[0], [0], [2], [4], [9]])
    hit = torch.ones(DRAWS, dtype=torch.int64)
    env.step(hit)
    first = env.state[0].copy()
    env.step(hit)
    second = env.state[0] - first
    counts = np.bincount(10 * (first - 1) + second - 1, minlength=100)
    assert chi_square(counts, np.outer(deck, deck).reshape(-1)) > ALPHA
