"""Sizes that no machine could hold are one line, wherever they are asked for; what some machine holds is a config."""

import pytest

from stride.commands import train
from stride.config.loader import from_plain, load_config, to_plain
from stride.utils.user_error import UserError

PPO, DQN = "CartPole-v1:ppo", "MountainCar-v0:dqn"
TOO_LARGE = [
    *((PPO, f"{words}=1e12") for words in ("n_envs", "n_steps", "hidden_dims", "frame_stack", "frame_skip",
                                           "eval_episodes", "batch_size")),
    *((DQN, f"{words}=1e12") for words in ("train_freq", "buffer_size", "quantiles", "n_step")),
    (PPO, "hidden_dims=[1e6,1e6,1e6]"), (PPO, "resize_obs=1e6"), (PPO, "resize_obs=[1e6,1e6]"),
    (PPO, "n_envs=1e7 n_steps=1e7 max_timesteps=1e15"), (DQN, "batch_size=1e9"),
    (DQN, "n_envs=1e6 train_freq=1e6 buffer_size=1e9"),
]  # fmt: skip
LARGE = [
    (PPO, "n_envs=262144 n_steps=1024 max_timesteps=1e9"), (PPO, "hidden_dims=[16384,16384]"),
    (PPO, "frame_stack=1000"), (PPO, "resize_obs=2048"), (PPO, "batch_size=1.0"), (DQN, "buffer_size=64e9"),
    (DQN, "batch_size=1e6"), (DQN, "quantiles=1000"), (DQN, "n_envs=4096 buffer_size=1e8"),
]  # fmt: skip


@pytest.mark.parametrize(("config_id", "words"), TOO_LARGE)
def test_what_cannot_be_is_refused_before_there_is_a_folder(capsys, monkeypatch, tmp_path, config_id, words):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    assert train.command([config_id, "-q", *words.split()]) == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1 and len(captured.err) < 300 and not list(tmp_path.iterdir()), captured


@pytest.mark.parametrize(("config_id", "words"), LARGE)
def test_what_some_machine_holds_is_a_config(config_id, words):
    assert load_config(*config_id.split(":"), words.split())


@pytest.mark.parametrize("key", ["gamma", "seed", "max_timesteps", "policy_lr", "goal", "policy_kwargs", "hidden_dims"])
@pytest.mark.parametrize("number", [10**400, -(10**4000), 2**63])
def test_a_number_no_config_means_is_one_line(key, number):
    plain = to_plain(load_config("CartPole-v1", "ppo"))
    place = plain["spec"] if key == "goal" else plain
    place[key] = {"features": number} if key == "policy_kwargs" else [number] if key == "hidden_dims" else number
    with pytest.raises(UserError, match=r"config.json holds a number of \d+ digits"):
        from_plain(plain)
