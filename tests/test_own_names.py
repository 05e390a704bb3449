"""`module:ENV:VARIANT` inside a project means the project's own file; publishing trusts the modules that it is told."""

import sys

import pytest

from stride.commands import new, run_play, run_publish
from stride.commands.train_arguments import parse_arguments
from stride.config.general import is_general
from stride.config.loader import load_config, parse_config_id
from stride.utils.user_error import UserError


@pytest.fixture
def walker(tmp_path, monkeypatch):
    monkeypatch.delenv("STRIDE_RUNS", raising=False)
    assert new.main([str(tmp_path / "walker")]) == 0
    monkeypatch.chdir(tmp_path / "walker")
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path / "walker"


def test_a_projects_file_is_meant_with_and_without_the_module(walker):
    assert parse_config_id("walker:Walker-v0:ppo") == ("walker:Walker-v0", "ppo")
    assert not is_general("walker:Walker-v0:ppo") and is_general("walker:Walker-v0:sac")
    config = parse_arguments(["walker:Walker-v0:ppo", "gamma=0.5"]).load()
    assert config.spec.goal == 0.8 and config.gamma == 0.5
    assert config.env_id == "Walker-v0", "the project imports it anyway: runs of both spellings are of one environment"
    assert load_config("Walker-v0", "ppo", ["gamma=0.5"]) == config


def test_a_module_that_the_project_does_not_import_stays_in_the_name(walker):
    assert load_config("walker.other:Walker-v0", "ppo").env_id == "walker.other:Walker-v0"
    (walker / "configs" / "Walker-v0.yaml").write_text("env_id: walker.third:Walker-v0\nppo: {max_timesteps: 7_000}\n")
    assert load_config("walker.other:Walker-v0", "ppo").env_id == "walker.third:Walker-v0", "the file says it itself"


def test_a_variant_that_is_not_there_is_told_with_those_there_are(walker):
    with pytest.raises(UserError, match=r"no variant 'pppo'.*Walker-v0:ppo.*did you mean ppo"):
        parse_arguments(["walker:Walker-v0:pppo"]).load()


def test_a_shipped_file_says_nothing_of_a_module_of_ones_own(walker, monkeypatch):
    assert is_general("mypkg:CartPole-v1:ppo")
    monkeypatch.chdir(walker.parent)
    assert is_general("walker:Walker-v0:ppo"), "outside of the project there is no such file"


def test_publishing_trusts_the_modules_it_is_told(monkeypatch, capsys):
    def loaded(*given):
        raise UserError(f"loads {given}")

    monkeypatch.setattr(run_publish, "load_run", loaded)
    assert run_publish.command(["--run-id", "/x/y", "--dry-run", "--trust", "mypkg,other.part"]) == 2
    assert "loads ('/x/y', 'best', ('mypkg', 'other.part'))" in capsys.readouterr().err
    for command in (run_publish.command, run_play.command):
        assert command(["--run-id", "/x/y", "--trust", "my pkg"]) == 2
        assert "names of modules" in capsys.readouterr().err
