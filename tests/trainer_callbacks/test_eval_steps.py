"""Evaluations counted in env steps, and given up after a time."""

import math

import pytest
from tiny_runs import tiny_run

from stride.config.loader import load_config
from stride.runstore.metrics_table import EPOCH, STEPS, MetricsTable
from stride.utils.user_error import UserError

EPISODES = "val/roll/episodes"


def evaluations(run):
    return [row for row in MetricsTable(run.path / "metrics.csv").rows() if EPISODES in row]


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))


def test_it_is_evaluated_at_the_first_iteration_at_or_past_every_so_many_steps():
    run = tiny_run(max_timesteps=200, eval_freq_steps=50, eval_freq_epochs=None, log_freq_epochs=1)
    steps = [row[STEPS] for row in evaluations(run)]
    assert steps == [64, 112, 160], "iterations of 16 steps: 48, 64; 96, 112; 144, 160; 192"


def test_the_warmup_counts_in_epochs_still():
    run = tiny_run(max_timesteps=200, eval_freq_steps=50, eval_freq_epochs=None, eval_warmup_epochs=5)
    assert [row[EPOCH] for row in evaluations(run)] == [7, 10]


def test_only_one_key_says_when():
    with pytest.raises(UserError, match="give one of them"):
        load_config("CartPole-v1", "ppo", ["eval_freq_steps=1000", "eval_freq_epochs=3"])
    assert load_config("CartPole-v1", "ppo", ["eval_freq_steps=1000"]).eval_freq_epochs == "auto"
    assert load_config("CartPole-v1", "ppo", ["eval_freq_steps=0"]).eval_freq_steps is None


@pytest.mark.parametrize("engine", ["eager", "fused_cpu"])
def test_an_evaluation_that_is_cut_by_time_has_no_score(engine, capsys):
    run = tiny_run(engine=engine, eval_timeout_seconds=1e-9, early_stop_on_eval_threshold="true")
    rows = evaluations(run)
    assert rows and all(row[EPISODES] == 0 for row in rows)
    assert not any("val/roll/ep_rew/mean" in row or "val/roll/ep_rew/best" in row for row in rows)
    assert math.isnan(run.facts()["outcome"].get("val_best") or math.nan)
    assert "may depend on the machine" in (run.path / "run.log").read_text()


def test_none_is_null_where_it_is_no_choice():
    config = load_config("CartPole-v1", "ppo", ["eval_freq_epochs=none", "target_kl=none", "tags=[none]"])
    assert config.eval_freq_epochs is None and config.target_kl is None and config.tags == ("none",)
    with pytest.raises(UserError, match="gamma takes"):
        load_config("CartPole-v1", "ppo", ["gamma=none"])
