"""Every shipped variant trains two iterations and evaluates, in as few steps as it takes; the classics are solved."""

from collections.abc import Iterator

import pytest

from stride.commands import train
from stride.config.extras import extra_of, missing
from stride.config.listing import list_environments
from stride.config.loader import load_config
from stride.config.schema import DreamerConfig, PlaNetConfig, QLearningConfig, ReplayConfig, RolloutConfig
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import list_runs

TINY = ("n_envs=2", "max_timesteps=32", "max_episode_steps=20", "epoch_iterations=1", "test_episodes=1")
ROLLOUT = ("n_steps=8", "batch_size=0.5", "n_epochs=1")
REPLAY = ("train_freq=8", "batch_size=4", "learning_starts=0", "gradient_steps=1", "buffer_size=200", "hidden_dims=8")
MODEL = ("train_freq=8", "batch_size=2", "batch_length=4", "learning_starts=0", "train_ratio=1", "buffer_size=200")
MODEL += ("deter=8", "stoch=2", "width=8", "horizon=3")
OWN = {
    DreamerConfig: (*MODEL, "imagined_starts=4"),
    PlaNetConfig: (*MODEL, "candidates=4", "elites=2"),
    RolloutConfig: ROLLOUT,
    ReplayConfig: REPLAY,
    QLearningConfig: ("n_steps=8",),
}
WATCHED = ("log_freq_epochs=1", "eval_freq_epochs=1", "eval_warmup_epochs=0", "eval_episodes=1", "eval_max_steps=20")
WATCHED += ("early_stop_on_eval_threshold=false",)  # so short an episode may well reach a goal


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))


def shipped() -> Iterator:
    for row in list_environments():
        extra = extra_of(row.env_id)
        slow = extra is not None and extra.name != "box2d"  # only `make slow` has the others
        yield pytest.param(f"{row.env}:{row.variant}", marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("variant", [*shipped()])
def test_a_variant_trains_two_iterations(variant):
    config = load_config(*variant.split(":"))
    if extra := missing(config.env_id):
        pytest.skip(f"{extra.title} is not installed")
    own = next(words for kind, words in OWN.items() if isinstance(config, kind))
    assert train.command([variant, *TINY, *own, *WATCHED, "-q"]) == 0
    *rows, tested = read_csv(list_runs()[0].metrics_csv)
    assert [row["train/clock/env_steps"] for row in rows] == [16, 32]
    learnt = {"train/loss/policy", "train/loss/q", "train/value/td_error", "train/loss/observation"}
    assert all(learnt & row.keys() and "val/roll/episodes" in row for row in rows)
    assert "test/roll/episodes" in tested


SOLVED = [(f"CartPole-v1:{algo_id}", seed, 475) for algo_id in ("ppo", "reinforce") for seed in (1, 2, 3)]
SOLVED += [("Acrobot-v1:ppo", 1, -80), ("Pendulum-v1:ppo", 1, -180)]


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "seed", "goal"), SOLVED)
def test_classics_reach_their_goal(variant, seed, goal):
    assert train.command([variant, "-q", f"seed={seed}"]) == 0
    outcome = list_runs()[0].facts()["outcome"]
    assert outcome["test_mean"] >= goal and outcome["test_episodes"] == 100
    assert outcome["solved"] or "CartPole" not in variant
