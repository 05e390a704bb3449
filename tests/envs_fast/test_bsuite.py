"""bsuite's worlds: the rules by what was seen, in plain Python; what is drawn; and bsuite itself, where it is."""

import gymnasium
import numpy as np
import pytest
import torch
from goodness import ALPHA, chi_square, kolmogorov_smirnov
from playing import columns, whole_episodes

from stride.envs_fast.registry import make
from stride.envs_fast.world import fast_id
from stride.utils.user_error import UserError

PAYS = (1, 3, 10, 30, 100)  # after how many steps each chain of DiscountingChain does


@pytest.mark.parametrize("length", [1, 2, 10, 49, 100])
def test_memory_chain(length):
    env = make("bsuite/MemoryChain-v0", 40, seed=1, memory_length=length)
    rewards = []
    for seen, acted, paid in whole_episodes(env, 2 * length + 2):
        bit = seen[0, 0, 2]
        shown = [0, *range(length + 1)]  # the time that each observation belongs to: the first one comes twice
        expected = [[1 - t / length, 0, bit if t == 0 else 0] for t in shown]
        assert seen[:, 0].tolist() == np.float32(expected).tolist() and bit in (-1, 1)
        assert len(acted) == length + 1 and not paid[:-1].any()
        assert paid[-1] == (1 if acted[-1] == (bit > 0) else -1)
        rewards.append(paid[-1])
    assert len(rewards) == 80 and {*rewards} == {-1, 1}


def test_memory_chains_bit_is_fair():
    env = make("bsuite/MemoryChain-v0", 200_000, seed=2)
    ones = int((columns(env.obs)[:, 0, 2] > 0).sum())
    assert chi_square([ones, 200_000 - ones], [0.5, 0.5]) > ALPHA


def test_catch():
    env = make("bsuite/Catch-v0", 200, seed=3)
    rewards, columns_of_balls = [], []
    for seen, acted, paid in whole_episodes(env, 27):
        ball, paddle = int(np.flatnonzero(seen[0, 0])[0]), 2
        assert len(acted) == 9 and not paid[:-1].any()
        for row, board in enumerate(seen):
            if row:
                paddle = min(max(paddle + acted[row - 1] - 1, 0), 4)
            expected = np.zeros((10, 5))
            expected[row, ball] = expected[9, paddle] = 1
            assert np.array_equal(board, expected)
        assert paid[-1] == (1 if paddle == ball else -1)
        rewards.append(paid[-1])
        columns_of_balls.append(ball)
    assert len(rewards) == 600 and {*rewards} == {-1, 1}
    many = columns(make("bsuite/Catch-v0", 100_000, seed=4).obs)[:, 0]
    assert chi_square(many.sum(0), [0.2] * 5) > ALPHA and {*columns_of_balls} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("mapping_seed", [0, 3, 19])
def test_discounting_chain(mapping_seed):
    env = make("bsuite/DiscountingChain-v0", 60, seed=5, mapping_seed=mapping_seed)
    chosen = set()
    for seen, acted, paid in whole_episodes(env, 200):
        chain = int(acted[0])
        expected = np.zeros(100, np.float32)
        expected[PAYS[chain] - 1] = 1.1 if chain == mapping_seed % 5 else 1.0
        assert np.array_equal(paid, expected)
        assert seen[0].tolist() == [[-1, 0]]
        assert seen[1:, 0].tolist() == np.float32([[chain, t / 100] for t in range(1, 101)]).tolist()
        chosen.add(chain)
    assert chosen == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(("kwargs", "size", "cost"), [
    ({}, 10, 0.01), ({"size": 23, "mapping_seed": 7, "unscaled_move_cost": 0.5}, 23, 0.5),
    ({"size": 2, "randomize_actions": False}, 2, 0.01),
])  # fmt: skip
def test_deep_sea(kwargs, size, cost):
    """bsuite's own draw decides which action goes to the right, and the way there finds the treasure."""
    mapping = np.random.RandomState(kwargs.get("mapping_seed", 42)).binomial(1, 0.5, (size, size))
    if not kwargs.get("randomize_actions", True):
        mapping[:] = 1
    env = make("bsuite/DeepSea-v0", 500, seed=6, **kwargs)
    assert env.observation_space.n == size**2 + 1
    for seen, acted, paid in whole_episodes(env, 2 * size):
        column = 0
        for row, (action, reward) in enumerate(zip(acted, paid, strict=True)):
            assert seen[row] == row * size + column
            right = action == mapping[row, column]
            treasure = right and column == size - 1
            assert reward == np.float32(treasure - (cost / size if right else 0))
            column = min(max(column + (1 if right else -1), 0), size - 1)
        assert len(acted) == size and seen[-1] == size**2
    diver = make("bsuite/DeepSea-v0", 1, seed=6, **kwargs)
    total = sum(float(diver.step(torch.tensor([mapping[row, row]])).reward) for row in range(size))
    assert total == pytest.approx(1 - cost)


def test_wind_of_the_deep_sea():
    """To the right fails once in `size` times; both corners at the bottom add a standard normal."""
    size, worlds = 4, 200_000
    env = make("bsuite/DeepSea-v0", worlds, seed=7, size=size, deterministic=False, randomize_actions=False)
    step = env.step(torch.ones(worlds, dtype=torch.int64))
    moved = columns(step.obs) - size
    assert set(moved) == {0, 1} and (step.reward == np.float32(-0.01 / size)).all()
    assert chi_square(np.bincount(moved), [1 / size, 1 - 1 / size]) > ALPHA / 3

    def normal(x):
        return torch.special.ndtr(torch.from_numpy(x)).numpy()

    for column, treasure in ((0, 0.0), (size - 1, 1.0)):
        env.state[:] = [[size - 1], [column]]
        reward = env.step(torch.ones(worlds, dtype=torch.int64)).reward.double().numpy()
        assert kolmogorov_smirnov(reward - treasure + 0.01 / size, normal) > ALPHA / 3
    env.state[:] = [[size - 1], [1]]
    assert (env.step(torch.zeros(worlds, dtype=torch.int64)).reward == 0).all()


WRONG = [
    ("MemoryChain", {"memory_length": 0}, "memory_length must be a whole number from 1 to 100000, got 0"),
    ("MemoryChain", {"memory_length": 2.5}, "memory_length must be a whole number from 1 to 100000, got 2.5"),
    ("MemoryChain", {"num_bits": 3}, "has no argument 'num_bits'; accepted: memory_length"),
    ("DeepSea", {"size": 1}, "size must be a whole number from 2 to 100, got 1"),
    ("DeepSea", {"deterministic": 1}, "deterministic must be true or false, got 1"),
    ("DeepSea", {"mapping_seed": None}, "mapping_seed must be a whole number from 0 to 4294967295, got None"),
    ("DeepSea", {"unscaled_move_cost": "dear"}, "unscaled_move_cost must be a finite number, got 'dear'"),
    ("DiscountingChain", {"mapping_seed": -1}, "mapping_seed must be a whole number from 0 to 2147483647, got -1"),
    ("Catch", {"rows": 20}, "has no argument 'rows'; accepted: none"),
    ("Cach", {}, "no fast environment 'bsuite/Cach-v0'; did you mean bsuite/Catch-v0"),
]


@pytest.mark.parametrize(("name", "kwargs", "line"), WRONG)
def test_bad_input_is_one_line(name, kwargs, line):
    with pytest.raises(UserError) as caught:
        make(f"bsuite/{name}-v0", 2, **kwargs)
    assert line in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["MemoryChain", "Catch", "DiscountingChain"])
def test_pictures(name):
    """Every world is drawn, and otherwise where something else is seen."""
    env = gymnasium.make_vec(fast_id(f"bsuite/{name}-v0"), num_envs=20, render_mode="rgb_array")
    env.reset(seed=0)
    env.action_space.seed(0)
    env.step(env.action_space.sample())
    frames = env.render()
    assert {(frame.dtype, frame.ndim, frame.shape[2]) for frame in frames} == {(np.dtype(np.uint8), 3, 3)}
    assert len({frame.tobytes() for frame in frames}) > 1


# ---- bsuite itself plays with our draws: 100,000 steps of each


class Drawn:
    """Stands in for the generator of an environment, and draws what it is given."""

    def __init__(self, **values):
        self.values = values

    def binomial(self, n, p, size):
        return np.array([self.values["bit"]])

    def randint(self, high):
        return self.values.get("column", 0)

    def rand(self):
        return 1.0 if self.values["moved"] else 0.0

    def randn(self):
        return self.values["noise"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kwargs"), [
    ("memory_chain:MemoryChain", {"memory_length": 1}), ("memory_chain:MemoryChain", {"memory_length": 30}),
    ("catch:Catch", {}), ("discounting_chain:DiscountingChain", {"mapping_seed": 3}),
    ("deep_sea:DeepSea", {"size": 10, "mapping_seed": 42}), ("deep_sea:DeepSea", {"size": 17, "mapping_seed": 5}),
])  # fmt: skip
def test_bsuite_plays_the_same(name, kwargs):
    module, name = name.split(":")
    package = pytest.importorskip(f"bsuite.environments.{module}", reason="pip install bsuite")
    theirs = getattr(package, name)(**kwargs)
    env = make(f"bsuite/{name}-v0", 100, seed=8, **kwargs)
    steps = 0
    for seen, acted, paid in whole_episodes(env, 1100):
        theirs._rng = Drawn(bit=int(seen[0].reshape(-1)[-1] > 0), column=int(seen[0].reshape(-1)[:5].argmax()))
        moment = theirs.reset()
        for t, action in enumerate(acted):
            assert np.array_equal(moment.observation, as_bsuite(seen[t], env)) and not moment.last()
            moment = theirs.step(int(action))
            assert np.float32(moment.reward) == paid[t]
        assert np.array_equal(moment.observation, as_bsuite(seen[-1], env)) and moment.last()
        steps += len(acted)
    assert steps >= 100_000


def as_bsuite(seen, env):
    """An observation in bsuite's shape: the number of a square is a board with a 1."""
    if seen.ndim:
        return seen
    size = env.env_kwargs["size"]
    return np.eye(size**2 + 1, dtype=np.float32)[seen][:-1].reshape(size, size)


@pytest.mark.slow
def test_bsuites_wind_blows_the_same():
    """100,000 dives' steps with what our wind and noise were."""
    package = pytest.importorskip("bsuite.environments.deep_sea", reason="pip install bsuite")
    kwargs = {"size": 5, "deterministic": False, "mapping_seed": 3}
    theirs, env = package.DeepSea(**kwargs), make("bsuite/DeepSea-v0", 100, seed=9, **kwargs)
    steps = 0
    for seen, acted, paid in whole_episodes(env, 1000):
        theirs.reset()
        for t, action in enumerate(acted):
            column, following = seen[t] % 5, seen[t + 1] % 5
            last = t == 4
            right = action == theirs._action_mapping[t, column]
            sure = 0.002 * right - (right and column == 4)
            theirs._rng = Drawn(moved=following > column or column == 4, noise=float(paid[t]) + sure)
            moment = theirs.step(int(action))
            assert np.float32(moment.reward) == pytest.approx(paid[t], abs=1e-7)
            assert last or np.array_equal(moment.observation, as_bsuite(seen[t + 1], env))
        steps += len(acted)
    assert steps >= 99_000
