"""Where the modules of a run lie is kept in the user's state folder, which nobody else writes or points elsewhere."""

import json
import os
from pathlib import Path

import pytest

from stride.envs_gym.own_code import recall, remember


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "run").mkdir()
    return tmp_path / "state" / "stride" / "projects"


def test_by_the_runs_resolved_path(state, tmp_path):
    run = tmp_path / "run"
    assert recall(run) == []
    remember(run, [tmp_path / "mine"])
    (tmp_path / "link").symlink_to(tmp_path)
    assert recall(run) == recall(tmp_path / "link" / "run") == [tmp_path / "mine"]
    assert recall(run.rename(tmp_path / "moved")) == []
    assert {path.stat().st_mode & 0o077 for path in (state, state.parent)} == {0}


def test_the_users_home_without_the_variable(state, tmp_path, monkeypatch):
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", value)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        remember(tmp_path / "run", [tmp_path])
        assert len([*(tmp_path / "home" / ".local" / "state" / "stride" / "projects").iterdir()]) == 1


HOSTILE = {
    "a link for the file": lambda state, file: file.rename(state.parent / "x") and file.symlink_to(state.parent / "x"),
    "a link for the folder": lambda state, file: state.rename(state.parent / "x") and state.symlink_to("x"),
    "a FIFO": lambda state, file: (file.unlink(), os.mkfifo(file)),
    "everybody's": lambda state, file: state.chmod(0o777),
    "of another run": lambda state, file: file.write_text(json.dumps({"run": "/x", "folders": ["/"]})),
    "relative": lambda state, file: file.write_text(file.read_text().replace("/mine", "").replace('["/', '["')),
    "no JSON": lambda state, file: file.write_bytes(b"\xff{"),
    "too much": lambda state, file: file.write_text(" " * (1 << 17) + file.read_text()),
    "deep": lambda state, file: file.write_text("[" * 30_000),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_not_ours_says_nothing(state, tmp_path, what):
    remember(tmp_path / "run", [tmp_path / "mine"])
    [file] = state.iterdir()
    HOSTILE[what](state, file)
    assert recall(tmp_path / "run") == []


def test_a_training_goes_on_where_it_cannot_be_kept(state, tmp_path, caplog):
    state.parent.parent.mkdir()
    state.parent.write_text("no folder")
    remember(tmp_path / "run", [Path("/mine")])
    assert "use --project /mine to play" in caplog.text
    assert recall(tmp_path / "run") == []
