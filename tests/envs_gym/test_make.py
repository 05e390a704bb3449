"""The one place of choice: what it makes and refuses in one line; and Gymnasium's worlds behind the contract."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from exotic_worlds import Exotic
from gymnasium.spaces import Box, Discrete, Text
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from playing import OTHERS, leaves, random_actions, refused
from snapshots import shown

from stride.agents.experience.nouns import tree_map
from stride.config.schema import Config
from stride.envs_fast import registry
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_gym.backends import choose_backend
from stride.envs_gym.gym_env import EnvError, GymEnv
from stride.envs_gym.make import env_info, make_envs


@pytest.mark.parametrize(("backend", "kind"), [("auto", NumbaEnv), ("fast", NumbaEnv), ("gym", GymEnv)])
def test_each_backend_gives_its_own_worlds(backend, kind):
    config = Config(env_id="FrozenLake-v1", env_backend=backend, env_kwargs={"is_slippery": False}, max_episode_steps=7)
    envs = make_envs(config, 3)
    assert isinstance(envs, kind) and envs.num_envs == 3 and envs.time_limit == 7
    envs.reset(0)
    down = torch.full((3,), 1)
    assert envs.step(down).obs.tolist() == [4, 4, 4]  # not slippery: the argument arrived
    envs.close()


def test_for_a_gpu_compiled_worlds_are_computed_there_and_gymnasiums_are_copied(monkeypatch):
    device, made = torch.device("cuda:1"), []

    def there(world, number, limit, device, **kwargs):
        made.append((world.env_id, number, limit, device, kwargs))
        return SimpleNamespace(device=device)

    monkeypatch.setattr(registry, "CudaEnv", there)
    monkeypatch.setattr(registry, "training_device", torch.device)  # as if there were two
    make_envs(Config(env_id="FrozenLake-v1", env_kwargs={"is_slippery": False}, max_episode_steps=7), 3, device)
    assert made == [("FrozenLake-v1", 3, 7, device, {"is_slippery": False})]
    monkeypatch.setattr("stride.envs_gym.make.OnDevice", lambda envs, device: (envs, device))
    envs, at = make_envs(Config(env_id="FrozenLake-v1", env_backend="gym"), 3, device)
    assert isinstance(envs, GymEnv) and at == device


SPACES = {
    "Seen": {"observation_space": Text(4), "action_space": Discrete(2)},
    "Done": {"observation_space": Discrete(2), "action_space": Text(4)},
    "Picture": {"observation_space": Box(0, 255, (3, 8, 8), "uint8"), "action_space": Discrete(2)},
    "Demanding": {"observation_space": Discrete(2)},  # and the other one must be given
}
for name, spaces in SPACES.items():
    gymnasium.register(f"stride-test/{name}-v0", Exotic, kwargs=spaces)
REFUSED = [
    *({"env_id": env_id} for env_id in ("CartPol-v1", "xyzzy", "no_such_module:Env-v0", "HalfCheetah-v3")),
    *({"env_id": env_id} for env_id in ("LunarLander-v2", "LunarLander-v9", "LunarLander")),
    *({"env_id": f"stride-test/{name}-v0"} for name in ("Demanding", "Seen", "Done")),
    {"env_id": "FrozenLake-v1", "env_kwargs": {"is_slipery": False}},
    {"env_id": "FrozenLake-v1", "env_kwargs": {"map_name": "9x9"}},
    {"env_id": "CartPole-v1", "env_kwargs": {"max_episode_steps": 3}},
    {"env_id": "CartPole-v1", "env_wrappers": ({"id": "Frames"},)},
    {"env_id": "CartPol-v1", "env_backend": "fast"},
    {"env_id": "LunarLander-v3", "env_backend": "fast"},
    {"env_id": "CartPole-v1", "env_backend": "fast", "frame_skip": 2},
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_wrong_is_one_line_with_the_nearest_or_newest_name(snapshot):
    assert shown("\n".join(refused(**keys) for keys in REFUSED), *OTHERS) == snapshot


def test_what_is_given_and_what_is_seen():
    demanding = Config(env_id="stride-test/Demanding-v0", env_kwargs={"action_space": Discrete(4)})
    assert env_info(demanding).action_space.n == 4
    assert env_info(Config(env_id="stride-test/Picture-v0")).is_image


@pytest.mark.parametrize(
    ("asked", "backend", "reason"),
    [
        ({"env_id": "CartPole-v1"}, "fast", "compiled; supports everything this config uses"),
        ({"env_id": "CartPole-v1", "env_backend": "gym"}, "gym", "as configured"),
        ({"env_id": "CartPole-v1", "env_kwargs": {"render_mode": "rgb_array"}}, "gym", "env_kwargs.render_mode"),
        ({"env_id": "LunarLander-v3"}, "gym", "LunarLander-v3 has no compiled version"),
    ],
)
def test_auto_takes_the_compiled_worlds_where_it_can_and_says_why(asked, backend, reason):
    choice = choose_backend(Config(**asked))
    assert choice.name == backend and reason in choice.reason


# ---- Gymnasium's worlds, by an environment that counts: ends, final observations, returns, seeds, blame

ID = "stride-test/Counting-v0"


def counting(num_envs=2, max_episode_steps=None, **kwargs):
    env = GymEnv(ID, num_envs, kwargs, max_episode_steps)
    env.reset(0)
    return env


def play(env, steps):
    """Copies of what `steps` steps with action 1 returned."""
    action = torch.ones(env.num_envs, dtype=torch.int64)
    return [tree_map(torch.clone, env.step(action)) for _ in range(steps)]


@pytest.mark.parametrize(
    ("end", "length", "limit", "terminated", "truncated"),
    [
        ("terminated", 3, None, True, False),
        ("truncated", 3, None, False, True),
        ("both", 3, None, True, False),
        ("terminated", 3, 3, True, False),  # at the time limit
        ("terminated", 9, 3, False, True),
    ],
)
def test_an_episode_is_terminated_or_truncated_and_never_both(end, length, limit, terminated, truncated):
    env = counting(end=end, length=length, max_episode_steps=limit)
    steps = play(env, 3)
    assert env.time_limit == limit
    assert [step.terminated.tolist() for step in steps] == [[False] * 2, [False] * 2, [terminated] * 2]
    assert [step.truncated.tolist() for step in steps] == [[False] * 2, [False] * 2, [truncated] * 2]


def test_same_step_reset_keeps_the_true_final_observation():
    env = counting(length=3)
    first = env.reset(0).clone()
    steps = play(env, 4)
    assert [step.obs[0, 0].item() for step in steps] == [1, 2, 0, 1]  # the third is already the next episode's first
    assert steps[2].final_obs[:, 0].tolist() == [3, 3]
    assert torch.equal(steps[2].final_obs[:, 1], first[:, 1])  # of the episode that ended
    assert not torch.equal(steps[2].obs[:, 1], first[:, 1])  # of the one that began
    assert torch.equal(steps[3].obs[:, 1], steps[2].obs[:, 1])


def test_each_worlds_return_is_added_up_in_double_precision():
    env = counting(num_envs=2, length=2997)
    env.envs[1].unwrapped.length = 2  # of the episode that each world is in
    (*_, last) = play(env, 2997)
    assert last.episode_return.tolist() == [np.float32(sum(0.1 * k for k in range(1, 2998))), np.float32(0.1)]
    assert last.episode_length.tolist() == [2997, 1]


def test_only_the_first_reset_is_seeded_and_no_global_generator_is_used():
    before = np.random.get_state()[1].tolist(), torch.get_rng_state()
    env = counting(num_envs=3, length=2)
    play(env, 5)
    for world in env.envs:
        first, *rest = world.unwrapped.resets
        assert first is not None and rest == [None, None]
    assert np.random.get_state()[1].tolist() == before[0] and torch.equal(torch.get_rng_state(), before[1])


def test_actions_reach_their_world_in_its_units():
    env = counting(num_envs=3)
    env.step(torch.tensor([2, 0, 1]))
    assert [world.unwrapped.actions for world in env.envs] == [[3], [1], [2]]
    env = counting(action="box")
    action = torch.tensor([[-1.0, 0.5], [7.0, -7.0]])
    env.step(action)
    action.zero_()  # what the world was given is its own
    assert [world.unwrapped.actions[0].tolist() for world in env.envs] == [[0.0, 2.0], [10.0, -4.0]]


@pytest.mark.parametrize(
    ("fault", "what", "cause"),
    [("raise", "the sky fell", ZeroDivisionError), ("shape", r"float32\[1\] does not fit float32\[2\]", ValueError)],
)
def test_a_fault_names_the_environment_and_the_world(fault, what, cause):
    env = counting(num_envs=3)
    env.envs[1].unwrapped.fault = fault
    play(env, 1)
    with pytest.raises(EnvError, match=f"{ID}, environment 1: .*{what}") as caught:
        play(env, 1)
    assert isinstance(caught.value.__cause__, cause)


def starts(seed, num_envs, episodes=4):
    """The random start of each of the first episodes, per world."""
    env = GymEnv(ID, num_envs, {"length": 1})
    first = env.reset(seed)[:, 1].clone()
    return torch.stack([first, *(step.obs[:, 1] for step in play(env, episodes - 1))], dim=1)


def test_seeds_and_worlds_share_no_start_state_and_their_number_changes_none():
    every = torch.cat([starts(seed, 16) for seed in range(8)])
    assert len(every.unique()) == every.numel() == 8 * 16 * 4
    assert torch.equal(starts(5, 2), every[5 * 16 : 5 * 16 + 2])


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1", "MountainCarContinuous-v0"]
)
def test_against_gymnasium_itself(env_id):
    """The same worlds, seeds and actions through Gymnasium's own vector environment in SAME_STEP mode."""
    ours = GymEnv(env_id, 3)
    theirs = SyncVectorEnv([lambda: gymnasium.make(env_id)] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    scale = theirs.single_action_space.high if ours.action_space.shape else 1
    obs = ours.reset(3)
    expected, _ = theirs.reset(seed=ours._seeds)
    for action in random_actions(ours, 250):
        parts = expected if isinstance(expected, tuple) else [expected]
        for (_, mine), other in zip(leaves(obs), parts, strict=True):
            assert np.array_equal(mine, other)
        step = ours.step(action)
        expected, reward, terminated, truncated, _ = theirs.step(action.numpy() * scale)
        assert np.array_equal(step.reward, reward.astype(np.float32))
        assert np.array_equal(step.terminated, terminated)
        assert np.array_equal(step.truncated, truncated & ~terminated)
        obs = step.obs
