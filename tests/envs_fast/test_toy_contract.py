"""What toy text and the bandit promise beside their rules: reproducible, resumable, Gymnasium's facts, clear errors."""

import gymnasium
import numpy as np
import pytest
import torch
from cuda_worlds import copied

from stride.envs_fast import registry
from stride.envs_gym.gym_env import GymEnv
from stride.utils.user_error import UserError

IDS = ["FrozenLake-v1", "FrozenLake8x8-v1", "Taxi-v4", "CliffWalking-v1", "CliffWalkingSlippery-v1", "Blackjack-v1"]
STOCHASTIC = [
    ("FrozenLake-v1", {"desc": ["SFF", "FSF", "HFG"]}),
    ("Taxi-v4", {"is_rainy": True, "fickle_passenger": True, "max_episode_steps": 12}),
    ("CliffWalkingSlippery-v1", {"max_episode_steps": 7}),
    ("Blackjack-v1", {}),
    ("Bandit-v0", {"episode_length": 3}),
]


def flat(trajectory):
    return [copied(array) for array in trajectory.arrays]


def meaningful(arrays):
    """Final observations, returns and lengths count only where an episode ended."""
    obs, reward, terminated, truncated, final_obs, episode_return, episode_length = arrays
    ended = (terminated | truncated).astype(bool)
    return obs, reward, terminated, truncated, final_obs[ended], episode_return[ended], episode_length[ended]


def same(left, right):
    return all(np.array_equal(a, b) for a, b in zip(meaningful(left), meaningful(right), strict=True))


@pytest.mark.parametrize(("env_id", "kwargs"), STOCHASTIC)
def test_results_do_not_depend_on_the_number_of_worlds_steps_or_workers(make, env_id, kwargs):
    env = make(env_id, 1300, seed=9, **kwargs)  # two whole tiles and a part
    actions = torch.from_numpy(np.random.default_rng(1).integers(0, env.action_space.n, (40, 1300)))
    whole = flat(env.advance(actions))
    assert (whole[2] | whole[3]).sum() > 1300, "too few episodes end to tell"
    threaded = make(env_id, 1300, seed=9, workers=3, **kwargs)
    assert same(whole, flat(threaded.advance(actions)))
    few = make(env_id, 70, seed=9, **kwargs)
    assert same([array[:, :70] for array in whole], flat(few.advance(actions[:, :70].contiguous())))
    single = make(env_id, 1300, seed=9, **kwargs)
    steps = []
    for action in actions:
        single.step(action)
        steps.append([copied(array[0]) for array in single.last.arrays])
    assert same(whole, [np.stack(arrays) for arrays in zip(*steps, strict=True)])
    threaded.close()


@pytest.mark.parametrize(("env_id", "kwargs"), STOCHASTIC)
def test_worlds_and_seeds_share_nothing(make, env_id, kwargs):
    """Actions in a circle: no two worlds of two neighbouring seeds live the same life, nor one another's later life."""
    worlds, steps = 700, 300  # more than a tile of worlds
    lives = []
    actions = torch.tensor([0, 2, 1, 3] * (steps // 4))[:, None].expand(steps, worlds)
    for seed in (20, 21):
        env = make(env_id, worlds, seed=seed, **kwargs)
        arrays = env.advance(actions % env.action_space.n).arrays
        life = np.stack([np.asarray(array, np.float64).reshape(steps, worlds, -1)[..., 0] for array in arrays[:4]])
        lives += [life[:, lag : lag + 200, world].tobytes() for world in range(worlds) for lag in range(0, 100, 12)]
    assert len(set(lives)) == len(lives)


@pytest.mark.parametrize(("env_id", "kwargs"), STOCHASTIC)
def test_snapshots_are_exact(make, env_id, kwargs, tmp_path):
    env = make(env_id, 100, seed=12, **kwargs)
    actions = torch.from_numpy(np.random.default_rng(2).integers(0, env.action_space.n, (60, 100)))
    env.advance(actions[:31])
    torch.save(env.state_dict(), tmp_path / "state.pt")
    obs = copied(env.last.arrays[0][0])
    expected = flat(env.advance(actions[31:]))
    again = make(env_id, 100, **kwargs)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert np.array_equal(again.last.arrays[0][0], obs)
    assert same(expected, flat(again.advance(actions[31:])))


def test_an_end_at_the_time_limit_is_an_end(make):
    """The task ended there: terminated, and so not truncated."""
    lake = make("FrozenLake-v1", 2, seed=0, is_slippery=False, max_episode_steps=6)
    way = torch.tensor([1, 1, 2, 2, 1, 2]).unsqueeze(1).expand(6, 2).clone()
    way[:, 1] = 0  # the second world stays at its start
    steps = lake.advance(way)
    assert steps.terminated[-1].tolist() == [True, False]
    assert steps.truncated[-1].tolist() == [False, True]
    table = make("Blackjack-v1", 50, seed=0, max_episode_steps=1)
    step = table.step(torch.arange(50) % 2)
    assert step.terminated[::2].all()
    assert torch.equal(step.truncated, ~step.terminated)


@pytest.mark.parametrize("env_id", IDS)
def test_facts_are_gymnasiums(make, env_id):
    ours, theirs = make(env_id, 2, seed=0), GymEnv(env_id, 2)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert (ours.time_limit, ours.reward_threshold) == (theirs.time_limit, theirs.reward_threshold)
    mine, other = ours.reset(3), theirs.reset(3)
    names = list(mine) if isinstance(mine, dict) else [None]
    for name in names:
        a, b = (mine[name], other[name]) if name else (mine, other)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasium_is_shown_the_state(env_id):
    """What rendering sets exists on Gymnasium's environment, and makes it observe what the world observes."""
    env = registry.make(env_id, 200, seed=1)
    env.advance(torch.from_numpy(np.random.default_rng(3).integers(0, env.action_space.n, (5, 200))))
    gym = gymnasium.make(env_id).unwrapped
    gym.reset(seed=0)
    for world in range(200):
        for name, value in env.world.gym_state(env.state[:, world]).items():
            assert name in vars(gym)
            setattr(gym, name, value)
        if env_id == "Blackjack-v1":
            assert gym._get_obs() == tuple(int(leaf[world]) for leaf in env.obs.values())
        else:
            assert gym.s == env.obs[world]


def test_an_unreachable_goal_and_odd_shapes_are_allowed(make):
    env = make("FrozenLake-v1", 4, seed=0, desc=["SH", "HG"])
    assert not env.advance(torch.zeros((9, 4), dtype=torch.int64)).terminated.all()
    assert make("FrozenLake-v1", 1, desc=["SFFFG"]).observation_space.n == 5
    assert make("FrozenLake-v1", 1, desc=gymnasium.make("FrozenLake-v1").unwrapped.desc).observation_space.n == 16


WRONG = [
    ("FrozenLake-v1", {"map_name": "5x5"}, "map_name '5x5' is not one of 4x4, 8x8"),
    ("FrozenLake-v1", {"map_name": None}, "map_name or a desc"),
    ("FrozenLake-v1", {"desc": ["SF", "G"]}, r"rows of equal length, got lengths \[2, 1\]"),
    ("FrozenLake-v1", {"desc": []}, "rows of equal length"),
    ("FrozenLake-v1", {"desc": 3}, "desc must be rows"),
    ("FrozenLake-v1", {"desc": "SFFG"}, "desc must be rows"),
    ("FrozenLake-v1", {"desc": ["SX", "FG"]}, "tile 'X'"),
    ("FrozenLake-v1", {"desc": ["FF", "FG"]}, "no start"),
    ("FrozenLake-v1", {"success_rate": 1.5}, "success_rate must be a probability"),
    ("FrozenLake-v1", {"success_rate": float("nan")}, "success_rate must be a probability"),
    ("FrozenLake-v1", {"is_slippery": 1}, "is_slippery must be true or false"),
    ("FrozenLake-v1", {"reward_schedule": [1, 0]}, "reward_schedule must be 3 numbers"),
    ("FrozenLake-v1", {"reward_schedule": [1, 0, float("inf")]}, "reward_schedule must be 3 finite numbers"),
    ("FrozenLake-v1", {"slippery": True}, "is_slippery"),
    ("Taxi-v4", {"rainy_probability": -0.1}, "rainy_probability must be a probability"),
    ("Taxi-v4", {"fickle_probability": "often"}, "fickle_probability must be a probability"),
    ("Taxi-v4", {"is_rainy": "no"}, "is_rainy must be true or false"),
    ("CliffWalking-v1", {"is_slippery": None}, "is_slippery must be true or false"),
    ("Blackjack-v1", {"natural": 2}, "natural must be true or false"),
]


@pytest.mark.parametrize(("env_id", "kwargs", "line"), WRONG)
def test_wrong_arguments_are_one_clear_line(env_id, kwargs, line):
    with pytest.raises(UserError, match=line) as error:
        registry.make(env_id, 2, **kwargs)
    assert "\n" not in str(error.value)
