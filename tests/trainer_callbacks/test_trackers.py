"""Trackers in a training: told what metrics.csv is told, refused before there is a run, chosen by a sweep."""

import pytest
import yaml
from tiny_runs import tiny_run

from stride.commands import train
from stride.report.trackers import async_tracker, registry
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import list_runs


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
