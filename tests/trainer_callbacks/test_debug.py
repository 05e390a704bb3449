"""--debug: a tiny budget, statistics of every parameter, a trace, and a layer's first number that is none, named."""

import csv
import json

import pytest
import torch
from torch import nn

from stride.commands import train
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.debug import check
from stride.utils.user_error import NumbersError


@pytest.mark.parametrize("budget", [None, 64])
def test_a_debugged_run_is_tiny_and_leaves_its_statistics_and_a_trace(budget, capsys):
    words = ["n_envs=2", "n_steps=16", "n_epochs=1", "eval_freq_epochs=null", "test_episodes=0"]
    assert train.command(["CartPole-v1:ppo", "--debug", *words, *([f"max_timesteps={budget}"] if budget else [])]) == 0
    run = RunDir.find("@last")
    config = run.facts()["config"]
    assert config["max_timesteps"] == (budget or 160)  # a chosen budget stays
    assert config["n_envs"] == config["threads"] == 1
    with open(run.logs / "debug.csv") as file:
        rows = list(csv.DictReader(file))
    names = {row["parameter"] for row in rows}
    assert len(rows) == config["max_timesteps"] // 16 * len(names) and "critic.1.bias" in names
    assert all(float(row["gradient_norm"]) >= 0 and float(row["largest"]) >= abs(float(row["mean"])) for row in rows)
    assert json.loads((run.logs / "trace.json").read_text())["traceEvents"]
    assert "actor.0.0.weight" in capsys.readouterr().out and not torch.is_anomaly_enabled()


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
