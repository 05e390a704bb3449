"""What is said of a goal: only what was tested, by episodes that are played wherever a goal is known."""

import pytest
from tiny_runs import tiny_run

from stride.commands import train
from stride.config.listing import print_variants
from stride.config.loader import from_plain, load_config, to_plain
from stride.runstore.run_dir import list_runs
from stride.runstore.run_facts import verdict
from stride.trainer_callbacks.evaluate import cadence, is_due

OWN = """\
env_id: plain_world:Plain-v0
spec: {goal: 6}
ppo: {max_timesteps: 1e6}
"""


@pytest.mark.parametrize(
    ("words", "limit", "number"),
    [
        ("ppo max_timesteps=1e7", 500, 40),
        ("ppo max_timesteps=1e7", None, 40),
        ("ppo max_timesteps=1e6", 500, 20),  # 20 x 500 steps each: a fifth of the budget
        ("ppo max_timesteps=1e5", 500, 10),
        ("ppo max_timesteps=2560", 500, 10),  # ten epochs in all
        ("ppo max_timesteps=512", 500, 2),  # of which there are two
        ("dqn epoch_iterations=1000", 500, 10),  # an epoch is five times the budget
        ("dqn epoch_iterations=1000 train_freq=1 max_timesteps=1e6", 500, 20),
        ("dqn eval_warmup_epochs=0 eval_freq_epochs=2", 500, 12),  # a number is what it was
        ("ppo eval_freq_epochs=null", 500, 0),
    ],
)
def test_left_to_itself_a_run_is_evaluated_10_to_40_times(words, limit, number):
    variant, *settings = words.split()
    auto = [] if "eval_freq" in words else ["eval_freq_epochs=auto"]
    config = load_config("CartPole-v1", variant, [*auto, *settings])
    every, iterations = cadence(config, limit), config.max_timesteps // config.iteration_steps
    evaluations = sum(is_due(iteration, every, 0) for iteration in range(1, iterations + 1))
    assert number <= evaluations <= number + number // 5
    assert every < config.epoch_iterations or every % config.epoch_iterations == 0


def test_an_evaluation_may_come_within_an_epoch_and_auto_stays_auto_in_config_json():
    run = tiny_run(eval_freq_epochs="auto", epoch_iterations=1000, max_timesteps=640, test_episodes=4)
    rows = [line.split(",") for line in run.metrics_csv.read_text().splitlines()]
    column = rows[0].index("val/roll/ep_rew/mean")
    assert sum(bool(row[column]) for row in rows[1:]) == 10
    assert run.facts()["config"]["eval_freq_epochs"] == "auto" and (run.checkpoints / "best.ckpt").exists()


@pytest.mark.parametrize("cadence", [None, 5])
def test_an_older_runs_cadence_means_what_it_meant(cadence):
    """Written before test_episodes was a key, with the early stop of every config, evaluated or not."""
    plain = to_plain(load_config("CartPole-v1", "ppo"))
    plain |= {"eval_freq_epochs": cadence, "early_stop_on_eval_threshold": True}
    del plain["test_episodes"]
    assert from_plain(plain).eval_freq_epochs == cadence and from_plain(plain).test_episodes == 100
    assert from_plain(plain, overrides=["eval_freq_epochs=auto"]).eval_freq_epochs == "auto"


def test_the_end_is_tested_with_evaluation_off_and_told():
    run = tiny_run(eval_freq_epochs="null", early_stop_on_eval_threshold=None, **{"spec.goal": 5})
    assert run.facts()["outcome"]["solved"] and run.facts()["outcome"]["test_episodes"] == 100
    assert "**Solved (budget spent), test " in run.report.read_text()
    assert "the goal of 5 does not stop this run early" in run.run_log.read_text()


@pytest.mark.parametrize("cadence", ["null", "2"])
def test_what_was_not_tested_is_neither_solved_nor_unsolved(cadence, capsys):
    run = tiny_run(eval_freq_epochs=cadence, test_episodes=0)
    outcome = run.facts()["outcome"]
    assert outcome["test_mean"] is None and verdict(outcome) == "not tested"
    assert run.report.read_text().startswith("**Not tested (budget spent), ")
    assert capsys.readouterr().out.startswith("result=not_tested test_mean=none ")
    assert print_variants("CartPole-v1:ppo") == 0 and "20/20   not tested" in capsys.readouterr().out


def test_as_many_episodes_as_asked_for_confirm_an_evaluation():
    words = {"early_stop_on_eval_threshold": "true", "max_timesteps": 1600, "spec.goal": 5}
    asked, none = (tiny_run(**words, test_episodes=number).facts()["outcome"] for number in (7, 0))
    assert asked["test_episodes"] == 7 and asked["reason"] == "goal reached" and asked["solved"]
    assert none["env_steps"] == asked["env_steps"] == 32
    assert none["reason"] == "evaluation return reached" and verdict(none) == "not tested"


def test_a_run_is_solved_by_the_goal_of_ones_own_environment_and_only_trained_without_one(tmp_path, capsys):
    """The recipe of the tutorial, as it is written there."""
    file = tmp_path / "Plain-v0.yaml"
    short = OWN.replace("spec: {goal: 6}\n", "").replace("1e6", "2048, n_envs: 2")
    for text, words, line in [
        (OWN, [], "result=solved test_mean="),
        (short, [], "result=trained test_mean="),
        (short, ["eval_freq_epochs=null"], "result=trained test_mean=none "),
    ]:
        file.write_text(text)
        assert train.command(["--config", str(file), "-q", *words]) == 0
        assert capsys.readouterr().out.startswith(line)


def test_a_stop_that_somebody_wrote_and_nothing_can_reach_is_refused(capsys):
    words = ["CartPole-v1:ppo", "-q", "early_stop_on_eval_threshold=true", "eval_freq_epochs=0"]
    assert train.command(words) == 2
    assert "early_stop_on_eval_threshold: true needs evaluation" in capsys.readouterr().err and not list_runs()
