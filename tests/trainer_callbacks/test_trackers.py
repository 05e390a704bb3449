"""What looks on at a training: trackers, told what metrics.csv is told; and --debug, with statistics and a trace."""

import csv
import json

import pytest
import torch
import yaml
from tiny_runs import tiny_run
from torch import nn

from stride.commands import train
from stride.report.trackers import async_tracker, registry
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir, list_runs
from stride.trainer_callbacks.debug import check
from stride.utils.user_error import NumbersError


def rows_in(path):
    """How often the clock stands in an event file."""
    return path.read_bytes().count(b"train/clock/env_steps")


def test_a_tracker_is_told_what_the_file_is_told(monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setattr(async_tracker, "PATIENCE", 120)
    run = tiny_run(logger="[csv,tensorboard]")
    (first,) = run.logs.glob("events.out.tfevents.*")
    assert rows_in(first) == len(read_csv(run.metrics_csv)) == 5
    assert "TensorBoard: tensorboard --logdir " in run.run_log.read_text()
    assert train.command(["--resume", "@last", "--max-timesteps", "96", "-q"]) == 0
    (second,) = {*run.logs.glob("events.out.tfevents.*")} - {first}
    assert rows_in(second) == 3  # at 80, at 96, and the test


def test_a_sweep_is_followed_and_what_is_not_installed_refused_before_there_is_a_run(tmp_path, monkeypatch, capsys):
    values = tmp_path / "config-x.yaml"
    values.write_text("wandb_version: 1\n\n" + yaml.safe_dump({"gamma": {"value": 0.5}}))
    monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", str(values))
    monkeypatch.setenv("WANDB_SWEEP_ID", "abc")
    monkeypatch.setattr(registry, "is_installed", lambda package: False)
    assert train.command(["CartPole-v1:ppo", "-q"]) == 2 and list_runs() == []
    assert "logger: wandb needs the package wandb: pip install 'stride-rl[wandb]'" in capsys.readouterr().err
    monkeypatch.setattr(registry, "is_installed", lambda package: True)
    monkeypatch.setattr("stride.report.sinks.async_trackers", lambda run, loggers, env_steps: [])
    run = tiny_run(test_episodes=0)
    config = run.facts()["config"]
    assert config["gamma"] == 0.5 and config["logger"] == ["csv", "wandb"]
    assert "sweep abc: gamma=0.5" in run.run_log.read_text()


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
    with pytest.raises(NumbersError, match=r"policy.actor.0 \(Linear\) received a non-finite number"):
        layer(torch.tensor([[1.0, float("nan")]]))
    with torch.no_grad():
        layer.bias[0] = float("inf")
    with pytest.raises(NumbersError, match="returned a non-finite number"):
        layer(torch.ones(1, 2))
