"""`threads: auto`: more than one only where there is work for them, cores, and an engine that gives the same bits."""

import os
import signal

import pytest
import torch
from driven import agent_for

from stride.agents.base import Agent
from stride.agents.engines import choice
from stride.commands import train
from stride.config.loader import load_config
from stride.runstore import seed_group
from stride.runstore.many import group_training
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import read_json
from stride.utils.resources import CORES_VARIABLE
from stride.utils.user_error import UserError

FASTER = "auto: or 1, what is faster as it trains"


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(4))
    monkeypatch.setattr(choice, "idle", lambda: 4)
    monkeypatch.delenv(CORES_VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("words", "number", "why"),
    [
        ("CartPole-v1:ppo", 2, FASTER),
        ("CartPole-v1:ppo n_envs=64 n_steps=128", 4, FASTER),
        ("Pendulum-v1:sac", 2, FASTER),
        ("Pendulum-v1:sac hidden_dims=[64,64]", 1, "auto: its iterations are too short to be shared"),
        ("CartPole-v1:dreamer", 2, FASTER),
        ("CartPole-v1:reinforce", 1, "auto: its iterations are too short to be shared"),
        ("Pendulum-v1:ppo", 1, "auto: its minibatches are too small to be shared"),
        ("CartPole-v1:ppo engine=eager", 1, "auto: what eager sums up depends on their number"),
        ("FrozenLake-v1:q_learning", 1, "auto: what eager sums up depends on their number"),
        ("CartPole-v1:ppo threads=3", 3, ""),
    ],
)
def test_as_many_as_pay(words, number, why):
    assert agent_for(*words.split()).engine.threads == (number, why)


def test_a_machine_that_is_busy_is_not_made_busier(monkeypatch):
    monkeypatch.setattr(choice, "idle", lambda: 1)
    assert agent_for("CartPole-v1:ppo").engine.threads == (1, "auto: other programs keep the cores busy")


def test_a_run_records_how_many_there_were_and_goes_on_anywhere(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    before, torch_threads = torch.get_num_threads(), []
    step = Agent.training_step

    def signalled(agent, dataloader_iter):
        if agent.progress["iterations"] == 2 and not killed:
            killed.append(os.kill(os.getpid(), signal.SIGINT))
        step(agent, dataloader_iter)

    killed = []
    monkeypatch.setattr(Agent, "training_step", signalled)
    monkeypatch.setattr(torch, "set_num_threads", torch_threads.append)
    assert train.command(["CartPole-v1:ppo", "max_timesteps=2560", "eval_freq_epochs=null"]) == 128 + signal.SIGINT
    run = RunDir.find("@last")
    facts = read_json(run.config_json)
    assert facts["threads"] == 2 and facts["config"]["threads"] == "auto" and {*torch_threads} <= {1, before}
    assert f"threads 2 ({FASTER})" in capsys.readouterr().out
    monkeypatch.setenv(CORES_VARIABLE, "1")  # as on another machine
    assert train.command(["--resume", run.id]) == 0
    output = capsys.readouterr().out
    assert "threads 1 (auto: there is one core for it)" in output and "(epoch=03), exact" in output
    assert read_json(run.config_json)["threads"] == 1


def test_a_word_that_is_no_number_is_refused():
    with pytest.raises(UserError, match="threads takes a whole number or auto, not 'atuo'; did you mean auto"):
        load_config("CartPole-v1", "ppo", ["threads=atuo"])


def test_trainings_side_by_side_share_the_cores(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    shares = []

    def pool(commands, workers, env, **rest):
        shares.append(env[CORES_VARIABLE])
        return []

    for seeds, workers in ((1, 4), (2, 4), (8, 4), (8, 1)):
        plan = seed_group.GroupPlan((seed_group.SeedPart(("x:y",), tuple(range(seeds))),))
        group_training.train_all(["python", "train.py"], plan, workers, [], pool=pool)
    assert shares == ["4", "2", "1", "4"]
