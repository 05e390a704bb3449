"""The Stable-Baselines3 face: what its callers read, its own checker, and its own PPO trained on it."""

import gymnasium
import numpy as np
import pytest
import torch
from reachable import IDS

from stride import envs_fast
from stride.envs_fast.world import fast_id
from stride.utils.user_error import UserError

pytest.importorskip("stable_baselines3", reason="pip install 'stride-rl[sb3]'")

from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from stride.envs_fast import sb3


def cartpole(n_envs=4, **options):
    return sb3.make("CartPole-v1", n_envs, **{"seed": 0, **options})


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_id_is_a_vec_env_with_the_shapes_of_dummy_vec_env(env_id):
    env = sb3.make(env_id, 3, seed=0)
    assert isinstance(env, VecEnv) and env.num_envs == 3
    obs = env.reset()
    first = {name: leaf[0] for name, leaf in obs.items()} if isinstance(obs, dict) else obs[0]
    assert env.observation_space.contains(first)
    if isinstance(obs, dict):  # DummyVecEnv knows a tuple as a tuple, SB3's policies do not
        return
    theirs = DummyVecEnv([lambda: gymnasium.make(env_id)] * 3)
    theirs.action_space.seed(0)
    assert (env.observation_space, env.action_space) == (theirs.observation_space, theirs.action_space)
    theirs.seed(0)
    assert (obs.shape, obs.dtype) == (theirs.reset().shape, theirs.reset().dtype)
    mine, expected = (vector.step(np.array([env.action_space.sample()] * 3)) for vector in (env, theirs))
    for one, other in zip(mine[:3], expected[:3], strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
    assert [type(info) for info in mine[3]] == [dict] * 3
    check_env(gymnasium.make(fast_id(env_id)), skip_render_check=True)


@pytest.mark.parametrize("limit", [None, 9])
def test_infos_of_ended_episodes(limit):
    env, plain = cartpole(max_episode_steps=limit), envs_fast.make("CartPole-v1", 4, max_episode_steps=limit)
    assert np.array_equal(env.reset(), plain.reset(0).numpy())
    ends, actions = 0, np.array([1, 1, 1, 0])
    for _ in range(40):
        obs, rewards, dones, infos = env.step(actions)
        step = plain.step(torch.from_numpy(actions))
        assert np.array_equal(obs, step.obs.numpy()) and rewards.tolist() == step.reward.tolist()
        for world in range(4):
            if not dones[world]:
                assert infos[world] == {}
                continue
            ends += 1
            info = infos[world]
            assert np.array_equal(info["terminal_observation"], step.final_obs[world].numpy())
            assert info["TimeLimit.truncated"] is bool(step.truncated[world])
            length = int(step.episode_length[world])
            assert (info["episode"]["r"], info["episode"]["l"]) == (float(length), length)
    assert ends > 8


def test_results_are_the_callers():
    env = cartpole()
    kept = [env.reset(), *env.step(np.ones(4, np.int64))[:3]]
    copies = [array.copy() for array in kept]
    for _ in range(30):
        env.step(np.ones(4, np.int64))
    assert all(np.array_equal(one, other) for one, other in zip(kept, copies, strict=True))


def test_seeds():
    env = cartpole(seed=None)
    assert env.seed(3) == [3, 4, 5, 6]
    first, second = env.reset(), env.reset()  # a seed is used once; then the streams go on
    assert not (first == second).any()
    env.seed(3)
    assert np.array_equal(env.reset(), first) and np.array_equal(env.reset(), second)
    assert not np.array_equal(cartpole(seed=None).reset(), cartpole(seed=None).reset())


def test_attributes_and_methods_of_the_worlds():
    env = cartpole(3, render_mode="rgb_array")
    env.reset()
    assert env.get_attr("gravity") == [9.8] * 3 and env.get_attr("render_mode", 0) == ["rgb_array"]
    assert np.array_equal(env.get_attr("state", [1])[0], env.env.state[:, 1])
    env.set_attr("note", "mine", [0, 2])
    assert env.get_attr("note") == ["mine", None, "mine"]
    assert not env.has_attr("nothing_of_the_kind") and env.has_attr("length")
    frames = env.env_method("render", indices=[0, 1])
    assert len(frames) == 2 and frames[0].shape == (400, 600, 3) and not np.array_equal(*frames)
    assert env.render().shape == (800, 1200, 3)  # tiled by SB3
    assert env.env_is_wrapped(Monitor) == [True] * 3
    assert env.env_is_wrapped(gymnasium.wrappers.TimeLimit, [0]) == [False]
    env.close()


BAD = [
    (lambda: cartpole(2).step(np.zeros(2, np.int64)), UserError, "call reset.* before the first step"),
    (lambda: begun().step(np.zeros(2)), ValueError, r"takes 2 actions of Discrete\(2\), got float64\[2\]"),
    (lambda: begun().step(np.array([0, 5])), ValueError, "environment 1: action 5"),
    (lambda: begun().set_attr("gravity", 1.0), UserError, "'gravity' cannot be set in compiled environments"),
    (lambda: begun().get_attr("nothing_of_the_kind"), AttributeError, ""),
]


def begun():
    env = cartpole(2)
    env.reset()
    return env


@pytest.mark.parametrize(("wrong", "kind", "line"), BAD)
def test_bad_input_is_one_clear_error(wrong, kind, line):
    with pytest.raises(kind, match=line):
        wrong()


def test_sb3s_ppo_trains_and_saves(tmp_path):
    env = VecNormalize(cartpole(4))
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=2, seed=0, device="cpu")
    before = model.policy.state_dict()["action_net.weight"].clone()
    model.learn(512)
    assert model.num_timesteps == 512 and not before.equal(model.policy.state_dict()["action_net.weight"])
    assert len(model.ep_info_buffer) > 5  # our episode infos reached its log
    model.save(tmp_path / "model")
    assert PPO.load(tmp_path / "model", cartpole(4)).predict(np.zeros((4, 4), np.float32))[0].shape == (4,)
