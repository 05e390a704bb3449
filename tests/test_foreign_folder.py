"""A run folder from elsewhere harms nobody: its names lead nowhere, its damage is its own. Old ones are read."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from commands import refusal
from gallery import gallery_copy

from stride.agents.trained.loading import load_run
from stride.commands import run_play, run_publish, runs, train
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.seed_group import outcomes

MORE = ("-q", "--max-timesteps", "160")


@pytest.fixture
def run(tmp_path, monkeypatch):
    root = tmp_path / "a" / "b" / "runs"
    monkeypatch.setenv("STRIDE_RUNS", str(root))
    return gallery_copy("ppo", root)


def change(path, **facts):
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def sidecar(run, name="best"):
    return run.checkpoints / f"{checkpoint_set.target(run.checkpoints / f'{name}.ckpt')}.json"


def test_a_sidecars_segments_lead_nowhere(run, tmp_path, monkeypatch, capsys):
    """H1: a fork of a pack from elsewhere copied its file of that name into site-packages, and Python ran it."""
    evil = b"import os"
    name = f"../../../../../venv/evil-{hashlib.sha256(evil).hexdigest()[:16]}.pth"
    pack = RunDir(shutil.copytree(run.path, tmp_path / "pack" / "a" / "b" / "run", symlinks=True))
    (pack.checkpoints / "segments").mkdir(exist_ok=True)
    for venv in (tmp_path / "pack" / "venv", tmp_path / "venv"):
        venv.mkdir()
    (pack.checkpoints / "segments" / name).write_bytes(evil)
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "project" / "runs"))
    for stem in checkpoint_set.names(pack.checkpoints):  # else the one before would be taken
        change(pack.checkpoints / f"{stem}.json", segments=[name])
    refusal(capsys, train.command, "--resume", str(pack.path), "--checkpoint", "best", *MORE)
    assert not list((tmp_path / "venv").iterdir()) and not list_runs()


@pytest.mark.parametrize("name", [".lock", "run.log", "metrics.csv", "report.md", "config.json"])
def test_a_link_in_a_files_place_is_not_followed(run, tmp_path, name, capsys):
    """H3: .lock was truncated, run.log appended to, wherever they lead; H4: a private key was published as metrics."""
    victim, out = tmp_path / "victim", tmp_path / "out"
    victim.write_text("mine")
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).symlink_to(victim)
    assert "is a link, not a file of the run" in refusal(capsys, train.command, "--resume", run.id, *MORE)
    if name == "metrics.csv":
        refusal(capsys, run_publish.command, "--run-id", run.id, "--dry-run", str(out))
    assert victim.read_text() == "mine" and not list(out.rglob("metrics.csv"))


DAMAGE = {
    "config.json, resumed": lambda run: change(run.config_json, resumed=5),
    "sidecar, segments": lambda run: change(sidecar(run, "last"), segments=[5]),
    "metrics.csv": lambda run: (run.metrics_csv.unlink(), run.metrics_csv.mkdir()),
    "run.log": lambda run: (run.run_log.unlink(), run.run_log.mkdir()),
    "checkpoints": lambda run: shutil.rmtree(run.checkpoints),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_run_is_resumed_or_refused_in_one_line(run, damage, capsys):
    """M15: six tracebacks."""
    DAMAGE[damage](run)
    assert train.command(["--resume", run.id, *MORE]) in (0, 2)
    assert len(capsys.readouterr().err.splitlines()) <= 1


HARMS = {
    "goal of 400 digits": lambda run: change(run.config_json, goal=10**400),
    "outcome of texts": lambda run: change(run.config_json, outcome={"test_mean": "high"}),
    "no JSON": lambda run: run.config_json.write_text("{"),
    "a FIFO": lambda run: (run.config_json.unlink(), os.mkfifo(run.config_json)),
    "best of 400 digits": lambda run: change(sidecar(run), score=10**400),
    "an infinite best": lambda run: change(sidecar(run), score=float("inf")),
    "no best": lambda run: sidecar(run).write_text("{"),
    "a linked best": lambda run: (sidecar(run).unlink(), sidecar(run).symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("harm", HARMS)
def test_one_damaged_run_harms_no_other(run, harm, capsys, caplog):
    """M9: --list-envs, @best and a group's summary failed for all."""
    change(run.config_json, group="20200101-000000-abcd")
    damaged = RunDir(shutil.copytree(run.path, run.path.with_name("20990101-000000-damaged"), symlinks=True))
    HARMS[harm](damaged)
    assert RunDir.find("@best:CartPole-v1") == run and RunDir.find(run.id) == run
    assert len(outcomes("20200101-000000-abcd")) == (2 if "best" in harm else 1)
    assert train.command(["--list-envs", "CartPole"]) == 0
    assert " not solved" in capsys.readouterr().out
    lines = {record.getMessage() for record in caplog.records if damaged.id in record.getMessage()}
    assert lines or "best of" in harm or "infinite" in harm, "a damaged run is named"
    assert len(lines) <= 2


def test_a_damaged_last_run_is_named_and_a_path_that_leads_to_itself_is_refusal(run, capsys):
    run.config_json.write_text("[]")
    assert f"{run.id}/config.json" in refusal(capsys, run_play.command, "--run-id", "@last", "--headless")
    (run.path.parent / "loop").symlink_to("loop")
    refusal(capsys, train.command, "--resume", f"{run.path.parent}/loop/", *MORE)


# ---- runs of two older commits, whose files lack keys of today, are listed, played and trained on

# what is needed of them: f0a606ad of November 20 and 2b0431d6 of November 25, 2026, made by
# `python train.py CartPole-v1:ppo max_timesteps=1024 n_envs=2 n_steps=16 hidden_dims=[4] eval_freq_epochs=8 ...`
OLD = Path(__file__).resolve().parent / "old_runs"


@pytest.fixture(params=sorted(folder.name for folder in OLD.iterdir()), ids=["2b0431d6", "f0a606ad"])
def old_run(request, tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    shutil.copytree(OLD / request.param, tmp_path / request.param, symlinks=True)
    return RunDir(tmp_path / request.param)


def test_it_is_listed_and_shown_and_keys_that_it_lacks_have_the_value_that_changes_nothing(old_run, capsys):
    assert runs.main(["list", "--json"]) == 0 and old_run.id in capsys.readouterr().out
    assert runs.main(["show", old_run.id]) == 0
    assert "CartPole-v1:ppo, seed 1" in capsys.readouterr().out
    stored, config = old_run.facts()["config"], load_run(old_run.id).config
    added = {"eval_freq_steps": None, "eval_timeout_seconds": None}
    assert not {*added} & {*stored} and {key: getattr(config, key) for key in added} == added
    assert stored["schema_version"] == config.schema_version == 1 and config.n_steps == 16


def test_it_plays_and_trains_on(old_run, capsys):
    assert run_play.main(["--run-id", old_run.id, "--headless", "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 2
    words = ["--resume", old_run.id, "--max-timesteps", "1280", "-q", "test_episodes=2"]
    assert train.command(words) == 0
    assert "env_steps=1280" in capsys.readouterr().out
