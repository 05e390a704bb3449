"""First states: a million of each world against their exact distribution, and no two that should differ are equal."""

from collections import Counter
from itertools import pairwise, product

import gymnasium
import numpy as np
import pytest
from goodness import ALPHA, chi_square, kolmogorov_smirnov, uniform
from gymnasium.envs.toy_text import blackjack as cards

from stride.envs_fast.minatar import breakout, freeway
from stride.envs_fast.registry import WORLDS, make

WORLDS_MADE, EPISODES = 1000, 1000
UNIFORM = {  # rows of the state that are drawn; the others begin at zero
    "CartPole-v1": {row: (-0.05, 0.05) for row in range(4)},
    "MountainCar-v0": {0: (-0.6, -0.4)},
    "MountainCarContinuous-v0": {0: (-0.6, -0.4)},
    "Pendulum-v1": {0: (-np.pi, np.pi), 1: (-1.0, 1.0)},
    "Acrobot-v1": {row: (-0.1, 0.1) for row in range(4)},
}


def first_states(env_id, seed=0, worlds=WORLDS_MADE, episodes=EPISODES, **kwargs):
    """The state at the beginning of every episode: [state size, episodes, worlds]."""
    env = make(env_id, worlds, seed=seed, **kwargs)
    everyone, states = np.ones(worlds, bool), np.empty((env.state.shape[0], episodes, worlds))
    for episode in range(episodes):
        states[:, episode] = env.state
        env.restart(everyone)
    return states


@pytest.mark.parametrize("env_id", UNIFORM)
def test_uniform_starts(env_id):
    states, drawn = first_states(env_id), UNIFORM[env_id]
    for row, values in enumerate(states):
        if row not in drawn:
            assert (values == 0.0).all()
            continue
        low, high = drawn[row]
        assert low <= values.min()
        assert values.max() <= high
        assert kolmogorov_smirnov(values.reshape(-1), uniform(low, high)) > ALPHA / 4
        centred = (values - (low + high) / 2) / (high - low) * 12**0.5
        neighbours = (
            (centred[1:], centred[:-1]),
            (centred[:, 1:], centred[:, :-1]),
            (centred[1:, :-1], centred[:-1, 1:]),
        )
        for left, right in neighbours:  # in episodes, in worlds, and along the diagonal
            assert abs((left * right).mean()) < 6 / left.size**0.5
    for row, other in product(drawn, drawn):
        if row < other:
            assert abs(np.corrcoef(states[row].reshape(-1), states[other].reshape(-1))[0, 1]) < 6 / 1e3


def pairs_are_independent(cells, exact):
    """Whether one episode's cell says nothing of the next one's."""
    pairs = np.bincount(len(exact) * cells[:-1] + cells[1:], minlength=len(exact) ** 2)
    return chi_square(pairs, np.outer(exact, exact).reshape(-1)) > ALPHA


@pytest.mark.parametrize("change", [None, 0.0, 0.3, 1.0])
def test_taxi_starts(change):
    """300 states alike, and so many of the passengers fickle."""
    exact = gymnasium.make("Taxi-v4").unwrapped.initial_state_distrib
    kwargs = {} if change is None else {"fickle_passenger": True, "fickle_probability": change}
    states = first_states("Taxi-v4", **kwargs).astype(int).reshape(-1)
    change = change or 0.0
    counts = np.bincount(states, minlength=1000)
    assert chi_square(counts, np.concatenate((exact * (1 - change), exact * change))) > ALPHA
    assert pairs_are_independent((states >= 500).astype(int), [1 - change, change])


def test_lake_starts():
    """Every start tile alike; the usual maps have but one."""
    lake = ["SFSS", "FHSG", "SSSS"]
    exact = gymnasium.make("FrozenLake-v1", desc=lake).unwrapped.initial_state_distrib
    states = first_states("FrozenLake-v1", desc=lake).astype(int).reshape(-1)
    assert chi_square(np.bincount(states, minlength=12), exact) > ALPHA
    assert pairs_are_independent(states, exact)


@pytest.mark.parametrize(
    ("env_id", "start"), [("CliffWalking-v1", 36), ("CliffWalkingSlippery-v1", 36), ("FrozenLake8x8-v1", 0)]
)
def test_a_single_start(env_id, start):
    assert (first_states(env_id, episodes=3) == start).all()


def test_blackjack_deals():
    """The whole state, and what is observed of it, against all 10,000 deals of four cards."""
    states = first_states("Blackjack-v1").astype(int).reshape(5, -1)
    deck, exact = Counter(cards.deck), Counter()
    for deal in product(deck, repeat=4):
        probability = np.prod([deck[card] / 13 for card in deal])
        exact[sum(deal[:2]), int(1 in deal[:2]), 2, deal[2], deal[3]] += probability
    happened = Counter(map(tuple, states.T.tolist()))
    assert set(happened) <= set(exact)
    assert chi_square([happened[cell] for cell in exact], list(exact.values())) > ALPHA

    env = make("Blackjack-v1", 5000, seed=3)
    observed = np.stack([env.obs[name].numpy() for name in ("0", "1", "2")])
    total, ace, _, up, _ = env.state
    assert np.array_equal(observed, np.stack([total + 10 * ace, up, ace]))


def test_minatars_ball_and_cars():
    """The ball comes from either side; a car goes in either direction at one of five speeds, whatever the others do."""
    balls = first_states("MinAtar/Breakout-v1", episodes=100)[breakout.BALL_X]
    assert chi_square([(balls == 0).sum(), (balls == 9).sum()], [0.5, 0.5]) > ALPHA
    cars = first_states("MinAtar/Freeway-v1", episodes=100)[freeway.CARS + freeway.REST :: freeway.NUMBERS].astype(int)
    kinds = cars + np.where(cars < 0, 5, 4)  # -5 to -1, 1 to 5 -> 0 to 9
    for one, other in pairwise(kinds):
        assert chi_square(np.bincount((10 * one + other).reshape(-1), minlength=100), np.full(100, 0.01)) > ALPHA / 7


@pytest.mark.parametrize("game", ["Asterix", "Seaquest", "SpaceInvaders"])
def test_other_games_of_minatar_begin_alike(game):
    states = first_states(f"MinAtar/{game}-v1", worlds=10, episodes=3)
    assert (states == states[:, :1, :1]).all()


def test_every_world_has_its_distribution_tested():
    tested = {*UNIFORM, "Taxi-v4", "FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1"}
    tested |= {env_id for env_id in WORLDS if env_id.startswith("MinAtar/")}
    own_files = ("bsuite/", "popgym-", "MiniGrid-")  # test_bsuite.py, test_popgym.py, test_minigrid.py
    families = {env_id for env_id in WORLDS if env_id.startswith(own_files)}
    assert set(WORLDS) == tested | families | {"Blackjack-v1", "Bandit-v0"}, (
        "a bandit has no first state; add the new world"
    )


def test_the_tests_can_fail():
    """A die that is wrong by a fiftieth, an event that cannot be, a range that is wrong by a hundredth."""
    rng = np.random.default_rng(0)
    die = np.full(6, 1 / 6)
    counts = rng.multinomial(1_000_000, die)
    assert chi_square(counts, die) > ALPHA
    assert chi_square(counts, die + 0.02 * np.array([1, -1, 0, 0, 0, 0]) / 6) < ALPHA
    assert chi_square([10, 1], [1.0, 0.0]) == 0.0
    assert chi_square([1000, 3, 4, 5], [0.988, 0.004, 0.004, 0.004]) > ALPHA  # small cells are pooled
    sample = rng.random(1_000_000)
    assert kolmogorov_smirnov(sample, uniform(0, 1)) > ALPHA
    assert kolmogorov_smirnov(sample, uniform(0, 1.01)) < ALPHA
