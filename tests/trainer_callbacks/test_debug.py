"""--debug: a tiny budget, statistics of every parameter, a trace, and a layer's first number that is none, named."""

import csv
import json

import pytest
import torch
from torch import nn

from stride.commands import train
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.debug import check
from stride.trainer_callbacks.shortage import shortage_errors
from stride.utils.user_error import NumbersError


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))


def test_a_debugged_run_is_tiny_and_leaves_its_statistics_and_a_trace(capsys):
    assert train.command(["CartPole-v1:ppo", "--debug", "n_steps=16", "n_epochs=1", "eval_freq_epochs=null"]) == 0
    run = RunDir.find("@last")
    assert json.loads(run.config_json.read_text())["config"]["max_timesteps"] == 160
    with open(run.logs / "debug.csv") as file:
        rows = list(csv.DictReader(file))
    names = {row["parameter"] for row in rows}
    assert len(rows) == 10 * len(names) and "critic.1.bias" in names
    assert all(float(row["gradient_norm"]) >= 0 and float(row["largest"]) >= abs(float(row["mean"])) for row in rows)
    assert json.loads((run.logs / "trace.json").read_text())["traceEvents"]
    assert "actor.0.0.weight" in capsys.readouterr().out and not torch.is_anomaly_enabled()


def test_a_chosen_budget_stays_and_it_is_one_world_in_one_thread():
    words = ["CartPole-v1:ppo", "--debug", "-q", "n_envs=2", "n_steps=16", "n_epochs=1", "max_timesteps=64"]
    assert train.command(words) == 0
    config = json.loads(RunDir.find("@last").config_json.read_text())["config"]
    assert config["max_timesteps"] == 64 and config["n_envs"] == config["threads"] == 1


def test_a_layer_that_makes_what_is_no_number_is_named():
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda module, given, answer: check("actor.0", module, given, answer))
    layer(torch.ones(1, 2))
    with pytest.raises(NumbersError, match=r"policy.actor.0 \(Linear\) was given a non-finite number"):
        layer(torch.tensor([[1.0, float("nan")]]))
    with torch.no_grad():
        layer.bias[0] = float("inf")
    with pytest.raises(NumbersError, match="made a non-finite number"):
        layer(torch.ones(1, 2))


def test_what_does_not_fit_into_memory_names_the_keys_to_lower(capsys):
    assert train.command(["CartPole-v1:ppo", "hidden_dims=[1048576,65536]"]) == 1  # 275 GB
    line = capsys.readouterr().err
    assert line.startswith("error: out of memory: lower n_envs (8), n_steps (32), hidden_dims ([1048576, 65536]); ")
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize("error", [RuntimeError("something else"), OSError(2, "No such file")])
def test_other_errors_are_not_taken_for_a_lack_of_room(error):
    with pytest.raises(type(error)), shortage_errors(None, ""):
        raise error
