"""Runs of two older commits, whose files lack keys of today, are listed, played and trained on.

tests/old_runs holds what is needed of them: f0a606ad of November 20 and 2b0431d6 of November 25, 2026, made by
`python train.py CartPole-v1:ppo max_timesteps=1024 n_envs=2 n_steps=16 hidden_dims=[4] eval_freq_epochs=8 ...`.
"""

import json
import shutil
from pathlib import Path

import pytest

from stride.agents.trained.loading import load_run
from stride.commands import run_play, runs, train
from stride.runstore.run_dir import RunDir

OLD = Path(__file__).resolve().parent / "old_runs"


@pytest.fixture(params=sorted(folder.name for folder in OLD.iterdir()), ids=["2b0431d6", "f0a606ad"])
def old_run(request, tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    shutil.copytree(OLD / request.param, tmp_path / request.param, symlinks=True)
    return RunDir(tmp_path / request.param)


def test_it_is_listed_and_shown(old_run, capsys):
    assert runs.main(["list", "--json"]) == 0 and old_run.id in capsys.readouterr().out
    assert runs.main(["show", old_run.id]) == 0
    assert "CartPole-v1:ppo, seed 1" in capsys.readouterr().out


def test_keys_that_it_lacks_have_the_value_that_changes_nothing(old_run):
    stored = old_run.facts()["config"]
    config = load_run(old_run.id).config
    added = {"eval_freq_steps": None, "eval_timeout_seconds": None}
    assert not {*added} & {*stored} and {key: getattr(config, key) for key in added} == added
    assert stored["schema_version"] == config.schema_version == 1 and config.n_steps == 16


def test_it_plays(old_run, capsys):
    assert run_play.main(["--run-id", old_run.id, "--headless", "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 2


def test_it_trains_on(old_run, capsys):
    words = ["--resume", old_run.id, "--max-timesteps", "1280", "-q", "test_episodes=2"]
    assert train.command(words) == 0
    assert "env_steps=1280" in capsys.readouterr().out
