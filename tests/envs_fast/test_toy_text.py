"""FrozenLake, Taxi, CliffWalking against Gymnasium's tables, as numbers and frequencies; Blackjack's probabilities."""

from collections import Counter
from functools import cache
from itertools import product

import gymnasium
import numpy as np
import pytest
import torch
from goodness import ALPHA, chi_square
from gymnasium.envs.toy_text import blackjack as cards

from stride.envs_fast.registry import WORLDS, make

RAINY, FICKLE = {"is_rainy": True, "rainy_probability": 0.7}, {"fickle_passenger": True, "fickle_probability": 0.5}
RAGGED_LAKE = {"desc": ["SFHF", "FFSF", "HFGF"], "success_rate": 0.8, "reward_schedule": (5, -2, -1)}
TABULAR = [
    ("FrozenLake-v1", {}),
    ("FrozenLake-v1", {"is_slippery": False}),
    ("FrozenLake-v1", {"success_rate": 0.0}),
    ("FrozenLake-v1", {"success_rate": 1.0}),
    ("FrozenLake-v1", RAGGED_LAKE),
    ("FrozenLake8x8-v1", {}),
    ("Taxi-v4", {}),
    ("Taxi-v4", RAINY),
    ("Taxi-v4", FICKLE),
    ("Taxi-v4", RAINY | FICKLE),
    ("CliffWalking-v1", {}),
    ("CliffWalkingSlippery-v1", {}),
]
DRAWS = 200_000  # of all outcomes together, and at least 200 of every state and action


def transitions(env_id, kwargs):
    """{(state, action): {(next state, reward, terminated): probability}} by Gymnasium, fickle states from 500 on."""
    table = {}
    for state, row in gymnasium.make(env_id, **kwargs).unwrapped.P.items():
        for action, outcomes in row.items():
            table[state, action] = Counter()
            for probability, to, reward, terminated in outcomes:
                table[state, action][int(to), float(reward), bool(terminated)] += probability
    return table | fickle(table) if kwargs.get("fickle_passenger") else table


def fickle(table):
    """The same while the passenger may still change the destination: by moving while aboard (place 4), then no more."""
    moody = {}
    for (state, action), outcomes in table.items():
        moody[500 + state, action] = Counter()
        for (to, reward, terminated), probability in outcomes.items():
            if state // 4 % 5 == 4 and to // 20 != state // 20:
                for other in {0, 1, 2, 3} - {state % 4}:
                    moody[500 + state, action][to // 4 * 4 + other, reward, terminated] += probability / 3
            else:
                moody[500 + state, action][500 + to, reward, terminated] += probability
    return moody


@pytest.mark.parametrize(("env_id", "kwargs"), TABULAR)
def test_tables_are_gymnasiums(env_id, kwargs):
    setting = WORLDS[env_id].setting(**WORLDS[env_id].default_kwargs | kwargs)
    next_state, rewards, ends, thresholds = setting.tables[:4]
    probabilities = np.diff(thresholds, prepend=0.0, append=1.0)
    expected = transitions(env_id, kwargs)
    assert next_state.shape[:2] == (max(state for state, _ in expected) + 1, max(action for _, action in expected) + 1)
    for (state, action), outcomes in expected.items():
        ours = Counter()
        for k, probability in enumerate(probabilities):
            ours[next_state[state, action, k], rewards[state, action, k], bool(ends[state, action, k])] += probability
        assert ours.keys() == outcomes.keys()
        assert max(abs(ours[each] - outcomes[each]) for each in outcomes) < 1e-15


@pytest.mark.parametrize(("env_id", "kwargs"), TABULAR)
def test_outcomes_have_their_probabilities(env_id, kwargs):
    """Every state and action is played by the kernel itself, over and over; nothing outside the table happens."""
    expected = transitions(env_id, kwargs)
    chains = all(len(outcomes) == 1 for outcomes in expected.values())
    states, actions = (np.array(each) for each in zip(*expected, strict=True))
    rounds, each = 1 if chains else 20, -(-max(DRAWS, 200 * len(expected)) // len(expected) // 20)
    env = make(env_id, len(expected) * each, seed=11, max_episode_steps=10**6, **kwargs)
    rewards = np.unique([reward for outcomes in expected.values() for _, reward, _ in outcomes])
    shape = len(expected), states.max() + 1, len(rewards), 2  # 48 million, of which a few thousand happen
    seen = []
    copies = states.max() + 1 == 1000
    for _ in range(rounds):
        env.state[0] = np.repeat(states, each)
        step = env.step(torch.from_numpy(np.repeat(actions, each)))
        ended, reward = step.terminated.numpy(), np.searchsorted(rewards, step.reward.numpy())
        mood = 500 * (np.repeat(states, each) >= 500) if copies else 0  # ends are reset: their copy cannot be read
        landed = np.where(ended, step.final_obs.numpy() + mood, env.state[0])
        assert not step.truncated.any()
        index = np.repeat(np.arange(len(expected)), each), landed, reward, ended.astype(int)
        seen.append(np.ravel_multi_index(index, shape))
    found, times = np.unique(np.concatenate(seen), return_counts=True)
    counts = dict(zip(found.tolist(), times.tolist(), strict=True))
    tails = []
    for pair, outcomes in enumerate(expected.values()):
        cells = [(pair, to, np.searchsorted(rewards, reward), int(end)) for to, reward, end in outcomes]
        happened = np.array([counts.get(int(np.ravel_multi_index(cell, shape)), 0) for cell in cells])
        assert happened.sum() == rounds * each, "an outcome outside the table"
        tails.append(chi_square(happened, list(outcomes.values())))
    assert min(tails) > ALPHA / len(tails)


def test_the_first_step_does_not_depend_on_the_start():
    """South in the rain: from every start, drawn by reset itself, the outcomes have their probabilities."""
    expected = transitions("Taxi-v4", RAINY)
    env = make("Taxi-v4", DRAWS, seed=12, **RAINY)
    starts = env.state[0].copy()
    env.step(torch.zeros(DRAWS, dtype=torch.int64))
    counts = np.bincount(500 * starts + env.state[0], minlength=500 * 500).reshape(500, 500)
    tails = []
    for start in np.unique(starts):
        exact = np.zeros(500)
        for (to, _, _), probability in expected[start, 0].items():
            exact[to] += probability
        tails.append(chi_square(counts[start], exact))
    assert len(tails) == 300
    assert min(tails) > ALPHA / len(tails)


# ---- Blackjack, by Gymnasium's own arithmetic of hands

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
