"""What is said of a goal: only what was tested, by episodes that are played wherever a goal is known."""

import json

import pytest
from tiny_runs import tiny_run

from stride.commands import train
from stride.config.listing import print_variants
from stride.config.loader import from_plain, load_config, to_plain
from stride.config.schema import Config
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.run_facts import verdict
from stride.trainer_callbacks.evaluate import cadence, is_due

OFF = {"eval_freq_epochs": "null"}
OWN = """\
env_id: plain_world:Plain-v0
spec: {goal: 6}
ppo: {max_timesteps: 1e6}
"""


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))


def outcome(run):
    return json.loads(run.config_json.read_text())["outcome"]


def config_of(variant, *words) -> Config:
    auto = [] if any(word.startswith("eval_freq") for word in words) else ["eval_freq_epochs=auto"]
    return load_config("CartPole-v1", variant, [*auto, *words])


@pytest.mark.parametrize(
    ("config", "limit", "number"),
    [
        (config_of("ppo", "max_timesteps=1e7"), 500, 40),
        (config_of("ppo", "max_timesteps=1e7"), None, 40),
        (config_of("ppo", "max_timesteps=1e6"), 500, 20),  # 20 x 500 steps each: a fifth of the budget
        (config_of("ppo", "max_timesteps=1e5"), 500, 10),
        (config_of("ppo", "max_timesteps=2560"), 500, 10),  # ten epochs in all
        (config_of("ppo", "max_timesteps=512"), 500, 2),  # of which there are two
        (config_of("dqn", "epoch_iterations=1000"), 500, 10),  # an epoch is five times the budget
        (config_of("dqn", "epoch_iterations=1000", "train_freq=1", "max_timesteps=1e6"), 500, 20),
        (config_of("dqn", "eval_warmup_epochs=0", "eval_freq_epochs=2"), 500, 12),  # a number is what it was
        (config_of("ppo", "eval_freq_epochs=null"), 500, 0),
    ],
)
def test_left_to_itself_a_run_is_evaluated_10_to_40_times(config, limit, number):
    every, iterations = cadence(config, limit), config.max_timesteps // config.iteration_steps
    found = sum(is_due(iteration, every, 0) for iteration in range(1, iterations + 1))
    assert number <= found <= number + number // 5
    assert every < config.epoch_iterations or every % config.epoch_iterations == 0


def test_an_evaluation_may_come_within_an_epoch_and_is_told_and_saved():
    words = {"eval_freq_epochs": "auto", "epoch_iterations": 1000, "max_timesteps": 640, "test_episodes": 4}
    run = tiny_run(**words)
    rows = run.metrics_csv.read_text().splitlines()
    column = rows[0].split(",").index("val/roll/ep_rew/mean")
    assert sum(bool(row.split(",")[column]) for row in rows[1:]) == 10
    assert json.loads((run.checkpoints / "best.json").read_text())["score"] is not None


def test_auto_stays_auto_in_config_json():
    assert json.loads(tiny_run(eval_freq_epochs="auto").config_json.read_text())["config"]["eval_freq_epochs"] == "auto"


@pytest.mark.parametrize("cadence", [None, 5])
def test_an_older_runs_cadence_means_what_it_meant(cadence):
    """Written before test_episodes was a key, with the early stop of every config, evaluated or not."""
    plain = {**to_plain(config_of("ppo")), "eval_freq_epochs": cadence, "early_stop_on_eval_threshold": True}
    del plain["test_episodes"]
    assert from_plain(plain).eval_freq_epochs == cadence and from_plain(plain).test_episodes == 100
    assert from_plain(plain, overrides=["eval_freq_epochs=auto"]).eval_freq_epochs == "auto"


def test_the_end_is_tested_with_evaluation_off_and_told():
    run = tiny_run(**OFF, early_stop_on_eval_threshold=None, **{"spec.goal": 5})
    assert outcome(run)["solved"] and outcome(run)["test_episodes"] == 100
    assert "**Solved (budget spent), test " in run.report.read_text()
    assert "the goal of 5 does not stop this run early" in run.run_log.read_text()


@pytest.mark.parametrize("cadence", ["null", "2"])
def test_what_was_not_tested_is_neither_solved_nor_unsolved(cadence, capsys):
    run = tiny_run(eval_freq_epochs=cadence, test_episodes=0)
    assert outcome(run)["test_mean"] is None and verdict(outcome(run)) == "not tested"
    assert run.report.read_text().startswith("**Not tested (budget spent), ")
    assert capsys.readouterr().out.startswith("result=not_tested test_mean=none ")
    assert print_variants("CartPole-v1:ppo") == 0 and "20/20   not tested" in capsys.readouterr().out


def test_as_many_episodes_as_asked_for_confirm_an_evaluation():
    words = {"early_stop_on_eval_threshold": "true", "max_timesteps": 1600, "spec.goal": 5}
    asked = tiny_run(**words, test_episodes=7)
    assert outcome(asked)["test_episodes"] == 7 and outcome(asked)["reason"] == "goal reached"
    none = tiny_run(**words, test_episodes=0)
    assert outcome(none)["env_steps"] == outcome(asked)["env_steps"] == 32
    assert outcome(none)["reason"] == "evaluation return reached" and verdict(outcome(none)) == "not tested"


def test_without_a_goal_a_run_is_trained(tmp_path, capsys):
    file = tmp_path / "Own.yaml"
    file.write_text(OWN.replace("spec: {goal: 6}\n", "").replace("1e6", "2048, n_envs: 2"))
    assert train.command(["--config", str(file), "-q"]) == 0
    assert capsys.readouterr().out.startswith("result=trained test_mean=")
    assert train.command(["--config", str(file), "-q", "eval_freq_epochs=null"]) == 0
    assert capsys.readouterr().out.startswith("result=trained test_mean=none ")
    assert outcome(RunDir.find("@last"))["test_mean"] is None and len(list_runs()) == 2


def test_the_recipe_for_an_environment_of_ones_own_is_solved_as_it_is_written(tmp_path, capsys):
    file = tmp_path / "Plain-v0.yaml"
    file.write_text(OWN)
    assert train.command(["--config", str(file), "-q"]) == 0
    assert capsys.readouterr().out.startswith("result=solved test_mean=")


def test_a_stop_that_somebody_wrote_and_nothing_can_reach_is_refused(capsys):
    words = ["CartPole-v1:ppo", "-q", "early_stop_on_eval_threshold=true", "eval_freq_epochs=0"]
    assert train.command(words) == 2
    assert "early_stop_on_eval_threshold: true needs evaluation" in capsys.readouterr().err and not list_runs()
