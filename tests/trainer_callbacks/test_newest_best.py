"""Among equal scores the newest is best: what is played and published is what was trained longest."""

import json
import os
import signal

import pytest
from tiny_runs import tiny_run

from stride.agents.base import Agent
from stride.agents.experience.collector import EpisodeResults
from stride.commands import train
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.evaluate import summarize

LEVEL = EpisodeResults([100.0] * 3, [100.0] * 3)


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))


@pytest.fixture
def level(monkeypatch):
    """Every evaluation scores 100; tests are what they are."""
    told = lambda stage, played, n: summarize(stage, LEVEL, 3) if stage == "val" else summarize(stage, played, n)  # noqa: E731
    monkeypatch.setattr("stride.trainer_callbacks.evaluate.summarize", told)


def best(run):
    return checkpoint_set.target(run.checkpoints / "best.ckpt")


def score(run):
    return json.loads((run.checkpoints / "best.json").read_text())["score"]


def test_a_run_that_goes_on_at_the_highest_score_moves_its_best_on(level):
    run = tiny_run(max_timesteps=32)
    assert best(run) == "epoch=02"
    assert train.command(["--resume", run.id, "max_timesteps=128", "-q"]) == 0
    assert best(run) == "epoch=08" and score(run) == 100
    assert train.command(["--resume", run.id, "max_timesteps=144", "-q"]) == 0
    assert best(run) == "epoch=08"  # nobody evaluated epoch 9, and 100 episodes of it gave less


def test_equal_scores_are_not_all_saved(level, monkeypatch):
    monkeypatch.setattr("stride.trainer_callbacks.checkpoint.ALLOWANCE", -1e9)
    monkeypatch.setattr("stride.trainer_callbacks.checkpoint.TIES", 5)
    run = tiny_run(max_timesteps=320, eval_freq_epochs=1, checkpoint_keep_last="null", test_episodes=0)
    assert checkpoint_set.names(run.checkpoints) == [f"epoch={epoch:02d}" for epoch in (1, 4, 8, 12, 16, 20)]
    assert best(run) == "epoch=20"


def test_where_equal_scores_are_saved_does_not_depend_on_the_wall_nor_on_interruptions(level, monkeypatch):
    step = Agent.training_step

    def signalled(agent, dataloader_iter):
        if agent.progress["iterations"] == 8:
            os.kill(os.getpid(), signal.SIGINT)
        step(agent, dataloader_iter)

    monkeypatch.setattr("stride.trainer_callbacks.checkpoint.TIES", 4)  # each 80 steps, 5 epochs
    words = {"max_timesteps": 320, "eval_freq_epochs": 3, "test_episodes": 10}
    straight = tiny_run(**words)
    assert best(straight) == "epoch=15"
    monkeypatch.setattr("stride.trainer_callbacks.checkpoint.ALLOWANCE", -1e9)
    assert best(tiny_run(**words)) == "epoch=15"
    given = ["n_envs=2", "n_steps=8", "batch_size=1.0", "eval_warmup_epochs=0", "early_stop_on_eval_threshold=false"]
    given += [f"{key}={value}" for key, value in words.items()]
    with monkeypatch.context() as patch:
        patch.setattr(Agent, "training_step", signalled)
        assert train.command(["CartPole-v1:ppo", "-q", *given]) == 130
    halved = RunDir.find("@last")
    assert best(halved) == "epoch=06" and halved.facts()["status"] == "interrupted"
    assert train.command(["--resume", halved.id, "-q"]) == 0
    assert best(halved) == "epoch=15" and score(halved) == 100


def test_what_was_tested_at_the_goal_is_best():
    run = tiny_run(eval_freq_epochs=3, **{"spec.goal": 5})
    assert best(run) == "epoch=04" and score(run) == run.facts()["outcome"]["test_mean"]


def test_what_was_tested_below_both_is_not(level):
    run = tiny_run(eval_freq_epochs=3)
    assert best(run) == "epoch=03" and score(run) == 100


def test_without_evaluations_the_test_is_the_score():
    run = tiny_run(eval_freq_epochs="null")
    assert best(run) == "epoch=04" and score(run) == run.facts()["outcome"]["test_mean"]
    assert RunDir.find("@best:CartPole-v1") == run
    assert train.command(["--resume", run.id, "max_timesteps=96", "-q"]) == 0
    assert checkpoint_set.target(run.checkpoints / "last.ckpt") == "epoch=06"
