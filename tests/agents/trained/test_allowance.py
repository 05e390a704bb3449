"""A network takes the memory of the weights that came for it, as every agent's own does; more is refused."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from tiny_runs import tiny_run

from stride.agents.engines.choice import build_agent
from stride.agents.trained.allowance import Allowance
from stride.agents.trained.loading import build_player
from stride.commands import run_play, train
from stride.config.loader import load_config
from stride.envs_gym.make import make_envs
from stride.utils.user_error import UserError

EVERY = [
    ("CartPole-v1:ppo", "n_envs=4", "share_trunk=true", "normalize_obs=true"),
    ("CartPole-v1:ppo", "obs=pixels", "policy=cnn", "frame_stack=4", "policy_kwargs.features=64"),
    ("CartPole-v1:ppo_lstm", "n_envs=16", "hidden_dims=[32,48]"),
    ("CartPole-v1:reinforce",),
    ("CartPole-v1:pqn",),
    ("MountainCar-v0:dqn", "dueling=true", "quantiles=7", "n_step=3", "prioritised=true"),
    ("Pendulum-v1:sac",),
    ("FrozenLake-v1:q_learning",),
]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_an_agents_own_weights_allow_its_network(words):
    config = load_config(*words[0].split(":"), [*words[1:], "engine=eager"])
    config = replace(config, env_backend="gym")
    envs = make_envs(config, config.n_envs)
    policy = build_agent(config, envs).policy
    envs.close()
    player = build_player(config, policy.state_dict(), "mine")
    assert all(torch.equal(value, policy.state_dict()[name]) for name, value in player.policy.state_dict().items())


@pytest.mark.parametrize("make", [
    lambda: torch.empty(1 << 40), lambda: torch.zeros(1 << 20, 1 << 20), lambda: torch.arange(1 << 40),
    lambda: torch.nn.Linear(1 << 20, 1 << 20), lambda: torch.nn.LSTM(1, 1 << 16),
    lambda: torch.zeros(1).new_full((1 << 40,), 1.0), lambda: [torch.ones(1 << 20) for _ in range(1 << 10)],
])  # fmt: skip
def test_more_is_never_made(make):
    with pytest.raises(UserError, match="asks for a tensor of"), Allowance({"w": torch.zeros(8)}, 32, "theirs"):
        make()


def test_a_view_does_not_claim_more_than_there_is():
    endless = torch.zeros(1).expand(1 << 40)
    assert Allowance({"w": endless}, 0, "theirs").largest < 1 << 30


def spoilt(folder, changes):
    """A run of somebody else, whose config says more."""
    run = tiny_run(engine="eager")
    theirs = folder / "theirs" / run.id
    shutil.copytree(run.path, theirs, symlinks=True)
    facts = json.loads((theirs / "config.json").read_text())
    facts["config"].update(changes)
    (theirs / "config.json").write_text(json.dumps(facts))
    return theirs


CHANGES = {
    "product": (
        {"n_envs": 1 << 16, "n_steps": 1 << 16, "frame_stack": 2, "max_timesteps": 1 << 40},
        "a rollout takes 34,359,738,368",
    ),
    "rollout": ({"n_steps": 1 << 22, "max_timesteps": 1 << 40}, "n_steps of more than"),
    "window": ({"env_kwargs": {"render_mode": "human"}}, "env_kwargs.render_mode"),
    "memory": ({"policy": "gru", "policy_kwargs": {"hidden_size": 50_000}, "batch_size": 1.0}, "asks for a tensor of"),
    "network": ({"hidden_dims": [50_000, 50_000]}, "asks for a tensor of"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_run_folder_from_elsewhere_gets_no_more(tmp_path, monkeypatch, capsys, what):
    changes, words = CHANGES[what]
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    theirs = spoilt(tmp_path, changes)
    capsys.readouterr()
    assert run_play.command(["--run-id", str(theirs), "--headless", "--episodes", "1"]) == 2
    line = capsys.readouterr().err
    assert words in line and len(line.splitlines()) == 1, line


@pytest.mark.parametrize("what", ["rollout", "window", "product"])
def test_training_goes_on_with_no_such_folder(tmp_path, monkeypatch, capsys, what):
    changes, words = CHANGES[what]
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    theirs = spoilt(tmp_path, changes)
    capsys.readouterr()
    assert train.command(["--resume", str(theirs), "-q", "--accept-changes"]) == 2
    line = capsys.readouterr().err
    assert words in line and len(line.splitlines()) == 1, line
