"""FrozenLake, Taxi and CliffWalking against Gymnasium's tables: as numbers, as frequencies, and in whole episodes."""

from collections import Counter

import gymnasium
import numpy as np
import pytest
import torch
from goodness import ALPHA, chi_square

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


def test_slips_of_one_episode_are_independent():
    """Two steps right in the middle of the slippery field: up, right and down, each pair as often as every other."""
    env = make("CliffWalkingSlippery-v1", DRAWS, seed=13)
    env.state[0] = 17
    right = torch.ones(DRAWS, dtype=torch.int64)
    env.step(right)
    first = env.state[0].copy()
    env.state[0] = 17
    env.step(right)
    counts = Counter(zip(first.tolist(), env.state[0].tolist(), strict=True))
    assert set(counts) == {(a, b) for a in (5, 18, 29) for b in (5, 18, 29)}
    assert chi_square(list(counts.values()), [1 / 9] * 9) > ALPHA
