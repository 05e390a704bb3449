"""--require-goal: a script learns from the exit code whether the goal was reached, by every seed."""

import pytest
from tiny_runs import tiny_run

from stride.commands import train
from stride.runstore.run_dir import list_runs

GROUP = "20200101-000000-abcd"
NO_GOAL = "env_id: plain_world:Plain-v0\nppo: {max_timesteps: 1e6}\n"


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))


def test_a_required_goal_is_code_3_where_it_is_not_reached():
    words = ["CartPole-v1:ppo", "-q", "n_envs=2", "n_steps=8", "batch_size=1.0", "max_timesteps=64", "test_episodes=5"]
    assert train.command([*words, "--require-goal"]) == 3
    assert train.command([*words, "--require-goal", "spec.goal=5"]) == 0
    assert train.command([*words, "spec.goal=500"]) == 0


def test_a_required_goal_that_nothing_can_answer_is_refused(tmp_path, capsys):
    assert train.command(["CartPole-v1:ppo", "--require-goal", "test_episodes=0"]) == 2
    assert "test_episodes is 0" in capsys.readouterr().err
    file = tmp_path / "Own.yaml"
    file.write_text(NO_GOAL)
    assert train.command(["--config", str(file), "--require-goal"]) == 2
    assert "no goal of plain_world:Plain-v0 is known" in capsys.readouterr().err and not list_runs()


def test_a_required_goal_is_for_every_run_of_a_group():
    tiny_run("CartPole-v1:ppo", "--group", GROUP, **{"spec.goal": 5})
    assert train.command(["--resume", f"group:{GROUP}", "--require-goal"]) == 0
    tiny_run("CartPole-v1:ppo", "--group", GROUP, seed=2)
    assert train.command(["--resume", f"group:{GROUP}", "--require-goal"]) == 3
    assert train.command(["--resume", f"group:{GROUP}"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("goal", "code"), [(5, 0), (500, 3)])
def test_a_required_goal_is_for_every_seed(goal, code):
    words = ["CartPole-v1:ppo", "n_envs=2", "n_steps=8", "batch_size=1.0", "max_timesteps=64", "test_episodes=5"]
    assert train.command([*words, f"spec.goal={goal}", "--seed", "1,2", "--require-goal"]) == code
