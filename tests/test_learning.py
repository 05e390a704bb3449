"""Learning itself, on real environments: `make slow` runs it."""

import json

import pytest

from stride.commands import train
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))


def outcome(*words):
    assert train.command([*words, "-q"]) == 0
    return json.loads(RunDir.find("@last").config_json.read_text())["outcome"]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("variant", ["CartPole-v1:ppo", "CartPole-v1:reinforce"])
def test_cartpole_is_solved(variant, seed):
    ended = outcome(variant, f"seed={seed}")
    assert ended["solved"] and ended["test_mean"] >= 475 and ended["test_episodes"] == 100


@pytest.mark.parametrize(("variant", "goal"), [("Acrobot-v1:ppo", -90), ("Pendulum-v1:ppo", -250)])
def test_other_classics_reach_their_goal(variant, goal):
    assert outcome(variant)["test_mean"] >= goal


def test_the_critic_is_constant_where_the_pole_never_falls():
    """At 500 of 500 the only end is the time limit: the true value is 1 / (1 - gamma) everywhere.

    A critic that took the limit for an end would need to know the time, which it cannot see: its loss could not vanish.
    """
    words = "policy_lr=lin_0.002 clip_range=0.2 n_steps=64 batch_size=0.25 n_epochs=4 gae_lambda=0.9"
    outcome("CartPole-v1:ppo", *words.split(), "early_stop_on_eval_threshold=false", "max_timesteps=120000")
    rows = read_csv(RunDir.find("@last").metrics_csv)
    losses = [row["train/loss/value"] for row in rows if row.get("train/roll/ep_rew/mean") == 500]
    assert losses, "the window never was 100 episodes of 500"
    assert min(losses) < 1e-3
