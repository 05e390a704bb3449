"""Trackers in a training: told what metrics.csv is told, refused before there is a run, chosen by a sweep."""

import pytest
import yaml
from tiny_runs import TINY, tiny_run

from stride.commands import train
from stride.report.trackers import async_tracker, registry
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir

WORDS = ["CartPole-v1:ppo", "-q", *(f"{key}={value}" for key, value in TINY.items())]


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))


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
    both = sorted(run.logs.glob("events.out.tfevents.*"))
    assert both[0] == first and rows_in(both[1]) == 3  # at 80, at 96, and the test


def test_what_is_not_installed_is_refused_before_there_is_a_run(monkeypatch, capsys):
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    assert train.command([*WORDS, "logger=trackio"]) == 2
    assert "logger: trackio needs the package trackio: pip install 'stride-rl[trackio]'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no run yet"):
        RunDir.find("@last")


def test_a_sweep_is_followed_and_told(tmp_path, monkeypatch, capsys):
    values = tmp_path / "config-x.yaml"
    values.write_text("wandb_version: 1\n\n" + yaml.safe_dump({"gamma": {"value": 0.5}}))
    monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", str(values))
    monkeypatch.setenv("WANDB_SWEEP_ID", "abc")
    monkeypatch.setattr(registry, "is_installed", lambda package: False)
    assert train.command(WORDS) == 2 and "pip install 'stride-rl[wandb]'" in capsys.readouterr().err
    monkeypatch.setattr(registry, "is_installed", lambda package: True)
    monkeypatch.setattr(registry, "async_trackers", lambda run, loggers, env_steps: [])
    monkeypatch.setattr("stride.report.sinks.async_trackers", registry.async_trackers)
    run = tiny_run()
    config = run.facts()["config"]
    assert config["gamma"] == 0.5 and config["logger"] == ["csv", "wandb"]
    assert "sweep abc: gamma=0.5" in run.run_log.read_text()
