"""A run folder from elsewhere harms nobody: its names lead nowhere, its damage is its own."""

import hashlib
import json
import os
import random
import shutil

import pytest
from tiny_runs import tiny_run

from lab.faults.folder import COMMANDS, attempt, sound_run, wrong
from lab.faults.foreign import Target, cases
from stride.commands import run_play, run_publish, train
from stride.runstore import checkpoint_set
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.run_facts import read_facts
from stride.runstore.seed_group import outcomes
from stride.utils.user_error import UserError

MORE = ("-q", "--max-timesteps", "160")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("whole")))
        return tiny_run("CartPole-v1:ppo", "--group", "20200101-000000-abcd")


@pytest.fixture(scope="module")
def hostile_base(tmp_path_factory):
    before = os.getcwd()
    yield sound_run(tmp_path_factory.mktemp("hostile"))
    os.chdir(before)


@pytest.fixture
def run(finished, tmp_path, monkeypatch):
    root = tmp_path / "a" / "b" / "runs"
    root.mkdir(parents=True)
    monkeypatch.setenv("STRIDE_RUNS", str(root))
    return RunDir(shutil.copytree(finished.path, root / finished.id, symlinks=True))


def refused(capsys, command, *words):
    capsys.readouterr()
    assert command(list(words)) == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ") and line.count("\n") == 1 and len(line) < 400, line
    return line


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
    refused(capsys, train.command, "--resume", str(pack.path), "--checkpoint", "best", *MORE)
    assert not list((tmp_path / "venv").iterdir()) and not list_runs()


@pytest.mark.parametrize("name", [".lock", "run.log", "metrics.csv", "report.md", "config.json"])
def test_a_link_in_a_files_place_is_not_followed(run, tmp_path, name, capsys):
    """H3: .lock was truncated, run.log appended to, wherever they lead."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).symlink_to(victim)
    assert "is a link, not a file of the run" in refused(capsys, train.command, "--resume", run.id, *MORE)
    assert victim.read_text() == "mine"


def test_a_secret_behind_metrics_is_not_published(run, tmp_path, capsys):
    """H4: the dry run's metrics.csv was the private key."""
    key, out = tmp_path / "id_rsa", tmp_path / "out"
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----")
    run.metrics_csv.unlink()
    run.metrics_csv.symlink_to(key)
    with pytest.raises(UserError, match="is a link, not a file of the run"):
        read_csv(run.metrics_csv)
    refused(capsys, run_publish.command, "--run-id", run.id, "--dry-run", str(out))
    assert not list(out.rglob("metrics.csv"))


DAMAGE = {
    "config.json, resumed": lambda run: change(run.config_json, resumed=5),
    "sidecar, segments": lambda run: change(sidecar(run, "last"), segments=5),
    "sidecar, segments of numbers": lambda run: change(sidecar(run, "last"), segments=[5]),
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
    "a list": lambda run: run.config_json.write_text("[]"),
    "no JSON": lambda run: run.config_json.write_text("{"),
    "a FIFO": lambda run: (run.config_json.unlink(), os.mkfifo(run.config_json)),
    "a folder": lambda run: (run.config_json.unlink(), run.config_json.mkdir()),
    "best of 400 digits": lambda run: change(sidecar(run), score=10**400),
    "an infinite best": lambda run: change(sidecar(run), score=float("inf")),
    "no best": lambda run: sidecar(run).write_text("{"),
    "a linked best": lambda run: (sidecar(run).unlink(), sidecar(run).symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("harm", HARMS)
def test_one_damaged_run_harms_no_other(run, harm, capsys, caplog):
    """M9: --list-envs, @best and a group's summary failed for all."""
    damaged = RunDir(shutil.copytree(run.path, run.path.with_name("20990101-000000-damaged"), symlinks=True))
    HARMS[harm](damaged)
    assert RunDir.find("@best:CartPole-v1") == run and RunDir.find(run.id) == run
    before = len(outcomes("20200101-000000-abcd"))
    assert before == (2 if "best" in harm else 1)
    assert train.command(["--list-envs", "CartPole"]) == 0
    assert " not solved " in capsys.readouterr().out
    told = [record.getMessage() for record in caplog.records if damaged.id in record.getMessage()]
    assert told or "best of" in harm or "infinite" in harm, "a damaged run is named"
    assert len({*told}) <= 2


def test_the_last_run_is_named_where_it_is_damaged(run, capsys):
    run.config_json.write_text("[]")
    (run.path.parent / "@last").symlink_to(run.id)
    assert f"{run.id}/config.json" in refused(capsys, run_play.command, "--run-id", "@last", "--headless")


def test_a_path_that_leads_to_itself_is_refused(run, capsys):
    (run.path.parent / "loop").symlink_to("loop")
    refused(capsys, train.command, "--resume", f"{run.path.parent}/loop/", *MORE)


def test_facts_of_a_real_run_are_sound(run):
    assert read_facts(run.path)["outcome"]["env_steps"] == 64


def test_hostile_folders_are_many_and_each_spoils_something(run, tmp_path):
    spoils = cases()
    assert len(spoils) >= 300
    for name in ("run.log: a link to a secret", "last.ckpt -> '../config.json'", "config.json: nested"):
        copy = RunDir(shutil.copytree(run.path, tmp_path / "copy", symlinks=True))
        segments = copy.checkpoints / checkpoint_set.SEGMENTS
        segments.mkdir(exist_ok=True)
        (segments / "0-8-0123456789abcdef.rows").touch()
        before = {path: (path.is_symlink(), path.lstat().st_mtime_ns) for path in copy.path.rglob("*")}
        spoils[name](Target(copy, tmp_path))
        assert {path: (path.is_symlink(), path.lstat().st_mtime_ns) for path in copy.path.rglob("*")} != before
        shutil.rmtree(copy.path)


@pytest.mark.parametrize("name", ["resume", "fork", "play", "list"])
def test_commands_end_well_on_hostile_folders(hostile_base, name):
    """A few of each; lab.faults.folder tries all."""
    draw, spoils = random.Random(name), cases()
    for case in draw.sample(list(spoils), 3):
        ended = attempt(hostile_base, spoils[case], COMMANDS[name])
        assert not wrong(name, ended, hostile_base), (case, ended)
